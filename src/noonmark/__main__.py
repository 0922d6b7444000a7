"""`python -m noonmark`: the same as the command `noonmark`."""

import sys

from noonmark.cli import main

if __name__ == "__main__":
    sys.exit(main())
