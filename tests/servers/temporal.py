"""A real Temporal server from a wheel, on a port of its own, with its state in a file: it can be killed and started."""

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND

OPTION = "--dynamic-config-value"
START_SECONDS, PAUSE_SECONDS = 60, 0.1
CLOCK = SystemClock()
PROGRAM = shutil.which("temporal", path=str(Path(sys.executable).parent)) or "temporal"


class TemporalServer:
    """One server; namespaces are made when it starts."""

    def __init__(self, port, folder, settings):
        self.port, self.folder = port, Path(folder)
        self._settings = [text for name, value in settings.items() for text in (OPTION, f"{name}={value}")]
        self._process = None

    @property
    def address(self):
        """The host and the port."""
        return f"127.0.0.1:{self.port}"

    def url(self, queue="noonmark", heartbeat=5):
        """The URL of the engine, with a task queue of its own."""
        return f"temporal://{self.address}/default?task_queue={queue}&heartbeat={heartbeat}"

    def start(self):
        """Start it, and wait until it answers."""
        arguments = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "error"]
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(PROGRAM, "server", "start-dev", *arguments, *self._settings),
                    *("--db-filename", str(self.folder / "temporal.db")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            )
        ends = CLOCK.monotonic() + START_SECONDS * SECOND
        while (problem := self.run(self._problem())) is not None:
            log = (self.folder / "log").read_text(errors="replace")
            assert self._process.poll() is None, f"Temporal has ended: {log}"
            assert CLOCK.monotonic() < ends, f"Temporal does not answer: {problem}\n{log}"
            threading.Event().wait(PAUSE_SECONDS)

    def kill(self):
        """Kill it, as if its machine had lost power."""
        self._process.kill()
        self._process.wait()

    def run(self, coroutine):
        """Run a coroutine that talks to it."""
        return asyncio.run(coroutine)

    async def client(self):
        return await Client.connect(self.address)

    async def _problem(self):
        """Why it does not answer; None if it does."""
        try:
            client = await self.client()
            # The namespace is made a moment after the port is open.
            async for _ in client.list_workflows(limit=1, rpc_timeout=timedelta(seconds=2)):
                pass
        except (RPCError, RuntimeError) as error:
            return str(error)


@contextmanager
def running(settings=()):
    """A server that lives as long as the block; further settings are Temporal's own."""
    with tempfile.TemporaryDirectory(prefix="noonmark-temporal-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = TemporalServer(free.getsockname()[1], folder, dict(settings))
        free.close()
        server.start()
        try:
            yield server
        finally:
            server.kill()
