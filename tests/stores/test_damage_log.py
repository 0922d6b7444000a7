"""Damaged rows are logged once each, and counted."""

import logging

from noonmark.stores.sql import row_checks
from noonmark.stores.sql.row_checks import DamageLog


def test_each_row_is_told_once(caplog):
    log = DamageLog()
    with caplog.at_level(logging.ERROR, "noonmark.store"):
        for _ in range(3):
            log.note("schedules", 7, "labels is 3 bytes, not text")
        log.note("schedules", 8, "terms_document is not JSON")
        log.note("nodes", "a", "seen is missing")
    said = "a row of {} is damaged, and set aside by itself ({}): {}; noonmark doctor says what to do"
    assert [record.getMessage() for record in caplog.records] == [
        said.format("schedules", 7, "labels is 3 bytes, not text"),
        said.format("schedules", 8, "terms_document is not JSON"),
        said.format("nodes", "a", "seen is missing"),
    ]
    assert log.counts() == {"schedules": 2, "nodes": 1}


def test_there_is_an_end_to_what_is_remembered(monkeypatch):
    monkeypatch.setattr(row_checks, "MOST_KNOWN", 2)
    log = DamageLog()
    for key in range(5):
        log.note("events", key, "emitted is missing")
    assert log.counts() == {"events": 2}
