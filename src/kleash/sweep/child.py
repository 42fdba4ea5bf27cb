"""`python -m kleash.sweep.child PARENT COMMAND...`: become a command that is asked to stop when its parent dies.

The wish survives the exec. Linux grants it; elsewhere a child whose parent was killed trains on to its end, and a sweep
that is started again waits for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def main() -> None:
    """Become the command, unless the parent has died before the wish was made."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == int(parent):
        os.execv(command[0], command)


if __name__ == "__main__":
    main()
