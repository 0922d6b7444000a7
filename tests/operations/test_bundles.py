"""Bundles: pushes, what they declare, and archives that are refused."""

import io
import json
import stat
import zipfile
from contextlib import contextmanager
from dataclasses import replace

import pytest

from noonmark.core.errors import (
    Conflict,
    InvalidBundle,
    NotAllowed,
    NotFound,
    PayloadTooLarge,
    QuotaExceeded,
)
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.operations.bundles import Intake
from noonmark.operations.service import BundleLimits
from tests.operations.harness import FOREIGN, LOCAL, Harness
from tests.server.packed import SMALLEST, packed

NIGHTLY = {"kind": "periodic", "crons": ["0 2 * * *"], "timezone": "America/New_York"}
UPLOADED = {"name": "dataset-uploaded", "event_type": "file_uploaded", "filters": {"path": {"prefix": "/datasets/"}}}


@pytest.fixture
def harness():
    made = Harness()
    made.service = replace(made.service, bundle_limits=BundleLimits(max_bytes=1_000_000, quota_bytes=2_000_000))
    return made


def push(harness, manifest=None, files=None, *, caller=LOCAL, data=None, bundle_id=None, **options):
    intake = Intake(harness.service, caller, bundle_id)
    try:
        intake.write(packed(manifest, files) if data is None else data)
        return intake.finish("eval.zip", **options)
    finally:
        intake.drop()


def actions(pushed):
    return {one["schedule_id"]: one["action"] for one in (*pushed["schedules"], *pushed["triggers"])}


def test_a_push_makes_a_bundle_and_announces_it(harness):
    pushed = push(harness)
    assert (pushed["bundle_id"], pushed["name"], pushed["files"]) == ("eval", "eval", 2)
    assert (pushed["schedules"], pushed["triggers"]) == ([], [])
    got = harness("bundle/get", bundle_id="eval")
    assert (got["manifest"], got["digest"], got["schedules"]) == (SMALLEST, pushed["digest"], [])
    assert [one["digest"] for one in got["versions"]] == [pushed["digest"]]
    [event] = harness("event/list", event_type="bundle_uploaded")["events"]
    assert (event["event_id"], event["source"]) == (pushed["event_id"], "bundle")
    assert event["payload"] == {
        "bundle_id": "eval",
        "name": "eval",
        "digest": pushed["digest"],
        "size": pushed["size"],
        "files": 2,
        "filename": "eval.zip",
    }
    assert [one["operation"] for one in harness("audit/list")["entries"]] == ["bundle/push"]


def test_the_schedules_of_a_manifest_follow_its_pushes(harness):
    manifest = {**SMALLEST, "schedule": NIGHTLY, "triggers": [UPLOADED]}
    created = actions(push(harness, manifest))
    assert created == {"eval.schedule": "created", "eval.trigger.dataset-uploaded": "created"}
    assert set(actions(push(harness, manifest, {"more.txt": "x"})).values()) == {"unchanged"}
    assert harness("schedule/count")["count"] == len(created)
    changed = {**manifest, "schedule": {**NIGHTLY, "crons": ["0 3 * * *"]}, "triggers": []}
    harness("schedule/pause", schedule_id="eval.schedule")
    assert actions(push(harness, changed)) == {
        "eval.schedule": "updated",
        "eval.trigger.dataset-uploaded": "deleted",
    }
    [left] = harness("schedule/list")["schedules"]
    assert left["trigger"]["expression"] == "0 3 * * *"
    assert (left["phase"], left["labels"]) == ("paused", {"noonmark.bundle": "eval"})
    assert harness("bundle/get", bundle_id="eval")["schedules"] == ["eval.schedule"]
    assert actions(push(harness, {**changed, "schedule": NIGHTLY}, declares=False)) == {}
    assert harness("schedule/get", schedule_id="eval.schedule")["trigger"]["expression"] == "0 3 * * *"


