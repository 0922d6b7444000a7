"""Uploads of a server process: its memory, and what remains after it is killed."""

import os
import re
import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from noonmark.client import Client
from tests.embedded.waiting import eventually
from tests.service.server import serving

SIZE = 64 << 20
TRIGGER = {"type": "event", "event_type": "file_uploaded", "filters": {"path": {"prefix": "/datasets/"}}}
CAT = {"target_kind": "command", "argv": ["cat"]}
"""A program that gives back what it is told: the event."""


class Zeros:
    """A large file that is nowhere."""

    name = "large.bin"

    def __init__(self, size):
        self.left = size

    def read(self, most):
        taken = min(most, self.left)
        self.left -= taken
        return bytes(taken)


def peak(server):
    """The most memory that a process has had, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1_024


def coming(folder):
    return [one.name for one in (folder / "default/.incoming").glob("*") if not one.name.startswith(".")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_a_large_file_is_never_held_in_memory(tmp_path):
    with serving(tmp_path, "--no-worker") as server, Client(server.url) as client:
        client.upload(Zeros(1_000))
        before = peak(server)
        upload = client.upload(Zeros(SIZE))
        assert upload.size == SIZE
        assert len(server.get(f"/uploads/{upload.upload_id}").body) == SIZE
        assert peak(server) - before < SIZE // 4
        assert (tmp_path / "noonmark.db.uploads/default" / upload.upload_id / "large.bin").stat().st_size == SIZE


def replace_by(kind, path):
    """Put something that is no file where a file was."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.bind(os.path.relpath(path))
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"longer than it was")


def test_a_replaced_upload_blocks_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with serving(tmp_path, "--no-worker") as server, Client(server.url) as client:
        folder = tmp_path / "noonmark.db.uploads/default"
        (tmp_path / "a.txt").write_text("hello")
        for where in ("a.txt", ".upload.json"):
            for kind in ("pipe", "folder", "socket", "link", "longer"):
                upload = client.upload(tmp_path / "a.txt")
                replace_by(kind, folder / upload.upload_id / where)
                for _ in range(10):  # more than there are threads for files
                    answer = server.get(f"/uploads/{upload.upload_id}")
                    assert (answer.status, answer.json["code"]) in ((404, "not_found"), (503, "store_unavailable"))
                assert server.get("/uploads").status == 200
        for where, status in ((".count", 201), (".lock", 503)):
            replace_by("pipe", folder / ".incoming" / where)
            assert server.ask("POST", "/uploads?filename=b.txt", "hello").status == status
        assert server.stop() == 0


def send(server, filename, content, length=None):
    """Send a file, and do not wait for what is said to it."""
    line = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /uploads?filename={filename}&path=/datasets/{filename} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    line.sendall(f"{head}Content-Length: {length or len(content)}\r\n\r\n".encode() + content)
    return line


def test_a_killed_server_leaves_no_partial_upload_and_announces_complete_ones(tmp_path):
    folder = tmp_path / "kept"
    asked = ("--upload-dir", str(folder), "--allow-commands", "cat")
    with serving(tmp_path, *asked) as server:
        with Client(server.url) as client:
            schedule_id = client.create(trigger=TRIGGER, target=CAT).schedule_id
            upload = client.upload(Path(__file__), path="/datasets/told.py")
            eventually(lambda: list(client.occurrences(schedule_id, phase="completed")))
        with (
            closing(sqlite3.connect(tmp_path / "noonmark.db", isolation_level=None)) as store,
            send(server, "half", b"x" * 400_000, 900_000),
        ):
            store.execute("BEGIN IMMEDIATE")  # so that the next is kept, and its event has to wait
            with send(server, "untold.csv", b"a,b"):
                eventually(lambda: len(coming(folder)) == 2 and list(folder.glob("default/*/untold.csv")))
                server.process.kill()
                server.process.wait()
            assert store.execute("SELECT count(*) FROM events").fetchone() == (1,)
            store.execute("ROLLBACK")
    [stored] = folder.glob("default/*/untold.csv")
    assert sorted(coming(folder), key=len) == [stored.parent.name, next(folder.glob("default/.incoming/*.part")).name]
    # As if it had also been killed just after it told of the first.
    (folder / "default/.incoming" / upload.upload_id).touch()
    with serving(tmp_path, *asked) as server, Client(server.url) as client:
        assert coming(folder) == []
        assert [one.filename for one in client.uploads()] == ["untold.csv", Path(__file__).name]
        ended = eventually(
            lambda: len(found := list(client.occurrences(schedule_id, phase="completed"))) == 2 and found
        )
        assert len(list(client.events(event_type="file_uploaded"))) == 2
        said = [str(client.occurrence_runs(one.occurrence_id)[0].result) for one in ended]
        assert sorted(str(stored) in one for one in said) == [False, True]
    with closing(sqlite3.connect(tmp_path / "noonmark.db")) as store:
        assert store.execute("SELECT count(*) FROM events").fetchone() == (2,)
