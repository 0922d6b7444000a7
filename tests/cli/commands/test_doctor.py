"""`noonmark doctor` on real files: what it finds and advises, and that it changes nothing."""

import re
import shutil
import sqlite3

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.ports.records import Heartbeat
from noonmark.stores.sqlite import SqliteStore, bootstrap
from tests.cli.runner import Cli, call
from tests.embedded.waiting import eventually
from tests.service.server import serving


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("doctor") / "prepared.db"
    cli = Cli("--store", f"sqlite:///{path}")
    for name in ("sound", "broken"):
        cli.json("schedule", "create", "--id", name, "--every", "1h", "--function", "f", "--label", "team=a")
    return path


@pytest.fixture
def file(prepared, tmp_path):
    path = tmp_path / "noonmark.db"
    with sqlite3.connect(prepared) as source, sqlite3.connect(path) as copy:
        source.backup(copy)
    copy.close()
    source.close()
    return path


def damaged(path, text, *values):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = 1")
    connection.execute(text, values)
    connection.close()


def everything(path):
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


def test_a_sound_store(file):
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    names = ["store", "schema", "rows", "clock", "zones", "leader", "nodes", "halts", "targets", "lag", "overdue"]
    assert [line[:2] for line in lines] == [[name, "ok"] for name in [*names, "disk"]]


def test_a_damaged_row_is_reported_and_not_changed(file):
    damaged(file, "UPDATE schedules SET labels = x'00ff' WHERE schedule_id = 'broken'")
    damaged(file, "UPDATE schedule_states SET total = 'many' WHERE schedule = 1")
    before = everything(file)
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code == 1
    assert "rows      problem  2 damaged among all" in done.out
    assert "labels: is 2 bytes, not text" in done.out
    assert "UPDATE schedules SET is_listed = 0 WHERE key = " in done.out
    assert 'schedule_states 1, total: is "many", not an integer' in done.out
    answer = call("doctor", "--store", f"sqlite:///{file}", "--json")
    assert answer.code == 1
    assert [(one["table"], one["column"]) for one in answer.json["damaged_rows"]] == [
        ("schedules", "labels"), ("schedule_states", "total"),
    ]  # fmt: skip
    assert everything(file) == before


def test_a_schedule_that_cannot_be_read_is_named_by_the_list_and_the_doctor(file):
    damaged(file, "UPDATE schedules SET labels = x'00ff' WHERE schedule_id = 'broken'")
    listed = call("schedule", "list", "--store", f"sqlite:///{file}")
    assert "sound" in listed.out
    assert listed.err == (
        "noonmark: warning: schedule broken is damaged and not listed: labels is 2 bytes, not text;"
        " noonmark doctor says how to repair or delete it\n"
    )
    answer = call("schedule", "list", "--store", f"sqlite:///{file}", "--json").json
    assert ([one["schedule_id"] for one in answer["schedules"]], len(answer["warnings"])) == (["sound"], 1)
    assert "labels: is 2 bytes, not text (schedule broken)" in call("doctor", "--store", f"sqlite:///{file}").out
    [row] = call("doctor", "--store", f"sqlite:///{file}", "--json").json["damaged_rows"]
    assert row["schedule_id"] == "broken"
    damaged(file, row["advice"].rpartition(": ")[2])
    assert "warnings" not in call("schedule", "list", "--store", f"sqlite:///{file}", "--json").json


def test_the_advice_for_a_schedule_frees_its_id(file):
    damaged(file, "UPDATE schedules SET terms_document = '[1]' WHERE schedule_id = 'broken'")
    cli = Cli("--store", f"sqlite:///{file}")
    [row] = call("doctor", "--store", f"sqlite:///{file}", "--json").json["damaged_rows"]
    assert (row["table"], row["column"], row["problem"]) == (
        "schedules",
        "terms_document",
        "is JSON, but not an object",
    )
    damaged(file, row["advice"].rpartition(": ")[2])
    assert cli.json("schedule", "create", "--id", "broken", "--every", "1h", "--function", "f")["phase"] == "active"


def test_another_schema_version_is_reported_and_not_changed(file):
    damaged(file, "UPDATE alembic_version SET version_num = '0001'")
    before = everything(file)
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code == 1
    assert "schema    problem  it has version 0001, which is older" in done.out
    assert everything(file) == before


