"""`python -m kleash`: the same as `kleash`."""

import sys

from kleash.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
