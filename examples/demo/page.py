"""The web page of the demo: a server beside it, on the same store. It shows and changes the jobs; the demo runs them.

The server runs in a process of its own, `python -m examples.demo.page`, and stops when the demo is gone, however that
ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

from noonmark.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = re.compile(r" listens on (http\S+) ")


class WebPage:
    """The server, as the demo sees it. Its address is known once it listens."""

    def __init__(self, store: str) -> None:
        """`store` is the one of the demo."""
        self.address: str | None = None
        self.on_address: Callable[[str], None] = lambda _: None
        self._store = store

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "examples.demo.page", self._store],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if (found := ADDRESS.search(line)) is not None:
                self.address = f"{found[1]}/ui"
                self.on_address(self.address)

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _stop_with_the_demo() -> None:
    sys.stdin.read()  # until the demo closes it, or is gone
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_the_demo, daemon=True).start()
    sys.argv = ["noonmark", "serve", "--no-worker", "--port", "0", "--store", sys.argv[1]]
    sys.exit(main())
