"""`python -m bench [--quick] [suite ...]`: measure, and print the tables.

A missed bar is not a failure, since a busy machine can miss one; a wrong answer ends the run with an error.
"""

from __future__ import annotations

import argparse
from time import perf_counter

from bench.report import Table, head, tail
from bench.settings import FULL, QUICK
from bench.suites import SUITES


def main() -> None:
    """Run the suites that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Noonmark beside other libraries.")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"any of {', '.join(SUITES)}; without one, all")
    parser.add_argument("--quick", action="store_true", help="only see that everything runs; the times mean nothing")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.suites if name not in SUITES]:
        parser.error(f"there is no suite {unknown[0]!r}; choose from {', '.join(SUITES)}")
    settings = QUICK if arguments.quick else FULL
    started = perf_counter()
    measured: list[Table] = []
    say(head(settings))
    for name in arguments.suites or SUITES:
        for table in SUITES[name](settings):
            measured.append(table)
            say(table.lines())
    say(tail(measured, perf_counter() - started))


def say(lines: list[str]) -> None:
    """Print a block at once, with a blank line after it."""
    print("\n".join(lines), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
