"""`python -m bench.cold contestant count`: one walk in a process that has done nothing else; prints the seconds."""

from __future__ import annotations

import sys

from bench.contestants import CONTESTANTS, NEW_YORK
from bench.cron import MONTHLY, START
from bench.timing import timed


def main(name: str, count: str) -> None:
    """Parse and walk."""
    (contestant,) = (each for each in CONTESTANTS if each.name == name)
    seconds, _ = timed(lambda: contestant.walk(MONTHLY, NEW_YORK, START)(int(count)))
    print(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
