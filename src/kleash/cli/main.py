"""The `kleash` command: find the function that a command names, call it, and turn what happens into an exit code.

A command's module is imported only when it is asked for, and torch only inside its function: `kleash --help` answers
at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

from kleash.cli.arguments import parser
from kleash.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, EXIT_USER, KleashError

BUG = (
    "This is a fault in Kleash, not in your settings. Please report it with the text above, the command and the "
    "output of `kleash --version`."
)


OUT_OF_MEMORY = (
    "the GPU has no memory left. Cut updates smaller with training.gradient_accumulation_steps, decode fewer sequences "
    "at once with rollout.batch_size, or set model.gradient_checkpointing = true; the run resumes from its checkpoint"
)


EXTRAS = {
    **dict.fromkeys(("sqlalchemy", "psycopg"), "label"),
    **dict.fromkeys(("fastapi", "uvicorn"), "watch"),
    **dict.fromkeys(("datasets", "pyarrow", "pandas"), "data"),
    **dict.fromkeys(("vaderSentiment", "gguf"), "demo"),
    "httpx": "judge",
    "tensorboard": "logs",
}
"""Optional packages, and the extra that each comes with."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 bug, 2 the user's mistake, 3 stopped, 4 alarms, 130 Ctrl-C.

    Args:
        argv: the words after `kleash`; None takes the process's own.

    Raises:
        SystemExit: from argparse, after `--help`, `--version` (0) or a command line that does not parse (2).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads that spin starve those that work
    arguments = vars(parser().parse_args(argv))
    module, _, function = arguments.pop("call").partition(":")
    try:
        getattr(import_module(f"kleash.cli.{module}"), function)(**arguments)
    except KleashError as error:
        print(f"kleash: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kleash: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            return _our_bug()
        advice = f"pip install 'kleash[{EXTRAS[package]}]'"
        print(f"kleash: this needs the package {package}, which is not installed: {advice}", file=sys.stderr)
        return EXIT_USER
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            first, *_ = str(error).split("\n")
            print(f"kleash: {OUT_OF_MEMORY} ({first})", file=sys.stderr)
            return EXIT_USER
        return _our_bug()
    return EXIT_DONE


def _our_bug() -> int:
    """Print the exception that is being handled, and where to report it."""
    traceback.print_exc()
    print(BUG, file=sys.stderr)
    return EXIT_BUG