def test_a_delay_counts_from_the_first_push(harness):
    manifest = {**SMALLEST, "schedule": {"kind": "delayed", "delay_ms": 60_000}}
    push(harness, manifest)
    due = harness("schedule/get", schedule_id="eval.schedule")["trigger"]["due_at_utc"]
    harness.clock.advance(3_600)
    assert actions(push(harness, manifest)) == {"eval.schedule": "unchanged"}
    assert harness("schedule/get", schedule_id="eval.schedule")["trigger"]["due_at_utc"] == due


def test_a_manifest_does_not_take_the_schedule_of_somebody_else(harness):
    harness.create(schedule_id="eval.schedule")
    with pytest.raises(Conflict, match="does not belong") as caught:
        push(harness, {**SMALLEST, "schedule": NIGHTLY})
    assert caught.value.field == "schedule"
    assert harness("bundle/list")["bundles"] == []
    assert harness.service.store.bundle_bytes("default") == 0


def test_the_newest_push_runs_and_a_used_bundle_is_not_deleted(harness):
    first = push(harness)
    second = push(harness, files={"job.py": "print(2)"})
    assert first["digest"] != second["digest"]
    assert harness("bundle/get", bundle_id="eval")["digest"] == second["digest"]
    harness.create(schedule_id="nightly", target=second["target"])
    harness.create(schedule_id="pinned", target={"target_kind": "bundle", "digest": first["digest"]})
    with pytest.raises(Conflict, match="nightly, pinned"):
        harness("bundle/delete", bundle_id="eval")
    for one in ("nightly", "pinned"):
        harness("schedule/delete", schedule_id=one)
    harness("bundle/delete", bundle_id="eval")
    with pytest.raises(NotFound):
        harness("bundle/get", bundle_id="eval")


def test_a_schedule_asks_for_what_its_bundle_needs_of_a_node(harness):
    needs = {"labels": {"gpu": "a100"}, "slots": 2}
    push(harness, {**SMALLEST, "resources": {**needs, "cpus": 1}})
    push(harness, {**SMALLEST, "name": "plain"})
    target = {"target_kind": "bundle", "bundle_id": "eval"}
    schedule = harness.create(schedule_id="nightly", target={**target, "bundle_id": "plain"})
    assert schedule["target"] == {**target, "bundle_id": "plain"}
    changed = harness("schedule/update", schedule_id="nightly", target=target)
    assert changed["target"] == {**target, **needs}
    own = harness("schedule/update", schedule_id="nightly", target={**target, "labels": {"gpu": "h100"}})
    assert own["target"] == {**target, "labels": {"gpu": "h100"}, "slots": 2}
    followed = harness.create(schedule_id="followed", target=target)
    push(harness, {**SMALLEST, "resources": {"slots": 1}})
    moved = [harness("schedule/get", schedule_id=one)["target"] for one in ("nightly", followed["schedule_id"])]
    assert moved == [own["target"], {**target, "slots": 1}], "what a schedule says itself stays"


def test_a_run_without_a_schedule_is_a_manual_occurrence(harness):
    push(harness, {**SMALLEST, "resources": {"labels": {"gpu": "a100"}}})
    answer = harness("bundle/run", bundle_id="eval", payload={"n": 1}, key="k")
    again = harness("bundle/run", bundle_id="eval", payload={"n": 1}, key="k")
    assert (answer["occurrence_id"], answer["phase"]) == (again["occurrence_id"], "pending")
    stored = harness.service.store.occurrence(answer["occurrence_id"])
    assert (stored.route, stored.payload) == ("bundle:gpu=a100", {"n": 1})


def test_bundles_belong_to_a_tenant(harness):
    push(harness)
    for operation in ("bundle/get", "bundle/delete", "bundle/run"):
        with pytest.raises(NotFound):
            harness(operation, caller=FOREIGN, bundle_id="eval")
    push(harness, caller=FOREIGN, files={"job.py": "theirs"})
    assert harness("bundle/list", caller=FOREIGN)["bundles"] != harness("bundle/list")["bundles"]


