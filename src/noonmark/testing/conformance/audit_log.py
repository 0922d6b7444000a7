"""Audit entries are written with the change that they describe; an idempotency key stands for its first request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.planner import first_plan
from noonmark.core.schedule import AuditEntry
from noonmark.ports.records import KeyRecord
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench


def _note(operation: str, **changes: Any) -> AuditEntry:
    return replace(AuditEntry(at=NOW, caller="ada", operation=operation), **changes)


def _told(bench: Bench, tenant: str = "acme", limit: int = 99, **changes: Any) -> list[str]:
    return [note.operation for note in bench.store.audit_entries(tenant, limit, **changes)]


@case
def audit_entries_are_listed_newest_first_and_in_pages(bench: Bench) -> None:
    bench.store.add_audit_entries("acme", [_note("a"), _note("b")])
    bench.store.add_audit_entries("other", [_note("theirs")])
    bench.store.add_audit_entries("acme", [_note("c", at=NOW - 1), _note("d"), _note("e")])
    bench.store.add_audit_entries("acme", [])
    assert _told(bench) == ["e", "d", "c", "b", "a"]
    assert _told(bench, "other") == ["theirs"]
    assert _told(bench, "nobody") == []
    pages, place = [], None
    while page := bench.store.audit_entries("acme", 2, before=place):
        pages.append([note.operation for note in page])
        place = page[-1].key
    assert pages == [["e", "d"], ["c", "b"], ["a"]]
    assert _told(bench, limit=0) == []


@case
def an_audit_entry_is_read_as_it_was_written(bench: Bench) -> None:
    whole = AuditEntry(
        at=NOW,
        caller="ada@acme",
        operation="schedule/update",
        schedule_id="report",
        uid="uid-1",
        revision_before=1,
        revision_after=2,
        reason='it\'s "late" — é 😀 \\ %',
        request_id="req-1",
        session_id="s1",
        tool_call_id="call-1",
        parent_schedule_id="digest",
        source="rest",
        changes=[{"field": "name", "before": None, "after": "é"}],
    )
    bench.store.add_audit_entries("acme", [whole, _note("worker/stop")])
    bare, full = bench.store.audit_entries("acme", 9)
    assert replace(full, key=None) == whole
    assert replace(bare, key=None) == _note("worker/stop")
    assert full.key is not None
    assert bare.key is not None
    assert full.key < bare.key


@case
def audit_entries_are_listed_by_schedule(bench: Bench) -> None:
    bench.store.add_audit_entries("acme", [_note(f"{n}", schedule_id=("a", "b", None)[n % 3]) for n in range(6)])
    bench.store.add_audit_entries("other", [_note("theirs", schedule_id="a")])
    assert _told(bench, schedule_id="a") == ["3", "0"]
    assert _told(bench, schedule_id="b", limit=1) == ["4"]
    [newest, _] = bench.store.audit_entries("acme", 9, schedule_id="a")
    assert _told(bench, schedule_id="a", before=newest.key) == ["0"]
    assert _told(bench, schedule_id="c") == []


@case
def audit_entries_that_changed_a_schedule_are_listed_alone(bench: Bench) -> None:
    bench.store.add_audit_entries(
        "acme",
        [
            _note("create", schedule_id="a", revision_after=1, changes=[]),
            _note("run", schedule_id="a", revision_before=1, revision_after=1),
            _note("edit", schedule_id="a", revision_before=1, revision_after=2),
            _note("pause", schedule_id="a", revision_before=2, revision_after=2, changes=[{"field": "phase"}]),
            _note("worker"),
            _note("of b", schedule_id="b", changes=[]),
        ],
    )
    assert _told(bench, schedule_id="a", changes=True) == ["pause", "edit", "create"]
    assert _told(bench, changes=True) == ["of b", "pause", "edit", "create"]
    assert _told(bench, changes=True, limit=1) == ["of b"]


@case
def an_audit_entry_may_contain_any_text(bench: Bench) -> None:
    bench.store.add_audit_entries("acme", [_note("a", caller="\0", reason="half \ud800, and \0", request_id="\0")])
    assert _told(bench) == ["a"]


@case
def a_schedule_is_created_with_its_audit_entry(bench: Bench) -> None:
    plans = [
        replace(
            first_plan(factories.schedule(uid, schedule_id=schedule_id), lookahead=LOOKAHEAD),
            note=_note(f"create {uid}", schedule_id=schedule_id, uid=uid, revision_after=1),
        )
        for uid, schedule_id in (("uid-2", "b"), ("uid-1", "a"), ("uid-3", "a"))
    ]
    assert bench.store.create(plans) == [True, True, False]
    assert sorted(_told(bench)) == ["create uid-1", "create uid-2"]
    [note] = bench.store.audit_entries("acme", 9, schedule_id="a")
    assert (note.uid, note.revision_before, note.revision_after) == ("uid-1", None, 1)


@case
def a_plan_and_its_audit_entry_are_written_together(bench: Bench) -> None:
    schedule = bench.create()
    bench.create("uid-2")
    snapshot = bench.snapshot(schedule)
    pause = replace(edits.pause(snapshot, now=bench.now), note=_note("pause"))
    late = replace(edits.delete(snapshot, now=bench.now), note=_note("delete"))
    assert bench.store.commit_plans([pause, late]) == [True, False]
    assert _told(bench) == ["pause"]
    resume = edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.commit(replace(resume, note=_note("resume")))
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    assert _told(bench) == ["resume", "pause"]


@case
def old_audit_entries_are_pruned(bench: Bench) -> None:
    bench.store.add_audit_entries("acme", [_note(f"{n}", at=NOW + n) for n in range(5)])
    bench.store.add_audit_entries("other", [_note("theirs", at=NOW)])
    assert bench.store.prune_audit_entries(before=NOW, limit=9) == 0
    assert bench.store.prune_audit_entries(before=NOW + 4, limit=3) == 3
    assert _told(bench) == ["4", "3", "2"]
    assert _told(bench, "other") == []
    assert bench.store.prune_audit_entries(before=NOW + 4, limit=9) == 2
    assert _told(bench) == ["4"]
    bench.store.add_audit_entries("acme", [_note("new")])
    assert _told(bench) == ["new", "4"]


@case
def a_key_means_what_it_was_first_used_for(bench: Bench) -> None:
    first = KeyRecord(fingerprint="body", created=NOW)
    assert bench.store.claim_key("acme", "key", "body", now=NOW, lifetime=MINUTE) == first
    assert bench.store.claim_key("acme", "key", "body", now=NOW + 1, lifetime=MINUTE) == first
    assert bench.store.claim_key("acme", "key", "other", now=NOW + MINUTE, lifetime=MINUTE) == first
    theirs = KeyRecord(fingerprint="other", created=NOW + 2)
    assert bench.store.claim_key("other", "key", "other", now=NOW + 2, lifetime=MINUTE) == theirs
    assert bench.store.claim_key("acme", "Key", "other", now=NOW + 2, lifetime=MINUTE) == theirs


@case
def a_key_is_free_again_after_its_lifetime(bench: Bench) -> None:
    bench.store.claim_key("acme", "key", "body", now=NOW, lifetime=MINUTE)
    later = NOW + MINUTE + 1
    fresh = KeyRecord(fingerprint="other", created=later)
    assert bench.store.claim_key("acme", "key", "other", now=later, lifetime=MINUTE) == fresh
    assert bench.store.claim_key("acme", "key", "body", now=later + 1, lifetime=MINUTE) == fresh


@case
def old_keys_are_pruned(bench: Bench) -> None:
    for number in range(5):
        bench.store.claim_key("ab"[number % 2], f"key-{number}", "body", now=NOW + number, lifetime=MINUTE)
    assert bench.store.prune_keys(before=NOW, limit=9) == 0
    assert bench.store.prune_keys(before=NOW + 4, limit=3) == 3
    assert bench.store.prune_keys(before=NOW + 4, limit=9) == 1
    remaining = [
        bench.store.claim_key("ab"[number % 2], f"key-{number}", "new", now=NOW + 9, lifetime=MINUTE)
        for number in range(5)
    ]
    assert [one.fingerprint for one in remaining] == ["new", "new", "new", "new", "body"]
