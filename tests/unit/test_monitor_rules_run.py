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


def test_large_numbers_and_unmeasured_ones_are_in_order():
    assert findings(NonFinite(), [{"a": 1.7e308, "b": 1.7e308, "c": None}, {}]) == [None, None]
