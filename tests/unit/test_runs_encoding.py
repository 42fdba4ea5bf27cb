import json
import math

import pytest

from kleash.runs.encoding import dump, dump_named, dump_numbers, load_named, load_numbers, restore, store


@pytest.mark.parametrize(
    ("value", "stored"),
    [(0.1, 0.1), (0, 0.0), (math.inf, "inf"), (-math.inf, "-inf"), (math.nan, "nan"), (None, None)],
)
def test_numbers_that_json_and_sqlite_lose_are_kept_as_text(value, stored):
    assert store(value) == stored
    assert str(restore(stored)) == str(None if value is None else float(value))


def test_lists_and_objects_of_numbers_are_standard_json():
    text = dump_numbers([0.25, math.nan])
    assert json.loads(text) == [0.25, "nan"]
    assert load_numbers(text)[0] == 0.25
    assert math.isnan(load_numbers(text)[1])
    assert json.loads(dump_named({"kl": -math.inf, "gold": None})) == {"kl": "-inf", "gold": None}
    assert load_named('{"kl":"-inf","gold":null}') == {"kl": -math.inf, "gold": None}


def test_a_nan_that_was_not_stored_by_the_rule_is_refused():
    with pytest.raises(ValueError, match="Out of range float"):
        dump({"learning_rate": math.nan})
