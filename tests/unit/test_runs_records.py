import pytest

from kleash.runs.records import Sample, Step


def test_a_standard_error_without_its_metric_is_refused():
    with pytest.raises(ValueError, match="Step 3 has a standard error for reward/proxy but no such metric"):
        Step(3, {"reward/gold": 0.5}, {"reward/proxy": 0.1})


def test_a_sample_needs_one_kl_value_a_token():
    with pytest.raises(ValueError, match=r"train sample 2\.1 of step 4 has 2 tokens but 1 KL values"):
        Sample(4, "train", 2, 1, "Hi", " you", (" y", "ou"), (0.1,), None, None, 0.1, True)
