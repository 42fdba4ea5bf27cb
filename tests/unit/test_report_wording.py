import pytest

from kleash.report.wording import number, percent, with_error


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


def test_percentages_do_not_break_over_lines():
    assert percent(-0.126) == "13\u202f%"
