"""Rows of prompt + response, and which positions predict what."""

import pytest
import torch

from kleash.models.batch import collate

CPU = torch.device("cpu")


def test_rows_positions_and_targets():
    batch = collate([[1, 2], [3]], [[4, 5, 6], [7]], pad=0, device=CPU)
    assert batch.input_ids.tolist() == [[1, 2, 4, 5, 6], [3, 7, 0, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 5, [True, True, False, False, False]]
    assert batch.predicts_response.tolist() == [[False, True, True, True, False], [True, False, False, False, False]]
    assert batch.targets.tolist() == [4, 5, 6, 7]
    assert batch.response_mask.tolist() == [[True, True, True], [True, False, False]]


def test_no_attention_mask_where_nothing_is_padded():
    assert collate([[1, 2], [3]], [[4], [5, 6]], pad=0, device=CPU).attention_mask is None


def test_padding_that_equals_a_response_token_is_still_masked():
    batch = collate([[1], [1]], [[9, 9], [9]], pad=9, device=CPU)
    assert batch.targets.tolist() == [9, 9, 9]
    assert batch.attention_mask.tolist() == [[True, True, True], [True, True, False]]


def test_an_empty_response_predicts_nothing():
    batch = collate([[1, 2], [3]], [[], [7]], pad=0, device=CPU)
    assert batch.predicts_response.sum(dim=1).tolist() == [0, 1]
    assert batch.targets.tolist() == [7]
    assert batch.response_mask.tolist() == [[False], [True]]


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="nothing predicts the first token of its response"):
        collate([[1], []], [[2], [3]], pad=0, device=CPU)


def test_prompts_and_responses_pair_up():
    with pytest.raises(ValueError, match="zip"):
        collate([[1]], [[2], [3]], pad=0, device=CPU)
