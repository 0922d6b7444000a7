"""Schedules are created once, declared again, updated, paused, resumed and deleted."""

import pytest

from noonmark.core.admission import admit
from noonmark.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSchedule,
    KeyReused,
    MethodNotFound,
    NotAllowed,
    NotFound,
    RevisionConflict,
)
from noonmark.core.instants import SECOND
from noonmark.core.settlement import Accepted, settle
from noonmark.operations.schedules import RESERVED_IDS, create_schedule
from noonmark.ports.records import Lease
from tests.embedded.waiting import NEVER
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, REPORT, Harness


@pytest.fixture
def harness():
    return Harness()


WORKFLOW = {"target_kind": "workflow", "workflow_id": "wf_1", "version": 1}


class TestCreating:
    def test_what_is_told_is_what_was_declared_and_what_comes_of_it(self, harness):
        schedule = harness.create(name="nightly", labels={"team": "a"})
        assert schedule == schedule | {
            "name": "nightly",
            "labels": {"team": "a"},
            "target": schedule["target"] | REPORT,
            "phase": "active",
            "revision": 1,
            "owner": {"tenant": "default", "user": "local"},
            "source": "rest",
            "next_run_at": "2026-03-01T12:01:00Z",
            "last_run_at": None,
            "last_phase": None,
            "counters": {"total": 0, "successful": 0, "failed": 0, "missed": 0, "skipped": 0},
            "created_at_utc": "2026-03-01T12:00:00Z",
            "deleted_at_utc": None,
        }
        assert schedule["next_fire_times"] == [f"2026-03-01T12:0{minute}:00Z" for minute in (1, 2, 3, 4, 5)]
        assert harness("schedule/get", schedule_id=schedule["schedule_id"]) == schedule

    def test_names_are_not_unique_but_ids_are(self, harness):
        ids = {harness.create(name="twice")["schedule_id"] for _ in range(2)}
        assert len(ids) == 2
        harness.create(schedule_id="mine")
        with pytest.raises(Conflict) as refused:
            harness.create(schedule_id="mine")
        assert refused.value.field == "schedule_id"

    def test_the_admin_may_name_whose_it_is(self, harness):
        assert harness.create(user_id="ann")["owner"]["user"] == "ann"

    @pytest.mark.parametrize(
        "field", ["phase", "revision", "owner", "source", "counters", "next_run_at", "created_at_utc", "uid"]
    )
    def test_what_only_the_service_says_is_refused(self, harness, field):
        with pytest.raises(InvalidSchedule) as refused:
            harness.create(**{field: "x"})
        assert refused.value.field == field

    @pytest.mark.parametrize("schedule_id", RESERVED_IDS)
    @pytest.mark.parametrize("name", ["create", "upsert"])
    def test_an_id_that_no_path_reaches_is_refused(self, harness, name, schedule_id):
        with pytest.raises(InvalidSchedule) as refused:
            harness(f"schedule/{name}", schedule_id=schedule_id, trigger=EVERY_MINUTE, target=REPORT)
        assert refused.value.field == "schedule_id"

    def test_a_function_by_its_module_is_refused(self, harness):
        with pytest.raises(InvalidSchedule) as refused:
            harness.create(target={"target_kind": "function", "function": "os:system"})
        assert refused.value.field == "target.function"

    def test_fires_end_with_the_runs_that_are_left(self, harness):
        assert len(harness.create(max_runs=2)["next_fire_times"]) == 2


