"""Answers to callers when another caller makes or deletes the schedule during their request."""

from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, NotFound
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.operations.table import perform
from noonmark.testing.conformance import Bench, HandClock
from tests.driver.rig import Wrapped
from tests.operations.harness import EVERY_MINUTE, LOCAL, REPORT, Harness

DOCUMENT = {"schedule_id": "report", "trigger": EVERY_MINUTE, "target": REPORT}


class Interrupted(Harness):
    """A harness at which something happens just before a verb of the store, or just after it."""

    def __init__(self, store="memory://"):
        super().__init__(store)
        self.undisturbed = self.service
        self.service = replace(self.service, store=Wrapped(self.service.store))

    def before(self, verb, *names, **arguments):
        self.service.store.meanwhile(verb, lambda: self._others(names, arguments))

    def after(self, verb, *names, **arguments):
        self.service.store.afterwards(verb, lambda: self._others(names, arguments))

    def _others(self, names, arguments):
        for name in names:
            given = DOCUMENT if name in ("schedule/create", "schedule/upsert") else {"schedule_id": "report"}
            perform(self.undisturbed, LOCAL, name, {**given, **arguments})


@pytest.fixture(params=["memory", "sqlite"])
def harness(request, tmp_path):
    return Interrupted("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/noonmark.db")


def uid(harness):
    return harness.service.store.find("default", "report").schedule.uid


class TestUpsert:
    def test_of_what_is_deleted_meanwhile_creates_it(self, harness):
        harness.create(**DOCUMENT)
        before = uid(harness)
        harness.before("change", "schedule/delete")
        answer = harness("schedule/upsert", **DOCUMENT, enabled=False)
        assert (answer["phase"], answer["revision"]) == ("paused", 1), "as the caller says, since it is a new one"
        assert uid(harness) != before

    def test_of_what_somebody_creates_meanwhile_changes_that(self, harness):
        harness.before("create", "schedule/create")
        answer = harness("schedule/upsert", **DOCUMENT | {"trigger": {"type": "interval", "every_seconds": 90}})
        assert (answer["revision"], answer["trigger"]["every_seconds"]) == (2, 90)

    @pytest.mark.parametrize("others", [["schedule/delete"], ["schedule/delete", "schedule/create"]])
    @pytest.mark.parametrize("verb", ["create", "change"])
    def test_that_was_written_is_told_whatever_follows(self, harness, verb, others):
        if verb == "change":
            harness.create(**DOCUMENT)
        harness.after(verb, *others)
        answer = harness("schedule/upsert", **DOCUMENT | {"labels": {"team": "a"}})
        assert (answer["phase"], answer["labels"]) == ("deleted", {"team": "a"})

    def test_of_what_is_paused_meanwhile_leaves_it_paused(self, harness):
        harness.create(**DOCUMENT)
        harness.before("change", "schedule/update", enabled=False)
        answer = harness("schedule/upsert", **DOCUMENT, labels={"team": "a"})
        assert (answer["phase"], answer["enabled"]) == ("paused", False)


class TestDelete:
    def test_of_what_is_deleted_meanwhile_finds_it_so(self, harness):
        harness.create(**DOCUMENT)
        harness.before("change", "schedule/delete")
        assert harness("schedule/delete", schedule_id="report")["phase"] == "deleted"

    def test_tells_what_it_deleted_and_not_what_has_its_id_now(self, harness):
        harness.create(**DOCUMENT)
        harness.after("change", "schedule/create")
        assert harness("schedule/delete", schedule_id="report")["phase"] == "deleted"
        assert harness("schedule/get", schedule_id="report")["phase"] == "active"


class TestOthers:
    @pytest.mark.parametrize(
        ("operation", "arguments"),
        [("update", {"labels": {}, "description": "x"}), ("pause", {}), ("resume", {})],
    )
    def test_change_what_is_deleted(self, harness, operation, arguments):
        harness.create(**DOCUMENT)
        harness.before("change", "schedule/delete")
        with pytest.raises(NotFound):
            harness(f"schedule/{operation}", schedule_id="report", **arguments)

    @pytest.mark.parametrize("others", [["schedule/delete"], ["schedule/delete", "schedule/create"]])
    def test_run_what_is_deleted(self, harness, others):
        harness.create(**DOCUMENT)
        harness.before("add", *others)
        with pytest.raises(NotFound):
            harness("schedule/run", schedule_id="report")

    def test_backfill_what_is_deleted(self, harness):
        harness.create(**DOCUMENT)
        harness.clock.advance(600)
        harness.before("add", "schedule/delete")
        with pytest.raises(NotFound):
            harness(
                "schedule/backfill",
                schedule_id="report",
                **{"from": "2026-03-01T12:01:00Z", "to": "2026-03-01T12:05:00Z"},
            )

    def test_create_with_a_key_what_the_same_request_has_made(self, harness):
        asked = {**DOCUMENT, "idempotency_key": "k"}
        harness.before("create", "schedule/create", idempotency_key="k")
        answer = harness("schedule/create", **asked)
        assert answer["revision"] == 1
        with pytest.raises(Conflict):
            harness("schedule/create", **DOCUMENT)

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_create_with_a_key_and_no_id_what_the_same_request_has_made(self, harness, is_deleted):
        asked = {"trigger": EVERY_MINUTE, "target": REPORT, "idempotency_key": "k"}

        def repeat():
            made = perform(harness.undisturbed, LOCAL, "schedule/create", asked)
            if is_deleted:
                perform(harness.undisturbed, LOCAL, "schedule/delete", {"schedule_id": made["schedule_id"]})

        harness.service.store.meanwhile("create", repeat)
        answer = harness("schedule/create", **asked)
        assert answer["phase"] == ("deleted" if is_deleted else "active")
        assert harness("schedule/create", **asked) == answer
        assert len(harness("schedule/list")["schedules"]) == (0 if is_deleted else 1)


def test_what_fails_and_waits_for_its_next_attempt_while_it_is_cancelled_is_cancelled_anyway(harness):
    harness.create(**DOCUMENT)
    occurrence_id = harness("schedule/run", schedule_id="report")["occurrence_id"]
    store = harness.undisturbed.store
    bench = Bench(store, HandClock(store.clock()))
    [claim] = bench.claim(routes=["function:report"])
    running = bench.start(claim)
    again = {"phase": Phase.PENDING, "reason": Reason.RETRY_SCHEDULED, "retry_at": bench.now, "tenant": "default"}
    harness.service.store.meanwhile("request_stop", lambda: bench.settle(running, **again))
    assert harness("occurrence/cancel", occurrence_id=occurrence_id)["phase"] == "cancelled"
    assert harness.service.store.calls["cancel"] == 2
