"""Servers in processes of their own, which a measurement calls."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.ledger.child import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def port_of(module: str) -> Iterator[int]:
    """The port that a module says when it is run, for as long as the block lasts."""
    command = [sys.executable, "-m", module]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own code
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
