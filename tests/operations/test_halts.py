"""Halts: who may set and lift them, what they stop, and where that is shown."""

from dataclasses import replace

import pytest

from noonmark.core.api_key import Scope, expand_scopes
from noonmark.core.errors import InvalidRequest, MissingScope, NotAllowed, NotFound
from noonmark.core.schedule import Owner
from noonmark.operations.service import CallingSession
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, REPORT, Harness

WRITER = replace(
    FOREIGN,
    owner=Owner(tenant="default", user="ada"),
    name="ada",
    is_root=False,
    scopes=expand_scopes([Scope.READ, Scope.WRITE]),
)
AGENT, OF_ONE = replace(WRITER, is_agent=True), replace(WRITER, sees_own_only=True)
READER = replace(WRITER, scopes=frozenset({Scope.READ}))


@pytest.fixture
def harness():
    return Harness()


def reasons(harness, schedule_id):
    rows = harness("schedule/occurrences", schedule_id=schedule_id)["occurrences"]
    return [(row["phase"], row["reason"]) for row in rows if row["phase"] != "pending"]


def test_what_is_halted_is_skipped_until_it_is_lifted(harness):
    schedule = harness.create(schedule_id="s", trigger=EVERY_MINUTE, labels={"team": "blue"})
    halt = harness("halt/set", WRITER, labels={"team": "blue"}, reason="a loop")
    assert (halt["halted_by"], halt["reason"], halt["stopped"]) == ("ada", "a loop", 0)
    later = harness.create(schedule_id="later", trigger=EVERY_MINUTE, labels={"team": "blue"})
    other = harness.create(schedule_id="other", trigger=EVERY_MINUTE)
    answer = harness("schedule/run", schedule_id="s")
    harness.pass_by(60)
    for one in (schedule, later):
        assert set(reasons(harness, one["schedule_id"])) == {("skipped", "halted")}
    assert harness("occurrence/get", occurrence_id=answer["occurrence_id"])["reason"] == "halted"
    assert reasons(harness, other["schedule_id"]) == [("completed", "succeeded")]
    words = harness("schedule/explain", schedule_id="s")["summary"]
    assert "it was halted by `ada` at" in words
    assert "(a loop)" in words
    assert "nothing of it starts until that is lifted" in words
    assert "nothing of it starts" not in harness("schedule/explain", schedule_id="other")["summary"]
    assert [one["halt_id"] for one in harness("workload")["halts"]] == [halt["halt_id"]]
    [check] = [one for one in harness("doctor")["checks"] if one["check"] == "halts"]
    assert (check["status"], halt["halt_id"] in check["detail"]) == ("warning", True)
    assert harness("halt/lift", WRITER, halt_id=halt["halt_id"])["lifted"][0]["halt_id"] == halt["halt_id"]
    harness.pass_by(60)
    assert reasons(harness, "s")[0] == ("completed", "succeeded")
    assert ("skipped", "halted") in reasons(harness, "s")
    entries = harness("audit/list")["entries"]
    assert [one["reason"] for one in entries if one["operation"] == "halt/set"] == [
        f"{halt['halt_id']}, team=blue: a loop"
    ]


def test_a_halt_is_lifted_by_its_labels_or_its_id(harness):
    for labels in ({}, {}, {"team": "blue"}):
        harness("halt/set", labels=labels)
    assert len(harness("halt/lift")["lifted"]) == 2  # those of the whole tenant
    with pytest.raises(NotFound, match="no halt of the whole tenant"):
        harness("halt/lift")
    with pytest.raises(NotFound, match="no halt of team=red"):
        harness("halt/lift", labels={"team": "red"})
    with pytest.raises(InvalidRequest, match=r"^labels: name one of"):
        harness("halt/lift", halt_id="h", labels={"team": "blue"})
    assert harness("halt/list", FOREIGN)["halts"] == []
    with pytest.raises(NotFound, match="no halt"):
        harness("halt/lift", FOREIGN, halt_id=harness("halt/list")["halts"][0]["halt_id"])


