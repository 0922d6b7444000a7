"""The command line."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path

from noonmark.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, print_errors

__all__ = ["main"]


def main() -> int:
    """Run the command that the arguments name and return its exit code. Never prints a traceback."""
    _prepare_streams()
    try:
        from noonmark.cli.app import run

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # as in `noonmark preview .. | head -1`
        _discard_output()
        return EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - a full disk or a bug: one line, not a traceback
        _discard_output()
        print_errors([f"{type(error).__name__}: {error}"])
        return EXIT_FAILED
    return code


def _prepare_streams() -> None:
    """Replace closed streams, and escape characters that a terminal cannot show."""
    sys.stdout = sys.stdout or _null_stream()
    sys.stderr = sys.stderr or _null_stream()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _null_stream() -> TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")  # open until the process ends


def _discard_output() -> None:
    """Discard what is still buffered; otherwise Python reports the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
