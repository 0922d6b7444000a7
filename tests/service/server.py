"""Real servers: `noonmark serve` in its own process, on a free loopback port."""

import http.client
import json
import re
import signal
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.cli.terminal import ENVIRONMENT, NOONMARK, PATIENCE
from tests.embedded.waiting import SOON, eventually
from tests.servers.forked import start_forked

LINE = re.compile(r"Noonmark \S+ listens on (https?://\S+) \(store (\S+), worker (on|off)\)\n")


class Answer:
    """The answer to one request."""

    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()


class Server:
    """One server process. It logs to a file, because a full pipe would block it."""

    def __init__(self, folder, process, out, log):
        self.folder, self.process, self._out, self._log = folder, process, out, log

    @property
    def printed(self):
        """Its standard output."""
        return self._out.read_text()

    @property
    def log(self):
        """Its log, as text."""
        return self._log.read_bytes().decode(errors="surrogateescape")

    @property
    def records(self):
        """Its log, as records."""
        return [json.loads(line) for line in self.log.splitlines()]

    def wait_until_it_listens(self):
        result = eventually(lambda: LINE.search(self.printed) or self.process.poll() is not None)
        assert result is not True, self.log
        self.url = result[1]
        return self

    @property
    def port(self):
        return urlsplit(self.url).port

    def ask(self, method, path, body=None, **headers):
        """One request on a connection of its own."""
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=SOON)
        try:
            document = None if body is None else json.dumps(body)
            kind = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, document, kind | headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    def samples(self):
        """The metrics, by name and labels."""
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def stop(self, number=signal.SIGTERM):
        """Stop it; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def launch(folder, *arguments, name="server", port="0", through=(), **environment):
    """Start a server in a folder, perhaps through another program; startup may fail."""
    out, log = folder / f"{name}.out", folder / f"{name}.log"
    words = ["serve", "--port", port, *map(str, arguments)]
    with out.open("wb") as stdout, log.open("wb") as stderr:
        settings = {"cwd": folder, "env": ENVIRONMENT | {"PYTHONWARNINGS": "error"} | environment}
        settings |= {"stdout": stdout, "stderr": stderr}
        if through:
            process = subprocess.Popen([*through, *NOONMARK, *words], stdin=subprocess.DEVNULL, **settings)
        else:
            process = start_forked("noonmark", *words, **settings)
    return Server(folder, process, out, log)


@contextmanager
def serving(folder, *arguments, **options):
    """A running server until the block ends."""
    server = launch(folder, *arguments, **options)
    try:
        yield server.wait_until_it_listens()
    finally:
        server.process.kill()
        server.process.wait(PATIENCE)