def test_a_page_of_bundles_continues_after_its_cursor(harness):
    for name in ("b", "a", "c"):
        push(harness, bundle_id=name)
    page = harness("bundle/list", limit=2)
    assert ([one["bundle_id"] for one in page["bundles"]], page["next_cursor"]) == (["a", "b"], "b")
    assert [one["bundle_id"] for one in harness("bundle/list", cursor="b")["bundles"]] == ["c"]


def test_bundles_are_taken_only_where_they_are_allowed(harness):
    push(harness)
    harness.service = replace(harness.service, bundle_limits=None)
    for refused in (lambda: push(harness), lambda: harness("bundle/run", bundle_id="eval")):
        with pytest.raises(NotAllowed, match="--allow-bundles"):
            refused()


def test_a_tenant_may_be_kept_from_bundles(harness):
    commands = {"default": frozenset({"python", "bundle:eval"})}
    harness.service = replace(harness.service, permissions=TargetPermissions(commands=commands))
    push(harness)
    with pytest.raises(NotAllowed, match="--tenant-commands"):
        push(harness, {**SMALLEST, "name": "other"})
    with pytest.raises(NotAllowed, match="--tenant-commands"):
        harness.create(target={"target_kind": "bundle", "bundle_id": "other"})


def test_sizes_are_limited(harness):
    with pytest.raises(PayloadTooLarge):
        push(harness, data=bytes(range(256)) * 8_000)
    store = harness.service.store
    assert store.bundle_bytes("default") == 0
    harness.service = replace(harness.service, bundle_limits=BundleLimits(max_bytes=1_000_000, quota_bytes=500))
    push(harness)
    with pytest.raises(QuotaExceeded):
        push(harness, files={"job.py": "print(1)"}, bundle_id="second")
    assert [one["bundle_id"] for one in harness("bundle/list")["bundles"]] == ["eval"]


@contextmanager
def zipped():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", json.dumps(SMALLEST))
        yield archive, stream


def with_entry(name, content="x", mode=0o100644):
    with zipped() as (archive, stream):
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, content)
    return stream.getvalue()


def encrypted():
    data = bytearray(with_entry("secret.txt"))
    for signature, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = data.rindex(signature)
        data[at + offset] |= 1
    return bytes(data)


def with_many(count):
    with zipped() as (archive, stream):
        for number in range(count):
            archive.writestr(zipfile.ZipInfo(f"f{number}"), b"")
    return stream.getvalue()


HOSTILE = {
    "../evil": with_entry("../../evil"),
    "/etc/passwd": with_entry("/etc/passwd"),
    "C:/evil": with_entry("C:/evil"),
    "a\\\\b": with_entry("a\\b"),
    "link": with_entry("link", "/etc/passwd", stat.S_IFLNK | 0o777),
    "device": with_entry("device", "", stat.S_IFCHR),
    "JOB.PY": packed(files={"JOB.PY": "another"}),
    "bomb": with_entry("bomb", b"\0" * 20_000_000),
    "secret.txt": encrypted(),
    "x" * 40: with_entry("x" * 300),
    "nul": with_entry("nulXjs").replace(b"nulXjs", b"nul\0js"),
    "entries": with_many(10_001),
    "not a zip": b"PK not a zip file, really",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_the_name_of_its_entry(harness, name):
    with pytest.raises(InvalidBundle) as caught:
        push(harness, data=HOSTILE[name])
    assert name in f"{caught.value}"
    assert harness.service.store.bundle_bytes("default") == 0
    assert harness("bundle/list")["bundles"] == []


def test_every_fault_of_a_manifest_is_reported_at_once(harness):
    manifest = {"command": [], "schedule": {"crons": ["x"]}, "wat": 1}
    with pytest.raises(InvalidBundle) as caught:
        push(harness, manifest)
    assert {one.field for one in caught.value.problems} == {"name", "command", "schedule.trigger.crons[0]", "wat"}
    with pytest.raises(InvalidBundle, match="is in the past") as caught:
        push(harness, {**SMALLEST, "schedule": {"run_at": "2020-01-01T00:00:00Z"}})
    assert caught.value.field == "schedule.trigger.due_at_utc"
    with pytest.raises(InvalidBundle, match="registered"):
        push(harness, {"name": "f", "function": "os:system"})
