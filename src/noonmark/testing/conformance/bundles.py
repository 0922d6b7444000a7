"""Bundles are stored in chunks, and are visible once they are complete."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.errors import NotFound, QuotaExceeded
from noonmark.core.ids import is_hidden
from noonmark.core.instants import SECOND
from noonmark.core.planner import first_plan
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.schedule import AuditEntry
from noonmark.core.targets import BundleTarget
from noonmark.ports.bundles import CHUNK, Bundle
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
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
