"""Act as a user whom permissions bind, which root is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Within the block a read-only folder is read-only, even where the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