class TestKeys:
    def test_the_same_request_again_gives_the_same_schedule(self, harness):
        ids = {harness.create(name="once", idempotency_key="k1")["schedule_id"] for _ in range(3)}
        ids |= {harness.create(name="once", description=None, idempotency_key="k1")["schedule_id"]}
        assert len(ids) == 1
        assert len(harness("schedule/list")["schedules"]) == 1

    @pytest.mark.parametrize("store", ["memory://", "sqlite:///{}/noonmark.db"])
    def test_copies_of_a_request_at_the_same_time_get_the_same_schedule(self, tmp_path, store):
        service = Harness(store.format(tmp_path)).service
        request = {"trigger": EVERY_MINUTE, "target": REPORT, "idempotency_key": "k1"}
        copies = [create_schedule(service, LOCAL, request) for _ in range(2)]
        plans = [next(one) for one in copies]
        answers = []
        for copy, plan in zip(copies, plans, strict=True):
            with pytest.raises(StopIteration) as ended:
                copy.send(*service.store.create([plan]))
            answers.append(ended.value.value["schedule_id"])
        assert answers == [one.schedule.schedule_id for one in service.store.schedules("default", limit=9)] * 2

    def test_another_request_under_it_is_refused(self, harness):
        harness.create(name="once", idempotency_key="k1")
        with pytest.raises(KeyReused):
            harness.create(name="another", idempotency_key="k1")

    def test_after_a_day_it_means_nothing_any_more(self, harness):
        first = harness.create(name="once", idempotency_key="k1")
        harness.clock.advance(24 * 3_600 + 1)
        assert harness.create(name="once", idempotency_key="k1")["schedule_id"] != first["schedule_id"]

    def test_after_a_delete_the_request_is_known_to_have_been_carried_out(self, harness):
        schedule = harness.create(name="once", idempotency_key="k1")
        harness("schedule/delete", schedule_id=schedule["schedule_id"])
        again = harness.create(name="once", idempotency_key="k1")
        assert (again["schedule_id"], again["phase"]) == (schedule["schedule_id"], "deleted")

    def test_what_has_its_id_now_is_not_what_it_made(self, harness):
        harness.create(schedule_id="s", idempotency_key="k1")
        harness("schedule/delete", schedule_id="s")
        harness.create(schedule_id="s")
        with pytest.raises(Conflict, match="another has its id"):
            harness.create(schedule_id="s", idempotency_key="k1")

    def test_a_request_that_is_refused_has_not_used_its_key(self, harness):
        with pytest.raises(InvalidSchedule):
            harness.create(trigger={"type": "cron", "expression": "99 * * * *"}, idempotency_key="k1")
        assert harness.create(idempotency_key="k1")["phase"] == "active"

    def test_tenants_have_their_own(self, harness):
        first = harness.create(name="once", idempotency_key="k1")
        other = harness.create(name="else", idempotency_key="k1", caller=FOREIGN)
        assert first["schedule_id"] != other["schedule_id"]


class TestUpserting:
    def test_the_same_again_changes_nothing(self, harness):
        first = harness("schedule/upsert", schedule_id="s1", trigger=EVERY_MINUTE, target=REPORT)
        harness.clock.advance(30)
        again = harness("schedule/upsert", schedule_id="s1", trigger=EVERY_MINUTE, target=REPORT)
        assert (again["revision"], again["next_run_at"]) == (1, first["next_run_at"])

    def test_another_trigger_is_another_revision(self, harness):
        harness("schedule/upsert", schedule_id="s1", trigger=EVERY_MINUTE, target=REPORT)
        again = harness(
            "schedule/upsert", schedule_id="s1", trigger={"type": "cron", "expression": "@daily"}, target=REPORT
        )
        assert (again["revision"], again["next_run_at"]) == (2, "2026-03-02T00:00:00Z")

    def test_it_is_known_by_its_owner_and_its_workflow(self, harness):
        def declare(user):
            return harness("schedule/upsert", trigger=EVERY_MINUTE, target=WORKFLOW, user_id=user)["schedule_id"]

        assert declare("ann") == declare("ann")
        assert declare("ann") != declare("bob")

    def test_it_never_ends_a_pause(self, harness):
        harness("schedule/upsert", schedule_id="s1", trigger=EVERY_MINUTE, target=REPORT)
        harness("schedule/pause", schedule_id="s1")
        again = harness(
            "schedule/upsert", schedule_id="s1", trigger={"type": "cron", "expression": "@daily"}, target=REPORT
        )
        assert (again["phase"], again["revision"]) == ("paused", 2)

    def test_a_bad_value_is_refused_although_it_would_not_change_the_schedule(self, harness):
        declared = {"schedule_id": "s1", "trigger": EVERY_MINUTE, "target": REPORT}
        harness("schedule/upsert", **declared)
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/upsert", **declared, enabled={})
        assert refused.value.field == "enabled"

    def test_without_anything_to_know_it_by_it_is_refused(self, harness):
        with pytest.raises(InvalidRequest) as refused:
            harness("schedule/upsert", trigger=EVERY_MINUTE, target=REPORT)
        assert refused.value.field == "schedule_id"


