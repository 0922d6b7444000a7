"""What files change: documents that are declared, compared with those that are stored."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noonmark.core.changes import (
    Action,
    Changes,
    Desired,
    FieldChange,
    Stored,
    file_document,
    id_of_name,
    owner_name,
    plan_changes,
    schedule_changes,
    schedule_id_of,
    upstream_ids,
)
from noonmark.core.errors import Problem
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import parse_schedule
from noonmark.core.secret import Secret
from noonmark.testing import factories

NOW = datetime(2027, 5, 1, tzinfo=UTC)
CREATED = "2027-04-01T00:00:00Z"
UPDATED = "2027-04-02T00:00:00Z"
CRON = {"type": "cron", "expression": "0 2 * * *", "timezone": "UTC"}
EVERY = {"type": "interval", "every_seconds": 30}
TARGET = {"target_kind": "function", "function": "f", "args": [], "kwargs": {}}


def document(name="a", **fields):
    return {"name": name, "trigger": CRON, "target": TARGET} | fields


def declared(*documents, owner="files"):
    return [Desired(one, owner, f"schedules[{index}]") for index, one in enumerate(documents)]


def stored(one, *, owner="files", phase=SchedulePhase.ACTIVE):
    """A schedule as a store has it: every policy written out, an interval anchored."""
    labels = one.get("labels", {}) | ({} if owner is None else {"managed_by": owner})
    full = parse_schedule(one | {"labels": labels}, now=datetime(2027, 4, 1, tzinfo=UTC)).to_document()
    schedule_id = schedule_id_of(one)
    return schedule_id, Stored(
        document=full | {"schedule_id": schedule_id, "enabled": phase is not SchedulePhase.PAUSED},
        phase=phase,
        created_at_utc=CREATED,
        updated_at_utc=UPDATED,
    )


def plan(desired, existing=(), **options):
    return plan_changes(desired, dict(existing), now=NOW, **options)


def fields_of(changes):
    [step] = changes.steps
    return {one.field: (one.before, one.after) for one in step.fields}


@pytest.mark.parametrize(
    ("name", "schedule_id"),
    [
        ("nightly", "nightly"),
        ("a.b:c_d-E", "a.b:c_d-E"),
        ("Nightly report", "nightly-report-18e31c3b"),
        ("日報", "schedule-b6d9c7c2"),
        ("count", "count-9d8bd6f2"),
    ],
)
def test_ids_follow_from_names(name, schedule_id):
    found = id_of_name(name)
    assert found == schedule_id or (found.rpartition("-")[0] == schedule_id.rpartition("-")[0] and len(found) > 9)
    assert schedule_id_of({"name": name, "schedule_id": "own"}) == "own"
    assert schedule_id_of({"name": name}) == found


def test_a_new_schedule_is_created_with_its_owner_and_id():
    [step] = plan(declared(document(max_runs=3))).steps
    assert (step.action, step.schedule_id, step.name, step.index) == (Action.CREATE, "a", "a", 0)
    assert step.arguments == document(max_runs=3, schedule_id="a", labels={"managed_by": "files"})
    assert FieldChange("max_runs", None, 3) in step.fields
    assert plan(declared(document(), owner=None)).steps[0].arguments == document(schedule_id="a")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"trigger": EVERY},
        {"trigger": EVERY | {"start_at_utc": "2027-01-01T00:00:00Z"}},
        {"trigger": {"type": "once", "due_at_utc": "2027-04-10T00:00:00Z"}},
        {"trigger": {"type": "event", "event_type": "e"}},
        {"trigger": {"type": "cron", "expression": "H H * * *"}, "labels": {"team": "x"}},
        {"misfire_policy": "catch_up_all", "timeout_seconds": 5.0, "description": "text"},
    ],
)
def test_what_is_as_declared_stays_unchanged_and_so_does_what_was_exported(fields):
    existing = stored(document(**fields))
    assert plan(declared(document(**fields)), [existing]) == Changes(unchanged=1)
    exported = file_document(existing[1], owner="files")
    assert plan(declared(exported), [existing]) == Changes(unchanged=1)
    labelled = file_document(existing[1], owner=None)
    assert labelled["labels"]["managed_by"] == "files"
    assert plan(declared(labelled, owner=None), [existing]) == Changes(unchanged=1)


def test_a_file_has_what_differs_from_defaults():
    assert file_document(stored(document())[1], owner="files") == document()
    assert file_document(stored(document(schedule_id="other"))[1], owner="files") == document(schedule_id="other")
    follows = {"name": "a", "target": TARGET, "depends_on": [{"schedule_id": "b", "require_success": True}]}
    assert file_document(stored(follows)[1], owner="files") == follows
    unnamed = {"schedule_id": "x", "trigger": CRON, "target": TARGET, "labels": {"a": "b"}, "max_runs": 2}
    assert file_document(stored(unnamed)[1], owner="files") == unnamed
    assert file_document(stored(document(), phase=SchedulePhase.PAUSED)[1], owner="files") == document(enabled=False)


@pytest.mark.parametrize(
    ("before", "after", "changed", "sent"),
    [
        ({"max_runs": 3}, {}, {"max_runs": (3, None)}, {"max_runs": None}),
        ({}, {"labels": {"b": "c"}}, {"labels.b": (None, "c")}, {"labels": {"b": "c", "managed_by": "files"}}),
        ({}, {"retry_policy": {"max_attempts": 2}}, {"retry_policy.max_attempts": (1, 2)}, None),
        ({}, {"enabled": False}, {"enabled": (True, False)}, {"enabled": False}),
    ],
)
def test_changed_fields_are_named_and_sent(before, after, changed, sent):
    changes = plan(declared(document(**after)), [stored(document(**before))])
    assert fields_of(changes) == changed
    [step] = changes.steps
    assert step.action is Action.CHANGE
    expected = {"schedule_id": "a", "expected_updated_at_utc": UPDATED}
    assert step.arguments.items() >= expected.items()
    if sent is not None:
        assert step.arguments == expected | sent


def test_a_changed_trigger_is_sent_as_it_is_in_the_file_with_the_policies_that_follow_it():
    changes = plan(declared(document(trigger=EVERY | {"every_seconds": 60})), [stored(document(trigger=EVERY))])
    assert fields_of(changes) == {"trigger.every_seconds": (30, 60)}
    assert changes.steps[0].arguments["trigger"] == EVERY | {"every_seconds": 60}
    assert {"overlap_policy", "misfire_policy"} <= changes.steps[0].arguments.keys()
    start = EVERY | {"start_at_utc": "2027-06-01T00:00:00Z"}
    assert "trigger.start_at_utc" in fields_of(
        plan(declared(document(trigger=start)), [stored(document(trigger=EVERY))])
    )
    follows = {"name": "a", "target": TARGET, "depends_on": [{"schedule_id": "b"}]}
    changes = plan(declared(follows), [stored(document()), stored(document("b"))])
    assert changes.steps[0].arguments["trigger"] is None


def test_without_enabled_a_paused_schedule_stays_paused_and_a_completed_one_is_neither():
    paused = stored(document(), phase=SchedulePhase.PAUSED)
    assert plan(declared(document()), [paused]).steps == ()
    assert fields_of(plan(declared(document(enabled=True)), [paused])) == {"enabled": (False, True)}
    completed = stored(document(), phase=SchedulePhase.COMPLETED)
    assert plan(declared(document(enabled=False)), [completed]).steps == ()


def test_only_schedules_of_the_owner_are_pruned():
    existing = [stored(document(name), owner=owner) for name, owner in [("a", "files"), ("b", "others"), ("c", None)]]
    assert plan([], existing).steps == ()
    [step] = plan([], existing, prune={"files"}).steps
    assert (step.action, step.schedule_id, step.name, step.index) == (Action.DELETE, "a", "a", None)
    assert step.arguments["reason"] == "no longer declared by the files of files"


@pytest.mark.parametrize(("owner", "whose"), [("others", 'is managed by "others"'), (None, "is not managed by files")])
def test_schedules_of_others_are_taken_over_only_if_asked(owner, whose):
    existing = [stored(document(), owner=owner)]
    [(index, problem)] = plan(declared(document()), existing).problems
    assert index == 0
    assert whose in problem.message
    assert fields_of(plan(declared(document()), existing, adopts=True)) == {
        "labels.managed_by" if owner else "labels": (owner, "files") if owner else (None, {"managed_by": "files"})
    }
    assert plan(declared(document(), owner=None), existing).problems == () or owner is not None


def test_upstreams_are_created_first_and_deleted_last():
    first, second = document("z"), document("a", depends_on=[{"schedule_id": "z"}])
    assert [step.schedule_id for step in plan(declared(second, first)).steps] == ["z", "a"]
    existing = [stored(first), stored(second)]
    assert [step.schedule_id for step in plan([], existing, prune={"files"}).steps] == ["a", "z"]


LINKED = Secret(name="token", hosts=("api.example",), sealed="", created=0, updated=0)
REQUEST = {"target_kind": "http", "url": "https://api.example/x", "secret_headers": {"Authorization": "token"}}


@pytest.mark.parametrize(
    ("documents", "problems"),
    [
        ([{"target": TARGET, "trigger": CRON}], [(0, "name", "is required: a name or a schedule_id")]),
        ([document(name=5)], [(0, "name", "must be text")]),
        ([document(schedule_id="a b")], [(0, "schedule_id", "must be 1 to 128 letters")]),
        ([document(schedule_id="count")], [(0, "schedule_id", "must not be 'count'")]),
        ([document(), document()], [(1, "name", "is that of schedules[0] too")]),
        ([document(schedule_id="x"), document("b", schedule_id="x")], [(1, "schedule_id", "is that of schedules[0]")]),
        ([document(schedule_id="x"), document()], [(1, "name", "is that of schedules[0] too")]),
        ([document(), document(schedule_id="x")], [(1, "name", "is that of schedules[0] too")]),
        ([document(labels=[])], [(0, "labels", "must be an object")]),
        ([document(trigger={"type": "once", "delay_seconds": 5})], [(0, "trigger.delay_seconds", "counts from")]),
        ([document(), document("b", overlap_policy="x", max_runs=0)], [(1, "overlap_policy", ""), (1, "max_runs", "")]),
        ([document(depends_on=[{"schedule_id": "b"}])], [(0, "depends_on[0].schedule_id", 'there is no schedule "b"')]),
        (
            [document(depends_on=[{"schedule_id": "b"}]), document("b", depends_on=[{"schedule_id": "a"}])],
            [(0, "depends_on", "makes a cycle: ")],
        ),
        (
            [document(target=REQUEST | {"secret_headers": {"X": "other"}})],
            [(0, "target.secret_headers.X", "no secret")],
        ),
    ],
)
def test_a_problem_anywhere_leaves_no_steps(documents, problems):
    planned = plan(declared(document("fine"), *documents), secrets={"token": LINKED})
    assert planned.steps == ()
    assert [(index - 1, problem.field) for index, problem in planned.problems] == [one[:2] for one in problems]
    for (_, problem), (_, _, message) in zip(planned.problems, problems, strict=True):
        assert message.replace("schedules[0]", "schedules[1]") in problem.message


def test_the_same_name_twice_is_fine_where_both_have_ids():
    planned = plan(declared(document(schedule_id="x"), document(schedule_id="y")))
    assert [step.schedule_id for step in planned.steps] == ["x", "y"]


def test_requests_with_known_secrets_pass_and_without_a_list_of_secrets_all_do():
    assert plan(declared(document(target=REQUEST)), secrets={"token": LINKED}).problems == ()
    assert plan(declared(document(target=REQUEST))).problems == ()
    # As on a server, a target that stays as it is needs no second check.
    assert plan(declared(document(target=REQUEST)), [stored(document(target=REQUEST))], secrets={}).unchanged == 1


def test_a_time_that_is_past_is_refused_only_where_it_is_new():
    past = document(trigger={"type": "once", "due_at_utc": "2027-04-10T00:00:00Z"})
    assert [problem.field for _, problem in plan(declared(past)).problems] == ["trigger.due_at_utc"]
    assert plan(declared(past), [stored(past)]).unchanged == 1


def test_owners_are_short_texts():
    assert owner_name("billing") == "billing"
    with pytest.raises(ValueError, match="256"):
        owner_name("x" * 257)


def test_upstreams_that_cannot_be_read_are_left_to_the_parser():
    assert upstream_ids({"depends_on": [{"schedule_id": "a"}, {"schedule_id": 5}, "b"]}) == ["a"]
    assert upstream_ids({"depends_on": "a"}) == []
    assert [index for index, _ in plan(declared(document(depends_on="a"))).problems] == [0]


def test_problems_come_in_the_order_of_the_documents():
    planned = plan(declared(document(depends_on=[{"schedule_id": "x"}]), document("b", max_runs=0)))
    assert planned.problems[1][1] == Problem("max_runs", planned.problems[1][1].message)
    assert [index for index, _ in planned.problems] == [0, 1]


def test_what_an_edit_changed():
    before = factories.schedule(name="a", labels={"team": "x"})
    after = replace(
        before,
        phase=SchedulePhase.PAUSED,
        declaration=replace(before.declaration, name="b", labels={"team": "y"}, description="d" * 5_000),
    )
    assert schedule_changes(before, before) == []
    phase, *fields = schedule_changes(before, after)
    assert phase == {"field": "phase", "before": "active", "after": "paused"}
    found = {one["field"]: (one["before"], one["after"]) for one in fields}
    assert found["name"] == ("a", "b")
    assert found["labels.team"] == ("x", "y")
    assert found["description"] == (None, '"' + "d" * 3_999 + "..")
