"""Numbers as people read them: three digits, a true minus sign, the error beside the value."""

from __future__ import annotations

import math

NARROW_SPACE = "\u202f"  # keeps a number and its sign on one line


def number(value: float | None) -> str:
    """Return a number in three significant digits, a whole one in all its digits.

    None is a dash; NaN and the infinities are named.
    """
    if value is None:
        return "–"
    value = float(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "−inf"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        return _minus(f"{float(mantissa):g}e{int(exponent)}")
    return _fixed(value, 0 if value.is_integer() else 2 - _exponent(value))


def with_error(value: float, stderr: float | None) -> str:
    """Return "value ± stderr", both to the second digit of the error; without an error, the value alone."""
    if stderr is None or not math.isfinite(value) or not math.isfinite(stderr):
        return number(value) if stderr is None else f"{number(value)} ± {number(stderr)}"
    if stderr == 0 or not 1e-3 <= abs(stderr) < 1e6:
        return f"{number(value)} ± {number(stderr)}"
    decimals = max(0, min(6, 1 - _exponent(stderr)))
    return f"{_fixed(value, decimals)} ± {_fixed(stderr, decimals)}"


def with_interval(value: float, low: float, high: float) -> str:
    """Return "value [low, high]", all to the second digit of half the width; the value alone where it has no ends."""
    if math.isnan(low) and math.isnan(high):
        return number(value)
    half = (high - low) / 2
    if not math.isfinite(value + half) or half == 0 or not 1e-3 <= max(abs(low), abs(high)) < 1e6:
        return f"{number(value)} [{number(low)}, {number(high)}]"
    decimals = max(0, min(6, 1 - _exponent(half)))
    return f"{_fixed(value, decimals)} [{_fixed(low, decimals)}, {_fixed(high, decimals)}]"


def percent(fraction: float) -> str:
    """Return a fraction as a whole percentage, without a sign."""
    return f"{abs(fraction) * 100:.0f}{NARROW_SPACE}%"


def _exponent(value: float) -> int:
    return 0 if value == 0 else math.floor(math.log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    return _minus(f"{value:,.{max(0, decimals)}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