class TestUpdating:
    def test_labels_keep_the_revision_and_a_trigger_does_not(self, harness):
        schedule = harness.create()
        relabelled = harness("schedule/update", schedule_id=schedule["schedule_id"], labels={"a": "b"})
        assert (relabelled["revision"], relabelled["labels"]) == (1, {"a": "b"})
        moved = harness(
            "schedule/update", schedule_id=schedule["schedule_id"], trigger={"type": "cron", "expression": "@daily"}
        )
        assert (moved["revision"], moved["labels"], moved["next_run_at"]) == (2, {"a": "b"}, "2026-03-02T00:00:00Z")

    def test_null_takes_a_field_back(self, harness):
        schedule = harness.create(name="named", max_runs=3)
        changed = harness("schedule/update", schedule_id=schedule["schedule_id"], name=None, max_runs=None)
        assert (changed["name"], changed.get("max_runs")) == (None, None)

    def test_a_default_policy_follows_the_kind_of_trigger(self, harness):
        schedule = harness.create()
        assert schedule["overlap_policy"] == "skip"
        event = {"type": "event", "event_type": "seen"}
        changed = harness("schedule/update", schedule_id=schedule["schedule_id"], trigger=event)
        assert changed["overlap_policy"] == {"type": "queue", "queue_limit": 10_000}

    def test_only_the_revision_that_was_read_is_changed(self, harness):
        schedule = harness.create()
        with pytest.raises(RevisionConflict) as refused:
            harness("schedule/update", schedule_id=schedule["schedule_id"], expected_revision=2, max_runs=3)
        assert refused.value.field == "expected_revision"
        assert (
            harness("schedule/update", schedule_id=schedule["schedule_id"], expected_revision=1, max_runs=3)["revision"]
            == 2
        )

    def test_only_what_was_read_is_changed(self, harness):
        schedule = harness.create()
        harness.clock.advance(1)
        read = {"schedule_id": schedule["schedule_id"], "expected_updated_at_utc": schedule["updated_at_utc"]}
        renamed = harness("schedule/update", name="mine", **read)
        assert renamed["revision"] == schedule["revision"]
        for name in ("update", "pause", "resume", "delete"):
            with pytest.raises(RevisionConflict) as refused:
                harness(f"schedule/{name}", **read, **({"name": "theirs"} if name == "update" else {}))
            assert refused.value.field == "expected_updated_at_utc"

    def test_enabled_pauses_and_resumes(self, harness):
        schedule = harness.create()
        phases = [
            harness("schedule/update", schedule_id=schedule["schedule_id"], enabled=enabled)["phase"]
            for enabled in (False, False, True, None)
        ]
        assert phases == ["paused", "paused", "active", "active"]

    def test_the_document_that_was_told_changes_nothing(self, harness):
        schedule = harness.create(name="same", labels={"a": "b"}, max_runs=7)
        told = {field: schedule[field] for field in ("name", "labels", "trigger", "target", "max_runs", "enabled")}
        again = harness("schedule/update", schedule_id=schedule["schedule_id"], **told)
        assert again | {"updated_at_utc": ""} == schedule | {"updated_at_utc": ""}

    @pytest.mark.parametrize("field", ["nonsense", "phase", "owner", "user_id"])
    def test_other_fields_are_refused(self, harness, field):
        schedule = harness.create()
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/update", schedule_id=schedule["schedule_id"], **{field: "x"})
        assert refused.value.field == field

    def test_a_function_by_its_module_stays_but_does_not_come(self, harness):
        harness.scheduler.schedule(print, name="ours")
        stored = drive_id(harness)
        harness("schedule/update", schedule_id=stored, labels={"a": "b"})
        with pytest.raises(NotAllowed):
            harness("schedule/update", schedule_id=stored, target={"target_kind": "function", "function": "os:system"})
        theirs = harness.create()["schedule_id"]
        with pytest.raises(InvalidSchedule) as refused:
            harness("schedule/update", schedule_id=theirs, target={"target_kind": "function", "function": "os:system"})
        assert refused.value.field == "target.function"

    def test_what_a_program_starts_is_not_for_others_to_change(self, harness):
        stored = harness.scheduler.schedule_command(["backup", "--full"], name="ours", env={"A": "1"})
        for target in (
            {"target_kind": "command", "argv": ["sh"]},
            {"target_kind": "command", "argv": ["backup", "--full"], "env": {"A": "1", "LD_PRELOAD": "x"}},
            {"target_kind": "http", "url": "http://169.254.169.254/"},
        ):
            with pytest.raises(NotAllowed, match="only a program can") as refused:
                harness("schedule/update", schedule_id=stored, target=target)
            assert refused.value.field == "target"
            with pytest.raises(NotAllowed):
                harness("schedule/upsert", schedule_id=stored, target=target, trigger=EVERY_MINUTE)
        same = {"target_kind": "command", "env": {"A": "1"}, "argv": ["backup", "--full"]}
        assert harness("schedule/update", schedule_id=stored, target=same, labels={"a": "b"})["labels"] == {"a": "b"}
        with pytest.raises(NotAllowed):
            harness("schedule/update", schedule_id=stored, target=REPORT)


