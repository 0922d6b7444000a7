"""A reader at a shell: types what a page says, command after command, and compares what comes with what is shown."""

import doctest
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

from noonmark.core.instants import SECOND
from tests.cli.terminal import ENVIRONMENT
from tests.embedded.waiting import CLOCK, SOON, eventually
from tests.servers import forked

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
USUAL_PORT = "8001"
RECEIVER_PORT = "9000"
LOOKS = re.compile(r"noonmark (?!preview)\w+ (list|status|runs|occurrences|explain)\b|curl -s '?http\S+$")
"""Commands that change nothing: what they show may take a moment to come about."""
OF_THE_SHELL = re.compile(r"^.*\b(Killed|Terminated)\b.*\n", re.MULTILINE)
LOOK_AGAIN = 0.1
"""Seconds between two looks."""
MATCHES = doctest.OutputChecker().check_output
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def steps(text):
    """The commands of a block, each with what is shown after it."""
    collected = []
    for line in text.splitlines():
        if line.startswith("$ "):
            collected.append((line[2:], []))
        elif line.startswith("> "):
            collected[-1] = (f"{collected[-1][0]}\n{line[2:]}", [])
        else:
            collected[-1][1].append(line)
    return [(command, "\n".join(shown)) for command, shown in collected]


class Session:
    """One shell in a folder of its own, with a port of its own for the servers that are started in it."""

    def __init__(self, folder):
        self._folder, self._marks = folder, count(1)
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
            self.port, self._other_port = (str(one.getsockname()[1]) for one in (free, other))
        self._screen = folder / "screen.txt"
        programs = folder / "programs"
        programs.mkdir()
        noonmark = programs / "noonmark"
        noonmark.write_text(f'#!/bin/sh\nexec {shlex.join(forked.command())} "$@"\n')
        noonmark.chmod(0o755)
        ours = {
            "NOONMARK_PORT": self.port,
            "NOONMARK_SERVER": f"http://127.0.0.1:{self.port}",
            "NOONMARK_LEASE": "1",
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        with self._screen.open("wb") as screen:
            self._shell = subprocess.Popen(
                ["sh"],
                cwd=folder,
                env=ENVIRONMENT | ours,
                stdin=subprocess.PIPE,
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.stdin.close()
        self._shell.wait(SOON)

    def follow(self, page):
        """Do all that a page says; how many commands that were."""
        done = 0
        said = page.read_text("utf-8").replace(f"127.0.0.1:{RECEIVER_PORT}", f"127.0.0.1:{self._other_port}")
        said = said.replace(f'"127.0.0.1", {RECEIVER_PORT}', f'"127.0.0.1", {self._other_port}')
        for kind, name, text in BLOCK.findall(said):
            if kind == "py" and name:
                (self._folder / name).write_text(text, "utf-8")
            elif kind == "shellsession":
                for command, shown in steps(text.replace(USUAL_PORT, self.port)):
                    self.step(command, shown)
                    done += 1
        return done

    def step(self, command, shown):
        """Do one thing, and see what is shown; of what takes a moment to come about, more than once."""
        deadline = CLOCK.monotonic() + int(SOON * SECOND)
        while True:
            printed, code = self._type(command, shown)
            is_shown = MATCHES(shown + "\n", printed + "\n", LOOSELY)
            if is_shown or not LOOKS.match(command) or CLOCK.monotonic() > deadline:
                break
            threading.Event().wait(LOOK_AGAIN)
        assert is_shown, f"$ {command}\n{printed}"
        assert (code == "0") != shown.startswith("noonmark: "), f"$ {command}\n{printed}"

    def _type(self, command, shown):
        """What a command printed, and its exit code; what goes on in the background has printed what is shown."""
        start, mark = self._screen.stat().st_size, f"(done {next(self._marks)})"
        self._shell.stdin.write(f"{command}\nprintf '\\n{mark} %s\\n' $?\n".encode())
        self._shell.stdin.flush()
        end = re.compile(rf"^{re.escape(mark)} (\d+)\n", re.MULTILINE)

        def printed():
            text = self._screen.read_bytes()[start:].decode()
            match = end.search(text)
            told = OF_THE_SHELL.sub("", end.sub("", text))
            is_there = not command.endswith("&") or MATCHES(shown + "\n", told, LOOSELY)
            return match and is_there and (told.strip(), match[1])

        return eventually(printed)
