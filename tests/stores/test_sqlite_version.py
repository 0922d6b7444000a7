"""The statements of the SQLite store run on the oldest supported SQLite."""

import ast
import re
import sqlite3
from pathlib import Path

import pytest

import noonmark
from noonmark.stores.sqlite import SqliteStore
from noonmark.stores.sqlite.connections import Connections
from noonmark.testing.conformance import CASES, try_case

STORES = Path(noonmark.__file__).parent / "stores"
NEWER = re.compile(
    r"->|\bSTRICT\b|\b(FULL|RIGHT) (OUTER )?JOIN\b|\bIS (NOT )?DISTINCT FROM\b|\bWITHIN GROUP\b|'subsec'"
    r"|\b(unixepoch|format|concat|concat_ws|string_agg|octet_length|unhex|timediff|json_pretty|jsonb\w*|if)\("
    r"|\bjson_error_position\(",
)
FUNCTIONS = {"->", "->>", "unixepoch", "format", "concat", "concat_ws", "string_agg", "octet_length", "unhex", "jsonb"}
OF_POSTGRES = re.compile(r"json_array_elements|plpgsql|EXECUTE FUNCTION|\$x\$")
STATEMENT = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|json_\w+\(|WHERE)\b")


def texts():
    for file in sorted([*STORES.joinpath("sql").rglob("*.py"), *STORES.joinpath("sqlite").rglob("*.py")]):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = " ".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
            if STATEMENT.search(text) and not OF_POSTGRES.search(text):
                yield file.name, text
    for file in [*sorted(STORES.rglob("*sqlite*.sql")), STORES / "sqlite" / "schema.sql"]:
        yield file.name, file.read_text("utf-8")


def test_no_statement_is_written_in_words_of_a_newer_sqlite():
    found = list(texts())
    assert len(found) > 100
    assert [(name, text) for name, text in found if NEWER.search(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT j.value ->> 1 FROM json_each(?) AS j",
        "CREATE TABLE t (a INTEGER) STRICT",
        "SELECT unixepoch()",
        "SELECT a FROM b WHERE c IS NOT DISTINCT FROM d",
    ],
)
def test_newer_words_are_recognised(text):
    assert NEWER.search(text)


def test_no_prepared_statement_calls_a_newer_function(tmp_path, monkeypatch):
    called = set()

    def judge(action, first, second, database, trigger):
        if action == sqlite3.SQLITE_FUNCTION:
            called.add(second)
        return sqlite3.SQLITE_OK

    connect = Connections.connect

    def connect_and_judge(self):
        connection = connect(self)
        connection.set_authorizer(judge)
        return connection

    monkeypatch.setattr(Connections, "connect", connect_and_judge)
    for number, case in enumerate(CASES[::32]):
        try_case(case, lambda clock, number=number: SqliteStore(tmp_path / f"{number}.db", clock))
    assert "json_extract" in called
    assert not called & FUNCTIONS
