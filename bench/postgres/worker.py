"""The worker of another library, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30


@contextmanager
def running_worker(*arguments: str, **variables: str) -> Iterator[None]:
    """`python -m` with these arguments and variables of the environment, as long as the block."""
    process = subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
