"""The alternate screen of a terminal, for views that are drawn again and again."""

from __future__ import annotations

import os
import select
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OPEN, CLOSE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Opens the alternate screen and hides the cursor; and back."""
HOME, REST = "\x1b[H", "\x1b[J"


@contextmanager
def open_screen() -> Iterator[Callable[[float], bool]]:
    """The alternate screen, with keys read one by one; yields what waits, and returns whether the user ends it."""
    sys.stdout.write(OPEN)
    try:
        with _keys() as wait:
            yield wait
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(CLOSE)
        sys.stdout.flush()


def begin_frame() -> None:
    """Go back to the first line, and clear the screen."""
    sys.stdout.write(HOME + REST)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    if os.name != "posix" or not sys.stdin.isatty():
        from threading import Event

        yield Event().wait
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)  # what was typed before counts

        def wait(seconds: float) -> bool:
            ready, _, _ = select.select([terminal], [], [], seconds)
            return bool(ready) and _ends(os.read(terminal, 64))

        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _ends(keys: bytes) -> bool:
    """Whether the typed keys end the view; the end of the input does, too."""
    return not keys or b"q" in keys.lower()