def test_traces_of_a_wrong_clock_are_reported(file):
    now, year = SystemClock().micros(), 365 * 86_400 * SECOND
    damaged(file, "UPDATE schedule_states SET watermark = ? WHERE schedule = 1", now + 5 * year)
    damaged(file, "UPDATE notes SET noted = ?", now + 5 * year)
    store = SqliteStore(file, SystemClock().micros)
    store.beat(Heartbeat(node="hasty", lease=SECOND), now=now + 7_200 * SECOND)
    store.close()
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code == 1
    [line] = [line for line in done.out.splitlines() if line.startswith("clock")]
    assert re.search("the store remembers a time 157,6[0-9]{2},[0-9]{3} s ahead of now", line)
    assert re.search("node hasty was last seen 7,[0-9]{3} s in the future", line)
    assert "planned further ahead than any plan made now would be: 1 (sound)" in line
    damaged(file, "DELETE FROM nodes")
    damaged(file, "UPDATE notes SET noted = ?", now - year)
    assert "the store was not used for 31,5" in call("doctor", "--store", f"sqlite:///{file}").out


def test_a_corrupt_file_is_reported(file):
    content = bytearray(file.read_bytes())
    content[8 * 4096 : 9 * 4096] = b"\xff" * 4096
    file.write_bytes(content)
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code in (1, 6)
    assert "store     problem" in done.out or "noonmark: " in done.err


def test_a_missing_store_or_server(tmp_path):
    assert call("doctor", "--store", f"sqlite:///{tmp_path / 'missing.db'}").code == 3
    assert call("doctor", "--server", "http://127.0.0.1:1").code == 6


def test_doctor_on_a_server(file, tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    shutil.copy(file, folder / "noonmark.db")
    damaged(folder / "noonmark.db", "UPDATE schedules SET labels = x'00ff' WHERE schedule_id = 'broken'")
    with serving(folder, "--store", "sqlite:///noonmark.db") as server:
        done = call("doctor", "--server", server.url, "--json")
        assert done.code == 1
        assert [(one["table"], one["column"]) for one in done.json["damaged_rows"]] == [("schedules", "labels")]
        eventually(lambda: server.get("/health/ready").status == 200)
        assert server.get("/health").json["damaged_rows"] == 1
        assert 'noonmark_damaged_rows{table="schedules"} 1.0' in server.get("/metrics").text
        assert [one["schedule_id"] for one in server.get("/schedules").json["schedules"]] == ["sound"]


def test_a_file_too_large_to_check_completely(file, monkeypatch):
    monkeypatch.setattr(bootstrap, "MOST_STEPS", -1)
    monkeypatch.setattr(bootstrap, "STEP", 1)
    done = call("doctor", "--store", f"sqlite:///{file}")
    assert done.code == 0
    assert "too large to be checked to its end" in done.out


def test_the_advice_for_a_run_matches_only_that_run(file):
    """An occurrence has a run per attempt: the statement must not remove the sound ones."""
    damaged(
        file,
        "INSERT INTO runs (occurrence, fence, schedule, attempt, node, started, outcome)"
        " VALUES (7, 1, 1, 1, 'n', 1, 'completed'), (7, 2, 1, 2, 'n', 1, 'no such outcome')",
    )
    [told] = call("doctor", "--store", f"sqlite:///{file}", "--json").json["damaged_rows"]
    statement = told["advice"].partition(": ")[2]
    damaged(file, statement)
    connection = sqlite3.connect(file)
    assert list(connection.execute("SELECT fence FROM runs")) == [(1,)]
    connection.close()


def test_names_in_the_advice_are_sql_literals(file):
    damaged(
        file,
        "INSERT INTO nodes (name, routes, capacity, load, version, started, lease, seen)"
        " VALUES ('17', '[]', 1, 'busy', '1', 1, 1, 1), ('it''s, too', '[]', 1, 'busy', '1', 1, 1, 1)",
    )
    answer = call("doctor", "--store", f"sqlite:///{file}", "--json").json["damaged_rows"]
    assert [one["advice"].rpartition(" WHERE ")[2] for one in answer] == ["name = '17'", "name = 'it''s, too'"]


def test_rows_must_be_positive(file):
    done = call("doctor", "--store", f"sqlite:///{file}", "--rows", "0")
    assert (done.code, done.out) == (2, "")
    assert "rows" in done.err
