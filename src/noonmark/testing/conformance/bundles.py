"""Bundles are stored in chunks, and are visible once they are complete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.errors import NotFound, QuotaExceeded
from noonmark.core.ids import is_hidden
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import PinnedBundle, in_force
from noonmark.core.planner import first_plan
from noonmark.core.policies.overlap import Allow
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Suspended, settle
from noonmark.core.targets import BundleTarget
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun
from noonmark.ports.bundles import CHUNK, Bundle
from noonmark.ports.workflows import StepWrites
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, case, start
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

DIGEST = "0f" * 32
OTHER = "1e" * 32
EVAL = Bundle(
    tenant="acme",
    bundle_id="eval",
    digest=DIGEST,
    manifest={"name": "eval", "command": ["é"]},
    size=CHUNK + 3,
    files=2,
    content_id="c1",
    user="ada",
    source="rest",
    created=0,
    pushed=0,
)
NOTE = AuditEntry(at=NOW, caller="ada", operation="bundle/push")
FIRST = PinnedBundle(bundle_id="eval", digest=DIGEST)
DATA = (bytes(range(256)) * (CHUNK // 256), b"end")


def _push(bench: Bench, bundle: Bundle = EVAL, data: tuple[bytes, ...] = DATA) -> Bundle:
    for number, chunk in enumerate(data):
        bench.store.add_bundle_chunk(bundle.tenant, bundle.content_id, number, chunk)
    kept = bench.store.keep_bundle(bundle, note=NOTE)
    assert kept is not None
    return kept


def _use(bench: Bench, uid: str, target: BundleTarget) -> str:
    schedule = factories.schedule(uid, target=target)
    if is_hidden(uid):
        schedule = replace(schedule, schedule_id=uid)
    assert bench.store.create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
    return schedule.schedule_id


@case
def a_bundle_is_visible_once_it_is_kept(bench: Bench) -> None:
    store = bench.store
    for number, chunk in enumerate(DATA):
        store.add_bundle_chunk("acme", "c1", number, chunk)
    assert store.find_bundle("acme", "eval") is None
    assert store.bundles("acme", 9) == []
    assert store.bundle_bytes("acme") == len(DATA[0]) + len(DATA[1])
    kept = store.keep_bundle(EVAL, note=NOTE)
    assert kept == replace(EVAL, created=NOW, pushed=NOW)
    assert kept.chunks == len(DATA)
    assert store.find_bundle("acme", "eval") == store.find_bundle("acme", digest=DIGEST) == kept
    assert store.bundles("acme", 9) == store.bundle_versions("acme", "eval", 9) == [kept]
    chunks = [store.bundle_chunk("acme", kept.content_id, number) for number in range(3)]
    assert chunks == [*DATA, None]
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["bundle/push"]


@case
def bundles_belong_to_a_tenant(bench: Bench) -> None:
    store = bench.store
    _push(bench)
    assert store.find_bundle("other", "eval") is None
    assert store.find_bundle("other", digest=DIGEST) is None
    assert store.bundle_chunk("other", "c1", 0) is None
    assert store.bundle_versions("other", "eval", 9) == store.bundles("other", 9) == []
    assert store.delete_bundle("other", "eval") is None
    theirs = _push(bench, replace(EVAL, tenant="other"))
    assert store.find_bundle("other", "eval") == theirs
    assert store.bundle_bytes("other") == EVAL.size


@case
def the_newest_push_of_an_id_counts(bench: Bench) -> None:
    store = bench.store
    first = _push(bench)
    second = _push(bench, replace(EVAL, digest=OTHER, content_id="c2", workflow_version=3), (b"two",))
    assert second.pushed > first.pushed
    assert store.find_bundle("acme", "eval") == second
    assert store.find_bundle("acme", "eval", digest=DIGEST) == first
    assert store.bundle_versions("acme", "eval", 9) == [second, first]
    _push(bench, replace(EVAL, bundle_id="a", content_id="c3"))
    assert [one.bundle_id for one in store.bundles("acme", 9)] == ["a", "eval"]
    assert store.bundles("acme", 1) == store.bundles("acme", 9)[:1]
    assert store.bundles("acme", 9, after="a") == [second]


@case
def the_same_archive_again_is_the_same_bundle(bench: Bench) -> None:
    store = bench.store
    first = _push(bench)
    _push(bench, replace(EVAL, digest=OTHER, content_id="c2"), (b"two",))
    bench.clock.now += SECOND
    again = _push(bench, replace(EVAL, content_id="c3", user="bob"))
    assert again == replace(first, pushed=NOW + SECOND, user="bob")
    assert store.find_bundle("acme", "eval") == again
    assert store.bundle_chunk("acme", "c3", 0) is None
    assert store.bundle_chunk("acme", again.content_id, 0) == DATA[0]
    assert len(store.bundle_versions("acme", "eval", 9)) == len((first, again))


@case
def a_push_can_be_dropped_until_it_is_kept(bench: Bench) -> None:
    store = bench.store
    store.add_bundle_chunk("acme", "c1", 0, b"x")
    store.drop_bundle_push("acme", "c1")
    store.drop_bundle_push("acme", "c1")
    assert store.bundle_chunk("acme", "c1", 0) is None
    assert store.keep_bundle(EVAL, note=NOTE) is None
    assert store.audit_entries("acme", 9) == []
    kept = _push(bench)
    store.drop_bundle_push("acme", "c1")
    assert store.find_bundle("acme", "eval") == kept
    assert store.keep_bundle(EVAL) is None
    for content_id in ("c1", "c2"):
        try:
            store.add_bundle_chunk("acme", content_id, 2, b"x")
        except NotFound:
            continue
        raise AssertionError(content_id)


@case
def the_bytes_of_a_tenant_are_limited(bench: Bench) -> None:
    store, quota = bench.store, Quota(Resource.BUNDLE_BYTES, Scope.TENANT, 5)
    store.add_bundle_chunk("acme", "c1", 0, b"123", limits=[quota])
    try:
        store.add_bundle_chunk("acme", "c1", 1, b"456", limits=[quota])
    except QuotaExceeded as error:
        assert error.limit == {"name": "bundle_bytes", "scope": "tenant", "value": 5, "used": 3}  # noqa: PT017 - no pytest here
    else:
        raise AssertionError("it was stored")
    assert store.bundle_chunk("acme", "c1", 1) is None
    store.add_bundle_chunk("acme", "c1", 1, b"45", limits=[quota])
    store.add_bundle_chunk("other", "c1", 0, b"456", limits=[quota])
    assert (store.bundle_bytes("acme"), store.bundle_bytes("nobody")) == (5, 0)


@case
def a_bundle_that_schedules_name_is_not_deleted(bench: Bench) -> None:
    store = bench.store
    _push(bench)
    users = [
        _use(bench, "by-id", BundleTarget(bundle_id="eval", labels={"gpu": "a100"})),
        _use(bench, "by-digest", BundleTarget(digest=DIGEST)),
    ]
    _use(bench, "elsewhere", BundleTarget(bundle_id="other"))
    assert store.delete_bundle("acme", "eval", note=NOTE) == sorted(users)
    assert store.find_bundle("acme", "eval") is not None
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["bundle/push"]


@case
def a_deleted_bundle_is_gone(bench: Bench) -> None:
    store = bench.store
    first = _push(bench)
    _push(bench, replace(EVAL, digest=OTHER, content_id="c2"), (b"two",))
    _use(bench, "~bundle:eval", BundleTarget(bundle_id="eval"))  # it has run without a schedule
    assert store.delete_bundle("acme", "eval", note=NOTE) == []
    assert store.delete_bundle("acme", "eval", note=NOTE) is None
    assert store.find_bundle("acme", digest=DIGEST) is None
    assert store.bundle_chunk("acme", first.content_id, 0) is None
    assert store.bundle_bytes("acme") == 0
    assert [entry.operation for entry in store.audit_entries("acme", 9)] == ["bundle/push"] * 3


@case
def old_content_is_pruned_unless_something_needs_it(bench: Bench) -> None:
    store = bench.store
    for name in ("a", "b", "c"):
        _push(bench, replace(EVAL, digest=name * 64, content_id=name), (name.encode(),))
    store.add_bundle_chunk("acme", "unfinished", 0, b"x")
    _use(bench, "pinned", BundleTarget(digest="a" * 64))
    bench.clock.now += SECOND
    assert store.prune_bundles(before=NOW, unfinished_before=NOW, limit=9) == 0
    later = NOW + SECOND
    assert store.prune_bundles(before=NOW, unfinished_before=later, limit=9) == 1
    assert store.bundle_chunk("acme", "unfinished", 0) is None
    assert store.prune_bundles(before=later, unfinished_before=NOW, limit=9) == 1
    assert [one.content_id for one in store.bundle_versions("acme", "eval", 9)] == ["c", "a"]
    assert store.bundle_chunk("acme", "b", 0) is None
    assert store.prune_bundles(before=later, unfinished_before=later, limit=9) == 0


@case
def an_occurrence_keeps_the_archive_that_it_began_with(bench: Bench) -> None:
    store = bench.store
    _push(bench)
    schedule = bench.create_quiet(target=BundleTarget(bundle_id="eval"), overlap_policy=Allow())
    first = _run(bench, schedule, "a")
    assert first.bundle == bench.row(first).bundle == FIRST
    other = replace(EVAL, digest=OTHER, content_id="c2", workflow_version=3)
    _push(bench, other, (b"two",))
    assert bench.retry(first, bench.now)
    again = _start(bench)
    assert (again.id, again.attempt, again.bundle) == (first.id, 2, FIRST)
    bench.advance(LEASE)
    third = _start(bench)
    assert (third.id, third.losses, third.bundle) == (first.id, 1, FIRST)
    newer = _run(bench, schedule, "b")
    assert newer.bundle == PinnedBundle(bundle_id="eval", digest=OTHER, is_workflow=True)
    pinned = bench.create_quiet("by-digest", target=BundleTarget(digest=DIGEST))
    assert _run(bench, pinned, "c").bundle == FIRST
    unknown = bench.create_quiet("unknown", target=BundleTarget(bundle_id="missing"))
    lost = _run(bench, unknown, "d")
    assert lost.overrides is None
    assert bench.retry(lost, bench.now)
    _push(bench, replace(EVAL, bundle_id="missing", content_id="c4"))
    found = _start(bench)
    assert found.bundle == PinnedBundle(bundle_id="missing", digest=DIGEST), "it has run nothing before"
    snapshot = bench.snapshot(schedule)
    changed = replace(snapshot.schedule.declaration, target=BundleTarget(bundle_id="missing"))
    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.retry(third, bench.now)
    assert _start(bench).bundle == found.bundle, "its schedule names another bundle now"
    assert store.find_bundle("acme", "eval", digest=DIGEST) is not None


@case
def an_archive_is_there_until_what_began_with_it_has_ended(bench: Bench) -> None:
    store = bench.store
    _push(bench)
    schedule = bench.create_quiet(target=BundleTarget(bundle_id="eval"))
    begun = _run(bench, schedule, "a")
    _push(bench, replace(EVAL, digest=OTHER, content_id="c2"), (b"two",))
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    bench.advance(SECOND)
    later = bench.now
    assert store.prune_bundles(before=later, unfinished_before=later, limit=9) == 0
    assert store.delete_bundle("acme", "eval", note=NOTE) == [begun.id]
    assert store.delete_bundle("acme", "eval", note=NOTE) == [begun.id]
    assert bench.settle(begun)
    assert store.prune_bundles(before=later, unfinished_before=later, limit=9) == 1
    assert [one.digest for one in store.bundle_versions("acme", "eval", 9)] == [OTHER]
    assert store.delete_bundle("acme", "eval", note=NOTE) == []


@case
def an_occurrence_that_waits_for_resources_has_a_reason_and_no_run(bench: Bench) -> None:
    _push(bench)
    schedule = bench.create_quiet(target=BundleTarget(bundle_id="eval"))
    begun, later = _run(bench, schedule, "a"), bench.now + SECOND
    short = Suspended(
        started=bench.now,
        ended=bench.now,
        until=later,
        waiting_for=Reason.RESOURCES_SHORT,
        open_steps=frozenset(),
        error="0 of 1 slots are free",
    )
    assert bench.store.settle([settle(begun, schedule, short, node="node-a")]) == [True]
    row = bench.row(begun)
    assert (row.phase, row.reason, row.waiting_for) == (Phase.PENDING, Reason.RESOURCES_SHORT, Reason.RESOURCES_SHORT)
    assert (row.attempt, row.has_begun, row.is_suspended) == (0, True, False)
    assert row.detail == '{"problem": "0 of 1 slots are free"}'
    assert bench.store.occurrence_runs(begun.id) == []
    assert bench.claim(routes=["bundle"]) == []
    bench.advance(SECOND)
    again = _start(bench)
    assert (again.attempt, again.waiting_for, again.bundle) == (1, None, FIRST)
    assert bench.store.settle([settle(again, schedule, replace(short, until=None), node="node-a")]) == [True]
    assert bench.store.cancel(begun.id)
    assert bench.row(begun).phase is Phase.CANCELLED


@case
def a_workflow_of_a_bundle_that_has_begun_is_asked_to_stop(bench: Bench) -> None:
    _push(bench, replace(EVAL, workflow_version=1))
    schedule = bench.create_quiet(target=BundleTarget(bundle_id="eval"), overlap_policy=Allow())
    runs = []
    for key in ("a", "b"):
        begun = _run(bench, schedule, key)
        run = WorkflowRun(occurrence_id=begun.id, workflow_id="eval", version=1, inputs={}, started=bench.now)
        step = StepRecord(step_id="load", phase=StepPhase.RUNNING, attempt=1, started=NOW, is_external=True)
        writes = StepWrites(occurrence_id=begun.id, fence=begun.fence, run=run, steps=[step])
        assert bench.store.commit_steps([writes]) == [True]
        waits = Suspended(
            started=bench.now,
            ended=bench.now,
            until=None,
            waiting_for=Reason.STEP_PENDING,
            open_steps=frozenset({("load", None)}),
        )
        assert bench.store.settle([settle(begun, schedule, waits, node="node-a")]) == [True]
        runs.append(begun)
    assert bench.claim(routes=["bundle"]) == []
    assert bench.store.cancel(runs[0].id)
    assert bench.store.request_stop(runs[1].id)
    stopped = [bench.decide(replace(start(one), takes_slot=False)) for one in bench.claim(routes=["bundle"])]
    assert {one.id: one.stop for one in stopped} == {one.id: Reason.CANCELLED for one in runs}
    for one in stopped:
        assert bench.settle(one, phase=Phase.CANCELLED, reason=Reason.CANCELLED)
        found = bench.store.workflow_run(one.id)
        assert found is not None
        assert found[1][0].phase is StepPhase.CANCELLED, "nothing of it is open any more"


def _run(bench: Bench, of: Schedule, key: str) -> Occurrence:
    """Add and start an occurrence of a bundle; nothing else may be due."""
    bench.add(of, key, bench.now - NOW)
    return _start(bench)


def _start(bench: Bench) -> Occurrence:
    [claim] = bench.claim(routes=["bundle"])
    claim = replace(claim, schedule=in_force(claim.schedule, claim.occurrence))
    takes_slot = not isinstance(claim.schedule.declaration.overlap_policy, Allow) and not claim.occurrence.holds_slot
    return bench.decide(replace(start(claim), takes_slot=takes_slot))
