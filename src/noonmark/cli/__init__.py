"""The command line. It asks the same functions as everything else, and only reads and prints by itself."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path

from noonmark.cli import exits
from noonmark.cli.output import complain

__all__ = ["main"]


def main() -> int:
    """Run the command that the arguments name and answer with its exit code; no traceback, whatever happens."""
    _prepare_streams()
    try:
        from noonmark.cli.app import run  # noqa: PLC0415 - so that Ctrl-C while it loads ends quietly too

        code = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough, as in `noonmark preview .. | head -1`
        _drop_output()
        return exits.FAILED
    except Exception as error:  # noqa: BLE001 - a full disk or a mistake of ours: one line, not a traceback
        _drop_output()
        complain([f"{type(error).__name__}: {error}"])
        return exits.FAILED
    return code


def _prepare_streams() -> None:
    """Give a closed stream somewhere to write to, and print what a terminal cannot show as escapes."""
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")  # for as long as the process lives


def _drop_output() -> None:
    """Give the unwritten rest to nobody, or Python would complain about it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
