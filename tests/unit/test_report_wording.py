import pytest

from kleash.report.wording import number, percent, with_error, with_interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "−inf"),
        (0, "0"), (6.0, "6"), (1200, "1,200"), (0.12345, "0.123"), (-12.345, "−12.3"), (123.4, "123"),
        (0.00012345, "1.23e−4"), (2.5e9, "2.5e9"),
    ],
)  # fmt: skip
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (0.6571, 0.0401, "0.657 ± 0.040"), (25.014, 0.5, "25.01 ± 0.50"), (1234.5, 12.3, "1,234 ± 12"),
        (6.0, None, "6"), (6.07, 0.0, "6.07 ± 0"), (float("nan"), 0.1, "nan ± 0.100"),
        (1.0, float("nan"), "1 ± nan"),
    ],
)  # fmt: skip
def test_a_value_has_as_many_decimals_as_its_error(value, stderr, text):
    assert with_error(value, stderr) == text


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((3.1234, 2.71, 3.49), "3.12 [2.71, 3.49]"), ((0.08, 0.072, 0.088), "0.0800 [0.0720, 0.0880]"),
        ((1234.0, 1100.0, 1400.0), "1,234 [1,100, 1,400]"), ((-0.5, -0.75, 0.25), "−0.50 [−0.75, 0.25]"),
        ((0.0, 0.0, 0.0), "0 [0, 0]"), ((2e-5, 1e-5, 3e-5), "2e−5 [1e−5, 3e−5]"),
        ((1.0, float("nan"), 2.0), "1 [nan, 2]"), ((1.5, float("nan"), float("nan")), "1.50"),
        ((0.02, 0.0195, 0.0205), "0.02000 [0.01950, 0.02050]"),
    ],
)  # fmt: skip
def test_an_interval_has_the_digits_of_its_half_width(ends, text):
    assert with_interval(*ends) == text


def test_percentages_do_not_break_over_lines():
    assert percent(-0.126) == "13\u202f%"