def test_a_lineage_is_halted_with_what_it_makes_later(harness):
    first = make(harness, CallingSession(session_id="talk"), "first", 60)
    uid = harness.service.store.find("default", "first").schedule.uid
    run = CallingSession(session_id="inner", schedule_uid=uid)
    second = make(harness, run, "second", 50)
    assert second["lineage"]["chain"] == ["session:talk", "schedule:first", "session:inner"]
    halt = harness("halt/set", lineage="talk")
    assert (halt["lineage"], halt["labels"]) == ("talk", {})
    later = make(harness, run, "later", 40)
    other = make(harness, CallingSession(session_id="another"), "other", 45)
    harness.pass_by(60)
    for one in (first, second, later):
        assert reasons(harness, one["schedule_id"]) == [("skipped", "halted")]
        assert "nothing of it starts until that is lifted" in harness("schedule/explain", **named(one))["summary"]
    assert reasons(harness, other["schedule_id"]) == [("completed", "succeeded")]
    assert [one["lineage"] for one in harness("workload")["halts"]] == ["talk"]
    assert harness("overview")["needs_look"][0]["text"].startswith("The lineage of talk is halted by")
    for wrong, message in (
        ({"lineage": "first"}, "^lineage: there is no halt of the lineage of first"),
        ({}, "^labels: there is no halt of the whole tenant"),
    ):
        with pytest.raises(NotFound, match=message):
            harness("halt/lift", **wrong)
    with pytest.raises(InvalidRequest, match=r"^lineage: name labels or a lineage"):
        harness("halt/set", lineage="talk", labels={"team": "blue"})
    assert harness("halt/lift", lineage="talk")["lifted"][0]["halt_id"] == halt["halt_id"]
    # A schedule is a lineage, too: what it made stops with it, what made it goes on.
    harness("halt/set", lineage="second")
    harness.pass_by(60)
    assert [reasons(harness, one)[0][1] for one in ("first", "second")] == ["succeeded", "halted"]
    [noted] = [one for one in harness("audit/list")["entries"] if one["operation"] == "halt/lift"]
    assert noted["reason"] == f"{halt['halt_id']}, the lineage of talk"


def make(harness, session, schedule_id, seconds):
    caller, trigger = replace(LOCAL, session=session), {"type": "interval", "every_seconds": seconds}
    return harness("schedule/create", caller, schedule_id=schedule_id, trigger=trigger, target=REPORT)


def named(document):
    return {"schedule_id": document["schedule_id"]}


def test_an_agent_does_not_leave_a_halt_by_an_edit(harness):
    talk = {"target_kind": "session", "type": "resumable_session", "action": {"type": "prompt", "prompt": "Look."}}
    target, elsewhere = {**talk, "session_id": "desk"}, {**talk, "session_id": "other"}
    fields = {"schedule_id": "s", "trigger": EVERY_MINUTE, "target": target, "labels": {"team": "blue"}}
    harness("schedule/create", AGENT, **fields)
    for covered, edit in (
        ({"labels": {"team": "blue"}}, {"labels": {}}),
        ({"lineage": "desk"}, {"target": elsewhere}),
    ):
        halt = harness("halt/set", WRITER, **covered)
        with pytest.raises(NotAllowed, match="a person takes it out") as refusal:
            harness("schedule/update", AGENT, schedule_id="s", **edit)
        assert refusal.value.field in edit
        harness("schedule/update", AGENT, schedule_id="s", description=f"halted by {halt['halt_id']}")
        harness("schedule/update", WRITER, schedule_id="s", **edit)
        harness("halt/lift", WRITER, halt_id=halt["halt_id"])


def test_who_may_halt(harness):
    with pytest.raises(MissingScope):
        harness("halt/set", READER)
    with pytest.raises(NotAllowed, match="only an administrator of the tenant may halt"):
        harness("halt/set", OF_ONE)
    halt = harness("halt/set", AGENT)
    with pytest.raises(NotAllowed, match="a person lifts halts"):
        harness("halt/lift", AGENT, halt_id=halt["halt_id"])
