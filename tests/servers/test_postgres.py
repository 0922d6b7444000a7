"""The server for tests: for root and for others, on loopback and beyond, a database for each test."""

import multiprocessing
import os
import pwd
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.servers.postgres import NOBODY, QUICK, executables, running

SECONDS = 120


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_an_empty_database(database, turn):
    assert database.sql("SELECT count(*) FROM pg_class WHERE relname = 'mine'") == "0"
    database.sql("CREATE TABLE mine (id int)")
    assert database.sql("SELECT current_database()") == database.name


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_ordinary_user_can_start_a_server():
    home = Path(tempfile.mkdtemp(prefix="noonmark-user-"))
    try:
        programs = executables(home)
        (home / "tmp").mkdir()
        if os.geteuid() == 0:
            home.chmod(0o755)
            shutil.chown(home / "tmp", NOBODY)
        # Forked: another user may not be able to read the interpreter.
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=start_as_ordinary_user, args=(theirs, home / "tmp", programs))
        child.start()
        theirs.close()
        assert ours.poll(SECONDS), "the child hangs"
        user, owner, answer, port = ours.recv()
        child.join(SECONDS)
        assert child.exitcode == 0
        assert user == owner != 0
        assert answer == "42"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert not list((home / "tmp").iterdir()), "it leaves nothing behind"
    finally:
        shutil.rmtree(home)


def start_as_ordinary_user(told, folder, programs):
    if os.geteuid() == 0:
        nobody = pwd.getpwnam(NOBODY)
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    tempfile.tempdir = str(folder)
    with running(programs=programs, **QUICK) as server:
        owner = Path(f"/proc/{server.pid}").stat().st_uid
        seen = os.getuid(), owner, server.sql("SELECT 42"), server.port
    told.send(seen)


def test_a_server_can_be_told_to_trust_a_network():
    with running(listen_addresses="127.0.0.1,127.0.0.2", trusted="10.1.2.0/30", **QUICK) as server:
        assert server.sql("SELECT address, auth_method FROM pg_hba_file_rules WHERE address = '10.1.2.0'")
        other = server.url(host="127.0.0.2")
        assert server.tool("psql", "-X", "-A", "-t", "-d", other, "-c", "SELECT inet_server_addr()") == "127.0.0.2"
