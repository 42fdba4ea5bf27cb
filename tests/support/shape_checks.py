"""The type checker that pytest puts around kleash's functions, so that shapes are checked at each call."""

from __future__ import annotations

from typing import Any

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintException

_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Any) -> Any:
    """Return `function` with its arguments and result checked; unchanged if one is a plain protocol or `Self`."""
    try:
        return _checked(function)
    except BeartypeDecorHintException:
        return function