def drive_id(harness):
    return harness.scheduler.list_jobs()[0].id


def test_what_belongs_to_another_tenant_is_not_there(harness):
    schedule = harness.create()
    for name in ("get", "pause", "resume", "delete", "run", "occurrences", "runs", "update", "explain"):
        with pytest.raises(NotFound):
            harness(f"schedule/{name}", schedule_id=schedule["schedule_id"], caller=FOREIGN)


def test_an_unknown_operation_is_not_there(harness):
    with pytest.raises(MethodNotFound):
        harness("schedule/explode", caller=LOCAL)


@pytest.mark.parametrize(
    "target", [{"target_kind": "http", "url": "https://example.com/"}, {"target_kind": "command", "argv": ["true"]}]
)
def test_what_a_program_declared_is_not_given_a_request_or_a_command_over_the_network(harness, target):
    job = harness.scheduler.schedule(print, function_name="report", trigger=NEVER)
    with pytest.raises(NotAllowed, match="only a program can change what it calls") as refused:
        harness("schedule/update", schedule_id=job, target=target)
    assert refused.value.field == "target"
    schedule = harness.create(target=target)
    harness("schedule/update", schedule_id=schedule["schedule_id"], target=REPORT)
    harness("schedule/update", schedule_id=schedule["schedule_id"], target=target)


