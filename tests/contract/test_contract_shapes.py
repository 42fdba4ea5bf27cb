"""The suite runs with shape checks on: a wrong shape or type is refused at the call."""

import pytest
import torch
from jaxtyping import TypeCheckError

from kleash.kl.estimators import k1


@pytest.mark.parametrize("reference", [torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.int64)], ids=["shape", "type"])
def test_a_call_that_does_not_fit_the_annotation_is_refused(reference):
    with pytest.raises(TypeCheckError, match="reference_logprobs"):
        k1(torch.zeros(2, 4), reference)
