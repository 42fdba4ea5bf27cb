"""Comparison with a number as it is printed: equal when it rounds to the digits shown."""


def assert_prints(value, printed):
    mantissa, _, exponent = printed.lower().partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    assert abs(float(value) - float(printed)) <= 0.5001 * 10.0**-decimals, f"{float(value)!r} is not {printed}"