class TestPausing:
    def test_paused_resumed_and_paused_again(self, harness):
        schedule = harness.create()
        for _ in range(2):  # a second time changes nothing
            assert harness("schedule/pause", schedule_id=schedule["schedule_id"], reason="holiday")["phase"] == "paused"
        harness.pass_by(180)
        assert harness.calls == []
        resumed = harness("schedule/resume", schedule_id=schedule["schedule_id"])
        assert (resumed["phase"], resumed["counters"]["skipped"]) == ("active", 3)

    def test_deleted_is_told_and_hidden_and_stays(self, harness):
        schedule = harness.create()
        for _ in range(2):
            gone = harness("schedule/delete", schedule_id=schedule["schedule_id"])
            assert (gone["phase"], gone["deleted_at_utc"]) == ("deleted", "2026-03-01T12:00:00Z")
            assert (gone.pop("stopped_runs"), gone.pop("unfinished_runs")) == (0, 0)
        with pytest.raises(NotFound):
            harness("schedule/get", schedule_id=schedule["schedule_id"])
        assert harness("schedule/get", schedule_id=schedule["schedule_id"], include_deleted=True) == gone
        assert harness("schedule/list")["schedules"] == []
        assert harness("schedule/list", phase="deleted")["schedules"] == [gone]

    @pytest.mark.parametrize("verb", ["pause", "resume", "delete"])
    def test_another_revision_than_the_expected_one_is_left_alone(self, harness, verb):
        schedule = harness.create(enabled=verb != "resume")
        with pytest.raises(RevisionConflict) as refused:
            harness(f"schedule/{verb}", schedule_id=schedule["schedule_id"], expected_revision=2)
        assert refused.value.field == "expected_revision"
        assert harness("schedule/get", schedule_id=schedule["schedule_id"]) == schedule
        after = harness(f"schedule/{verb}", schedule_id=schedule["schedule_id"], expected_revision=1)
        assert after["phase"] != schedule["phase"]


SLEEP = {"target_kind": "command", "argv": ["sleep", "9"]}


class TestWindows:
    @pytest.mark.parametrize(
        ("trigger", "warned"), [({"type": "once", "delay_seconds": 60}, True), (EVERY_MINUTE, False)]
    )
    def test_a_pause_without_a_further_window_is_warned_of(self, harness, trigger, warned):
        window = {"duration_seconds": 5, "end_action": "pause"}
        schedule = harness.create(schedule_id="s", target=SLEEP, trigger=trigger, window=window)
        again = harness("schedule/upsert", schedule_id="s", target=SLEEP, trigger=trigger, window=window)
        changed = harness("schedule/update", schedule_id="s", name="other")
        for answer in (schedule, again, changed):
            assert [warning.partition(":")[0] for warning in answer.get("warnings", [])] == [
                "window.end_action"
            ] * warned


class TestRunsOfADeletedSchedule:
    @pytest.mark.parametrize(("asked", "told"), [({}, (0, 1)), ({"stop_running": True}, (1, 0))])
    def test_they_are_asked_to_stop_if_the_caller_wants_it(self, harness, asked, told):
        schedule_id = harness.create()["schedule_id"]
        occurrence_id = harness("schedule/run", schedule_id=schedule_id)["occurrence_id"]
        store, now = harness.service.store, harness.service.store.clock()
        [claim] = store.claim("n1", ["function:report"], now=now, until=now, limit=9, lease=60 * SECOND)
        store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)
        deleted = harness("schedule/delete", schedule_id=schedule_id, **asked)
        assert (deleted["stopped_runs"], deleted["unfinished_runs"]) == told
        assert harness("occurrence/get", occurrence_id=occurrence_id)["phase"] == "dispatching"
        lease = Lease(occurrence_id=occurrence_id, fence=claim.occurrence.fence)
        assert bool(store.renew([lease], now=now, lease=60 * SECOND).stop) is bool(asked)
        again = harness("schedule/delete", schedule_id=schedule_id, stop_running=True)
        assert again["stopped_runs"] == 1

    def test_what_its_target_has_accepted_is_cancelled(self, harness):
        schedule_id = harness.create()["schedule_id"]
        occurrence_id = harness("schedule/run", schedule_id=schedule_id)["occurrence_id"]
        store, now = harness.service.store, harness.service.store.clock()
        [claim] = store.claim("n1", ["function:report"], now=now, until=now, limit=9, lease=60 * SECOND)
        [admitted] = store.admit([admit(claim, now=now, lease=60 * SECOND)], now=now, lease=60 * SECOND)
        store.settle([settle(admitted.occurrence, claim.schedule, Accepted(started=now, accepted=now), node="n1")])
        assert harness("schedule/delete", schedule_id=schedule_id, stop_running=True)["stopped_runs"] == 1
        assert harness("occurrence/get", occurrence_id=occurrence_id)["phase"] == "cancelled"
        assert harness("schedule/delete", schedule_id=schedule_id, stop_running=True)["stopped_runs"] == 0
