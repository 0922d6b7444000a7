"""What whoever asked for one occurrence said of it: kept as it was said, and put before what its schedule says."""

import pytest

from noonmark.core.api_key import Scope
from noonmark.core.ids import TRIGGER, carries_steps, is_hidden, shown_name, visible_id
from noonmark.core.instants import SECOND
from noonmark.core.interruption import log_name
from noonmark.core.occurrence import Overrides, Parent, PinnedBundle, in_force, pinned_target, read_overrides
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.targets import BundleTarget, EventTarget
from noonmark.testing import factories

TERMS = [
    (Overrides(overlap_policy=overlap.Allow()), {"overlap_policy": "allow"}),
    (Overrides(overlap_policy=overlap.Queue(queue_limit=7)), {"overlap_policy": {"type": "queue", "queue_limit": 7}}),
    (
        Overrides(concurrency=Concurrency(key="backfill:1", limit=3)),
        {"concurrency_key": "backfill:1", "concurrency_limit": 3},
    ),
    (
        Overrides(
            target=EventTarget(event_type="done"),
            timeout=1_500_000,
            retry_policy=RetryPolicy(max_attempts=3),
            window=Window(duration=60 * SECOND, end_action=EndAction.CANCEL),
        ),
        {
            "target": {"target_kind": "event", "event_type": "done", "payload": {}},
            "timeout_seconds": 1.5,
            "retry_policy": RetryPolicy(max_attempts=3).to_document(),
            "window": {"duration_seconds": 60, "end_action": "cancel"},
        },
    ),
    (
        Overrides(parent=Parent(occurrence_id="occ_1", step_id="load", index=0, depth=2)),
        {"parent": {"occurrence_id": "occ_1", "step_id": "load", "index": 0, "depth": 2}},
    ),
    (
        Overrides(parent=Parent(occurrence_id="occ_1", step_id="load")),
        {"parent": {"occurrence_id": "occ_1", "step_id": "load", "depth": 1}},
    ),
    (
        Overrides(bundle=PinnedBundle(bundle_id="eval", digest="0f", is_workflow=True)),
        {"bundle": {"bundle_id": "eval", "digest": "0f", "is_workflow": True}},
    ),
    (Overrides(scopes=frozenset({Scope.RUN, Scope.READ})), {"scopes": ["read", "run"]}),
    (Overrides(scopes=frozenset()), {"scopes": []}),
    (Overrides(), {}),
]


@pytest.mark.parametrize(("terms", "document"), TERMS)
def test_they_are_read_as_they_were_written(terms, document):
    assert terms.to_document() == document
    assert read_overrides(document) == terms


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"overlap_policy": "perhaps"}, "must be one of"),
        ({"concurrency_key": "k", "concurrency_limit": 0}, "1"),
        ({"something": 1}, "unknown field"),
        ({"concurrency_limit": 2}, "needs a concurrency_key"),
        ({"target": {"target_kind": "nothing"}}, "target_kind"),
        ({"retry_policy": {"max_attempts": 0}}, "max_attempts"),
        ({"parent": {"step_id": "load", "depth": 1}}, "occurrence_id"),
        ({"parent": {"occurrence_id": "occ_1", "step_id": "load", "depth": 1, "x": 1}}, "unknown field"),
        ({"bundle": {"bundle_id": "eval"}}, "digest"),
    ],
)
def test_what_was_not_written_by_them_is_refused(document, why):
    with pytest.raises(ValueError, match=why):
        read_overrides(document)


def test_they_are_in_force_for_their_occurrence():
    schedule = factories.schedule(timeout=7)
    plain = factories.occurrence(schedule, TRIGGER)
    assert in_force(schedule, plain) is schedule
    child = Overrides(parent=Parent(occurrence_id="occ_1", step_id="load"))
    assert in_force(schedule, factories.occurrence(schedule, TRIGGER, overrides=child)) is schedule
    own = Overrides(target=EventTarget(event_type="done"), retry_policy=RetryPolicy(max_attempts=3))
    declared = in_force(schedule, factories.occurrence(schedule, TRIGGER, overrides=own)).declaration
    assert (declared.target, declared.retry_policy, declared.timeout) == (own.target, own.retry_policy, 7)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (BundleTarget(bundle_id="eval", inputs={"n": 1}), BundleTarget(bundle_id="eval", digest="0f", inputs={"n": 1})),
        (BundleTarget(digest="0f"), BundleTarget(bundle_id="eval", digest="0f")),
        (BundleTarget(bundle_id="other"), BundleTarget(bundle_id="other")),
        (BundleTarget(digest="1e"), BundleTarget(digest="1e")),
        (EventTarget(event_type="done"), EventTarget(event_type="done")),
    ],
)
def test_an_occurrence_runs_the_archive_that_it_began_with(target, expected):
    pinned = PinnedBundle(bundle_id="eval", digest="0f")
    schedule = factories.schedule(target=target)
    occurrence = factories.occurrence(schedule, TRIGGER, overrides=Overrides(bundle=pinned))
    assert in_force(schedule, occurrence).declaration.target == expected
    own = factories.occurrence(factories.schedule(), TRIGGER, overrides=Overrides(bundle=pinned, target=target))
    assert in_force(factories.schedule(), own).declaration.target == expected
    assert pinned_target(target, None) is target
    assert (occurrence.bundle, occurrence.is_workflow_run) == (pinned, False)


@pytest.mark.parametrize(("schedule_id", "expected"), [("~steps:etl", True), ("steps~", False), ("zebra", False)])
def test_an_id_that_no_caller_can_choose_is_hidden(schedule_id, expected):
    assert is_hidden(schedule_id) is expected


@pytest.mark.parametrize(
    ("schedule_id", "name", "is_of_steps"),
    [
        ("nightly", "nightly", False),
        ("~workflow:a:b", "workflow a:b", False),
        ("~bundle:etl", "bundle etl", False),
        ("~steps:etl", "workflow etl", True),
        ("~trusted-steps:etl", "workflow etl", True),
    ],
)
def test_a_run_without_a_schedule_is_called_by_what_it_runs(schedule_id, name, is_of_steps):
    assert (shown_name(schedule_id), carries_steps(schedule_id)) == (name, is_of_steps)
    assert visible_id(schedule_id) == (None if is_hidden(schedule_id) else schedule_id)
    schedule = factories.schedule(schedule_id=schedule_id, name=None)
    assert log_name(schedule) == (name if is_hidden(schedule_id) else "nightly (function:work)")
