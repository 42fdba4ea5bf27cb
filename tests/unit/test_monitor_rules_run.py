import math

from rule_findings import findings

from kleash.monitor.rules.run import NonFinite


def test_a_nan_is_critical_from_its_first_step_on():
    fine, broken = {"loss/policy": 0.1, "reward/proxy": 1.0}, {"loss/policy": math.nan, "reward/proxy": 1.0}
    found = findings(NonFinite(), [fine, broken, broken, fine])
    assert [one and one.began for one in found] == [None, 1, 1, None]
    assert found[1].severity == "critical"
    assert list(found[1].values) == ["loss/policy"]
    assert math.isnan(found[1].values["loss/policy"])
    assert found[2].message == "loss/policy is nan in step 2."


def test_infinities_that_cancel_are_seen_and_only_three_are_named():
    row = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": math.inf, "e": 1.0}
    found = findings(NonFinite(), [row])[0]
    assert found.message == "a is inf, b is -inf, c is nan, and 1 more numbers are not finite in step 0."
    assert set(found.values) == {"a", "b", "c", "d"}


def test_a_number_stays_wrong_until_it_is_measured_again():
    found = findings(
        NonFinite(), [{"eval/kl/exact_per_token": math.nan}, {"a": 1.0}, {}, {"eval/kl/exact_per_token": 1.0}]
    )
    assert found[0] == found[1] == found[2]
    assert found[0].message == "eval/kl/exact_per_token is nan in step 0."
    assert found[3] is None


def test_a_reward_function_without_a_word_on_a_whole_batch_is_in_order():
    assert findings(NonFinite(), [{"reward/function/code": math.nan, "reward/proxy": 1.0}]) == [None]
    assert findings(NonFinite(), [{"reward/function/code": math.inf}])[0].severity == "critical"
    assert list(findings(NonFinite(), [{"reward/function/a": math.nan, "b": math.nan}])[0].values) == ["b"]


def test_a_gradient_that_is_no_number_is_a_skipped_step_until_it_goes_on_for_five():
    wrong = [{"optim/grad_norm": math.inf, "loss/policy": 2.0}] * 4
    found = findings(
        NonFinite(), [*wrong, {"loss/policy": 2.0}, {"optim/grad_norm": math.nan}, {"optim/grad_norm": 1.0}]
    )
    assert [one and one.severity for one in found] == ["warning"] * 5 + ["critical", None]
    assert found[3].message == (
        "optim/grad_norm is inf in step 3. By itself that is no fault: float16 training skips such a step and lowers "
        "the scale of its loss. It is one if it goes on for 5 measurements."
    )
    assert found[5].message == "optim/grad_norm is nan in step 5."
    assert found[5].began == 0
    assert findings(NonFinite(), [{"optim/grad_norm": math.inf, "loss/policy": math.nan}])[0].severity == "critical"


def test_large_numbers_and_unmeasured_ones_are_in_order():
    assert findings(NonFinite(), [{"a": 1.7e308, "b": 1.7e308, "c": None}, {}]) == [None, None]
