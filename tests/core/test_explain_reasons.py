"""Explanations of occurrences: a sentence for every reason, with the numbers of the occurrence."""

import pytest

from noonmark.core.explain.clauses import CLAUSES
from noonmark.core.explain.deciding_rule import DECIDED_BY, Case
from noonmark.core.explain.occurrence import LEADS
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets.mob import MobFlowTarget
from noonmark.core.targets.ping import PingTarget
from noonmark.core.targets.session import PromptAction, SessionTarget, SessionType
from tests.core.explained import GAP, NOW, explained, row
from tests.core.scheduled import scheduled

ALL = misfire.CatchUpAll(limit=3)
WITHIN = misfire.CatchUpWithin(window=600 * SECOND)
TRIES = {"retry_policy": RetryPolicy(max_attempts=3)}
PING = {"target": PingTarget()}
DESK = {
    "target": SessionTarget(type=SessionType.EXACT, session_id="desk", action=PromptAction(prompt="go")),
}
UPSTREAM = {"depends_on": (Dependency(schedule_id="extract"),)}
LONG = "12 fires from 2026-11-15 12:00:00 UTC to 2026-11-15 12:18:20 UTC were"

# (the declaration, the occurrence, how its runs ended, what is said); now is five minutes past noon.
TOLD = {
    Reason.NOT_DUE: [
        ({}, {"nominal": 400}, [], "It has not run yet: it is due at 2026-11-15 12:06:40 UTC."),
    ],
    Reason.ON_TIME: [
        (
            {},
            {"nominal": 300},
            [],
            (
                "It has not run yet: it has been due since 2026-11-15 12:05:00 UTC, and waits for a node that serves "
                "`function:tidy` to claim it."
            ),
        ),
    ],
    Reason.LATE: [
        (
            {},
            {"phase": Phase.MISFIRED, **GAP},
            [],
            (
                f"It did not run: {LONG} missed because no node took them up in time, and the misfire policy `skip` "
                "drops what is later than 1 minute."
            ),
        ),
        (
            {"misfire_policy": WITHIN},
            {"phase": Phase.MISFIRED, "missed_count": 1, "missed_first": 0, "missed_last": 0},
            [],
            (
                "It did not run: the fire of 2026-11-15 12:00:00 UTC was missed because no node took it up in time, "
                "and the misfire policy `catch_up_within` does not run what is so late."
            ),
        ),
        (
            {},
            {"phase": Phase.MISFIRED, **GAP, "revision": 0},
            [],
            (
                f"It did not run: {LONG} missed because no node took them up in time, and the misfire policy of that "
                "time does not run what is so late."
            ),
        ),
    ],
    Reason.NEWER_FIRE: [
        (
            {"misfire_policy": misfire.CatchUpOne()},
            {"phase": Phase.MISFIRED, **GAP},
            [],
            (
                f"It did not run: {LONG} missed because a newer one was due before they started, and the misfire "
                "policy `catch_up_one` runs only the newest."
            ),
        ),
        (
            {"misfire_policy": misfire.CatchUpOne()},
            {"phase": Phase.MISFIRED, "facts": {"route": "function:x"}},
            [],
            (
                "It did not run: the fire of 2026-11-15 12:00:00 UTC was missed because no live node served "
                "`function:x` until a newer one was due, and the misfire policy `catch_up_one` runs only the newest."
            ),
        ),
        (
            {},
            {"phase": Phase.MISFIRED},
            [],
            (
                "It did not run: the fire of 2026-11-15 12:00:00 UTC was missed because a newer one was due before it "
                "started, and the misfire policy `skip` runs only the newest."
            ),
        ),
    ],
    Reason.CATCH_UP_LIMIT: [
        (
            {"misfire_policy": ALL},
            {"phase": Phase.MISFIRED, **GAP},
            [],
            f"It did not run: {LONG} missed, and the misfire policy `catch_up_all` catches up at most the newest 3.",
        ),
        (
            {"misfire_policy": ALL},
            {"phase": Phase.MISFIRED, **GAP, "revision": 0},
            [],
            f"It did not run: {LONG} missed, and the misfire policy of that time catches up only the newest.",
        ),
    ],
    Reason.QUEUED: [
        (
            {"overlap_policy": overlap.Queue()},
            {"waiting_for": Reason.QUEUED},
            [],
            "It has not run yet: it waits for its turn behind another occurrence of the same schedule.",
        ),
    ],
    Reason.CONCURRENCY_LIMIT: [
        (
            {"concurrency": Concurrency(key="disk", limit=2)},
            {"waiting_for": Reason.CONCURRENCY_LIMIT},
            [],
            "It has not run yet: it waits because all places under the concurrency key `disk` (2) are taken.",
        ),
        (
            {},
            {"waiting_for": Reason.CONCURRENCY_LIMIT},
            [],
            "It has not run yet: it waits because its concurrency key has no free place.",
        ),
    ],
    Reason.INFLIGHT_LIMIT: [
        (
            {},
            {"waiting_for": Reason.INFLIGHT_LIMIT, "wanted_limit": 2},
            [],
            "It has not run yet: it waits because as many occurrences of the user `u` are in flight as the limit of 2 per user allows.",  # noqa: E501
        ),
        (
            {},
            {"waiting_for": Reason.INFLIGHT_LIMIT},
            [],
            "It has not run yet: it waits because as many occurrences of the user `u` are in flight as allowed.",
        ),
    ],
    Reason.TENANT_INFLIGHT_LIMIT: [
        (
            {},
            {"waiting_for": Reason.TENANT_INFLIGHT_LIMIT, "wanted_limit": 5},
            [],
            "It has not run yet: it waits because as many occurrences of the tenant `t` are in flight as the limit of 5 per tenant allows.",  # noqa: E501
        ),
        (
            {},
            {"waiting_for": Reason.TENANT_INFLIGHT_LIMIT},
            [],
            "It has not run yet: it waits because as many occurrences of the tenant `t` are in flight as allowed.",
        ),
    ],
    Reason.TARGET_BUSY: [
        (
            DESK,
            {"waiting_for": Reason.TARGET_BUSY},
            [],
            "It has not run yet: it waits because another turn of the session `desk` is in progress.",
        ),
        (
            {"target": MobFlowTarget(mob_id="crew", flow_id="news")},
            {"phase": Phase.SKIPPED},
            [],
            (
                "It did not run: the flow `news` of the mob `crew` was in progress, and the overlap policy `skip` does "
                "not wait for it."
            ),
        ),
        (
            {},
            {"phase": Phase.SKIPPED},
            [],
            "It did not run: its session, or the flow of its mob, was busy with another turn.",
        ),
    ],
    Reason.DEPENDENCY_PENDING: [
        (
            UPSTREAM,
            {"waiting_for": Reason.DEPENDENCY_PENDING},
            [],
            "It has not run yet: it waits for what it depends on (`extract`).",
        ),
        (
            {},
            {"waiting_for": Reason.DEPENDENCY_PENDING},
            [],
            "It has not run yet: it waits for the schedules it depends on.",
        ),
    ],
    Reason.RESOURCES_SHORT: [
        (
            {},
            {"waiting_for": Reason.RESOURCES_SHORT},
            [],
            "It has not run yet: it waits because no node has the resources it asks for.",
        ),
    ],
    Reason.SERVICE_UNAVAILABLE: [
        (
            {},
            {
                "waiting_for": Reason.SERVICE_UNAVAILABLE,
                "facts": {"problem": "db:5432 does not answer"},
            },
            [],
            ("It has not run yet: it waits because a service that it needs does not answer (db:5432 does not answer)."),
        ),
    ],
    Reason.STEP_PENDING: [
        (
            {},
            {"waiting_for": Reason.STEP_PENDING},
            [Outcome.SUSPENDED],
            (
                "It has not ended yet: it waits for a step of its workflow: a time, an event or work that runs "
                "elsewhere."
            ),
        ),
    ],
    Reason.APPROVAL: [
        (
            {},
            {"waiting_for": Reason.APPROVAL},
            [Outcome.SUSPENDED],
            "It has not ended yet: it waits for somebody's approval.",
        ),
        (
            {},
            {"waiting_for": Reason.APPROVAL, "facts": {"why": "the budget of user ada is $1"}},
            [],
            "It has not run yet: it waits for somebody's approval, since the budget of user ada is $1.",
        ),
    ],
    Reason.OVERLAP: [
        (
            {},
            {"phase": Phase.SKIPPED},
            [],
            (
                "It did not run: an earlier occurrence was still in flight, and the overlap policy `skip` starts no "
                "second one beside it."
            ),
        ),
    ],
    Reason.QUEUE_FULL: [
        (
            {"overlap_policy": overlap.Queue(queue_limit=2)},
            {"phase": Phase.SKIPPED, "facts": {"waiting": 2, "queue_limit": 2}},
            [],
            (
                "It did not run: 2 occurrences were waiting already, and the overlap policy `queue` lets no more of "
                "them wait."
            ),
        ),
    ],
    Reason.REPLACED: [
        (
            {"overlap_policy": overlap.QueueOne()},
            {"phase": Phase.SKIPPED},
            [],
            "It did not run: a newer occurrence took its place, as the overlap policy `queue_one` lets only one wait.",
        ),
        (
            {"overlap_policy": overlap.CancelRunning()},
            {"phase": Phase.CANCELLED, "attempt": 1},
            [Outcome.CANCELLED],
            (
                "It was started and then cancelled: a newer occurrence was due, and the overlap policy "
                "`cancel_running` stops the one before it."
            ),
        ),
    ],
    Reason.WINDOW_CLOSED: [
        (
            {"window": Window(duration=60 * SECOND)},
            {"phase": Phase.SKIPPED, "facts": {"closes_at": "2026-11-15T12:01:00Z"}},
            [],
            "It did not run: the window in which it may run closed at 2026-11-15 12:01:00 UTC, before it could start.",
        ),
        (
            {"window": Window(duration=60 * SECOND)},
            {"phase": Phase.CANCELLED, "attempt": 1},
            [Outcome.CANCELLED],
            "It was started and then cancelled: the window in which it may run had closed, before it had ended.",
        ),
    ],
    Reason.DEPENDENCY_FAILED: [
        (
            UPSTREAM,
            {"phase": Phase.SKIPPED, "facts": {"upstream": "extract", "phase": "timed_out"}},
            [],
            "It did not run: the schedule `extract`, on which it depends, ended as `timed_out`.",
        ),
        (
            UPSTREAM,
            {"phase": Phase.SKIPPED, "facts": {"upstream": "extract", "phase": "missing"}},
            [],
            "It did not run: the schedule `extract`, on which it depends, does not exist.",
        ),
        ({}, {"phase": Phase.SKIPPED}, [], "It did not run: a schedule it depends on did not complete."),
    ],
    Reason.DEPENDENCY_TIMED_OUT: [
        (
            UPSTREAM,
            {"phase": Phase.SKIPPED, "facts": {"upstream": "extract", "waits_until": "2026-11-16T12:00:00Z"}},
            [],
            "It did not run: the schedule `extract`, on which it depends, had not ended by 2026-11-16 12:00:00 UTC.",
        ),
        (
            {},
            {"phase": Phase.SKIPPED},
            [],
            "It did not run: a schedule it depends on did not end within the wait limit.",
        ),
    ],
    Reason.PAUSED: [
        (
            {},
            {"phase": Phase.SKIPPED, **GAP},
            [],
            f"It did not run: {LONG} skipped by a pause of the schedule.",
        ),
        ({}, {"phase": Phase.SKIPPED}, [], "It did not run: the schedule was paused at that time."),
        (
            {},
            {"phase": Phase.CANCELLED, "attempt": 1},
            [Outcome.CANCELLED],
            "It was started and then cancelled: the schedule was paused while its agent was at work.",
        ),
    ],
    Reason.HALTED: [
        (
            {},
            {
                "phase": Phase.SKIPPED,
                "facts": {"halted_by": "ada", "halted_at": "2026-11-16T03:00:00Z", "halt_reason": "a loop"},
            },
            [],
            "It did not run: it was halted by `ada` at 2026-11-16T03:00:00Z (a loop).",
        ),
        ({}, {"phase": Phase.SKIPPED, "facts": {"halted_by": "ada"}}, [], "It did not run: it was halted by `ada`."),
        (
            {},
            {"phase": Phase.CANCELLED, "attempt": 1},
            [Outcome.CANCELLED],
            "It was started and then cancelled: somebody had halted its schedule, or its whole tenant.",
        ),
    ],
    Reason.TARGET_MISSING: [
        (
            {},
            {"phase": Phase.MISFIRED, **GAP},
            [],
            f"It did not run: {LONG} due, but no live node could serve its target, `function:tidy`.",
        ),
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "attempt": 1},
            [Outcome.FAILED],
            "It could not be delivered: no live node could serve its target, `function:tidy`.",
        ),
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "attempt": 1, "facts": {"why": "there is no session 'desk' to talk to"}},
            [Outcome.DELIVERY_FAILED],
            "It could not be delivered: there is no session 'desk' to talk to.",
        ),
        (
            {},
            {"phase": Phase.SKIPPED, "facts": {"workflow": "etl version 3"}},
            [],
            "It did not run: there was no workflow `etl version 3`.",
        ),
        *(
            ({}, {"phase": Phase.MISFIRED, "facts": facts}, [], f"It did not run: {said}.")
            for facts, said in (
                ({"session": "desk"}, "there was no session `desk`"),
                ({"session": "desk", "state": "archived"}, "the session `desk` was archived"),
                ({"mob": "crew"}, "there was no mob `crew`"),
                ({"host": "remote"}, "the node has no remote agent host (see --agents)"),
                ({"mob": "crew", "member": "writer"}, "the mob `crew` had no member `writer`"),
                ({"mob": "crew", "flow": "news"}, "the mob `crew` had no flow `news`"),
            )
        ),
    ],
    Reason.MAX_RUNS_REACHED: [
        (
            {"max_runs": 3},
            {"phase": Phase.SKIPPED, "facts": {"max_runs": 3}},
            [],
            "It did not run: the schedule may run 3 times, and had done so.",
        ),
        ({}, {"phase": Phase.SKIPPED}, [], "It did not run: the schedule had run as often as it may."),
    ],
    Reason.BUDGET_EXCEEDED: [
        (
            {},
            {"phase": Phase.SKIPPED, "facts": {"why": "the budget of user ada is $1"}},
            [],
            "It did not run: the budget of user ada is $1.",
        ),
        (
            {},
            {"phase": Phase.SKIPPED},
            [],
            "It did not run: a budget has no room for the next call of a model.",
        ),
        (
            {},
            {"phase": Phase.FAILED, "attempt": 1},
            [Outcome.FAILED],
            (
                "It ran and failed: a budget has no room for the next call of a model, with `ValueError: no disk` "
                "(attempt 1 of 1)."
            ),
        ),
    ],
    Reason.TOOL_LOOP: [
        (
            {},
            {"phase": Phase.FAILED, "attempt": 1},
            [Outcome.FAILED],
            (
                "It ran and failed: the agent called the same tool again and again, without getting further, with "
                "`ValueError: no disk` (attempt 1 of 1)."
            ),
        ),
    ],
    Reason.APPROVAL_DENIED: [
        (
            {},
            {"phase": Phase.SKIPPED, "facts": {"by": "eve", "comment": "too much"}},
            [],
            "It did not run: `eve` denied that it goes beyond its budget (too much).",
        ),
        ({}, {"phase": Phase.SKIPPED}, [], "It did not run: somebody denied that it goes beyond its budget."),
    ],
    Reason.APPROVAL_EXPIRED: [
        (
            {},
            {"phase": Phase.SKIPPED, "facts": {"why": "the budget of user ada is $1"}},
            [],
            (
                "It did not run: nobody decided in time whether it may go beyond its budget: the budget of user ada is "
                "$1."
            ),
        ),
        (
            {},
            {"phase": Phase.SKIPPED},
            [],
            "It did not run: nobody decided in time whether it may go beyond its budget.",
        ),
    ],
    Reason.EDITED: [
        (
            {},
            {"phase": Phase.SUPERSEDED},
            [],
            "It did not run: the schedule was edited, and its new rule does not name this time.",
        ),
    ],
    Reason.DELETED: [
        ({}, {"phase": Phase.CANCELLED}, [], "It did not run: the schedule was deleted."),
        ({}, {"phase": Phase.CANCELLED, **GAP}, [], f"It did not run: {LONG} due when the schedule was deleted."),
    ],
    Reason.ACCEPTED: [
        (
            PING,
            {"phase": Phase.AWAITING_COMPLETION, "attempt": 1, "deadline": 60},
            [None],
            "It has not reported: no ping has come yet, and one is expected by 2026-11-15 12:01:00 UTC.",
        ),
        (
            PING,
            {"phase": Phase.AWAITING_COMPLETION, "attempt": 1, "facts": {"deadline_set_by": "start"}},
            [None],
            "It is running: a ping said that its job started, and one about the end is expected.",
        ),
        (
            {},
            {"phase": Phase.AWAITING_COMPLETION, "attempt": 1, "deadline": 3_600},
            [None],
            (
                "It is running: the target accepted the work, and has time until 2026-11-15 13:00:00 UTC to say how it "
                "ended."
            ),
        ),
        (
            {},
            {"phase": Phase.AWAITING_COMPLETION, "attempt": 2, "deadline": 3_600, "facts": {"engine": "temporal"}},
            [None],
            (
                f"It is running: `temporal` carries it out as its workflow `{row(scheduled()).id}/2`, and has time "
                "until 2026-11-15 13:00:00 UTC to end it."
            ),
        ),
        (
            {},
            {"phase": Phase.AWAITING_COMPLETION, "attempt": 1},
            [None],
            "It is running: the target accepted the work, and has time to say how it ended.",
        ),
        (
            {},
            {
                "phase": Phase.AWAITING_COMPLETION,
                "attempt": 1,
                "deadline": 3_600,
                "facts": {"deadline_set_by": "window"},
            },
            [None],
            (
                "It is running: the target accepted the work, and has time until 2026-11-15 13:00:00 UTC, when its "
                "window closes, to say how it ended."
            ),
        ),
        (
            {},
            {
                "phase": Phase.AWAITING_COMPLETION,
                "attempt": 1,
                "deadline": 3_600,
                "stop": Reason.REPLACED,
                "facts": {"deadline_set_by": "window"},
            },
            [None],
            (
                "It is running: the target accepted the work, and has time until 2026-11-15 13:00:00 UTC to say how it "
                "ended."
            ),
        ),
    ],
    Reason.SUCCEEDED: [
        (
            {},
            {"phase": Phase.COMPLETED, "attempt": 1},
            [Outcome.COMPLETED],
            "It ran: node `n1` started it at 2026-11-15 12:00:01 UTC, and it took 2 seconds.",
        ),
        (
            TRIES | {"misfire_policy": ALL},
            {"phase": Phase.COMPLETED, "attempt": 2, "caught_up": 0},
            [Outcome.FAILED, Outcome.COMPLETED],
            (
                "It ran: it was missed at first, and the misfire policy `catch_up_all` took it up after all; node `n1` "
                "started it at 2026-11-15 12:00:11 UTC, and it took 2 seconds (attempt 2 of 3)."
            ),
        ),
        ({}, {"phase": Phase.COMPLETED, "attempt": 1}, [], "It ran: the target did the work."),
    ],
    Reason.FAILED: [
        (
            {},
            {"phase": Phase.FAILED, "attempt": 1},
            [Outcome.FAILED],
            "It ran and failed: the target reported a failure, with `ValueError: no disk` (attempt 1 of 1).",
        ),
        (
            {},
            {"phase": Phase.FAILED, "attempt": 1, "revision": 0},
            [],
            "It ran and failed: the target reported a failure (attempt 1).",
        ),
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1, "facts": {"is_final": True}},
            [Outcome.FAILED],
            (
                "It ran and failed: the target reported a failure, with `ValueError: no disk` (attempt 1 of 3); a "
                "failure of this kind is never retried."
            ),
        ),
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1, "facts": {"window_closes_at": "2026-11-15T12:01:00Z"}},
            [],
            (
                "It ran and failed: the target reported a failure (attempt 1 of 3); the next attempt would have come "
                "after its window, which closed at 2026-11-15 12:01:00 UTC."
            ),
        ),
    ],
    Reason.UNDELIVERABLE: [
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "attempt": 1},
            [Outcome.DELIVERY_FAILED],
            (
                "It could not be delivered: the target could not be reached, or refused the work, with "
                "`ValueError: no disk` (attempt 1 of 1)."
            ),
        ),
    ],
    Reason.TIMED_OUT: [
        (
            {"timeout": 90 * SECOND},
            {"phase": Phase.TIMED_OUT, "attempt": 1},
            [Outcome.TIMED_OUT],
            "It ran and timed out: the run took longer than its timeout of 1 minute 30 seconds (attempt 1 of 1).",
        ),
        (
            {},
            {"phase": Phase.TIMED_OUT, "attempt": 1},
            [Outcome.TIMED_OUT],
            "It ran and timed out: the run took longer than its timeout, with `ValueError: no disk` (attempt 1 of 1).",
        ),
        (
            TRIES,
            {"phase": Phase.TIMED_OUT, "attempt": 1, "facts": {"delivery": "at_most_once"}},
            [Outcome.TIMED_OUT],
            (
                "It ran and timed out: the run took longer than its timeout, with `ValueError: no disk` (attempt 1 of "
                "3); it may still have been at work, and `at_most_once` forbids another attempt then."
            ),
        ),
    ],
    Reason.COMPLETION_TIMED_OUT: [
        (PING, {"phase": Phase.TIMED_OUT, "attempt": 1}, [], "It was missed: no ping came in time."),
        (PING, {"phase": Phase.TIMED_OUT, "attempt": 1}, [Outcome.TIMED_OUT], "It was missed: ValueError: no disk."),
        (
            {},
            {"phase": Phase.TIMED_OUT, "attempt": 1},
            [],
            (
                "It ran and timed out: the target accepted the work, but did not say in time how it ended "
                "(attempt 1 of 1)."
            ),
        ),
    ],
    Reason.CANCELLED: [
        ({}, {"phase": Phase.CANCELLED}, [], "It did not run: someone asked for it to be cancelled."),
        (
            {},
            {"phase": Phase.CANCELLED, "attempt": 1},
            [Outcome.CANCELLED],
            "It was started and then cancelled: someone asked for it to be cancelled.",
        ),
    ],
    Reason.RETRY_SCHEDULED: [
        (
            TRIES,
            {"attempt": 1, "due": 400, "first_due": 0},
            [Outcome.FAILED],
            (
                "It has not ended yet: attempt 1 of 3 failed, with `ValueError: no disk`, and the next one is due at "
                "2026-11-15 12:06:40 UTC."
            ),
        ),
        (
            TRIES,
            {"attempt": 1, "due": 200, "first_due": 0, "revision": 0},
            [],
            "It has not ended yet: attempt 1 failed, and the next one has been due since 2026-11-15 12:03:20 UTC.",
        ),
    ],
    Reason.ATTEMPTS_EXHAUSTED: [
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 3},
            [Outcome.FAILED] * 3,
            (
                "It ran and failed: the attempt failed, and it was the last one allowed, with `ValueError: no disk` "
                "(attempt 3 of 3)."
            ),
        ),
    ],
    Reason.NOT_RETRIED: [
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1, "facts": {"exception": "ValueError"}},
            [Outcome.FAILED],
            (
                "It ran and failed: attempt 1 of 3 failed, with `ValueError: no disk`, and the retry policy does not "
                "retry `ValueError`."
            ),
        ),
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1},
            [],
            "It ran and failed: attempt 1 of 3 failed, and the retry policy does not retry its exception.",
        ),
    ],
    Reason.BUDGET_EXCEEDED: [
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1, "facts": {"is_final": True}},
            [Outcome.FAILED],
            (
                "It ran and failed: a budget has no room for the next call of a model, with `ValueError: "
                "no disk` (attempt 1 of 3); a failure of this kind is never retried."
            ),
        ),
    ],
    Reason.TOOL_LOOP: [
        (
            TRIES,
            {"phase": Phase.FAILED, "attempt": 1, "facts": {"is_final": True}},
            [Outcome.FAILED],
            (
                "It ran and failed: the agent called the same tool again and again, without getting further, with "
                "`ValueError: no disk` (attempt 1 of 3); a failure of this kind is never retried."
            ),
        ),
    ],
    Reason.LEASE_LOST: [
        (
            {},
            {"losses": 1},
            [Outcome.LEASE_LOST],
            (
                "It has not ended yet: the node that held it stopped, or was lost, so it is delivered again, from "
                "2026-11-15 12:00:00 UTC on."
            ),
        ),
    ],
    Reason.SUSPENDED: [
        (
            {},
            {},
            [Outcome.SUSPENDED],
            ("It has not ended yet: its workflow waits, and goes on from 2026-11-15 12:00:00 UTC on."),
        ),
    ],
    Reason.POISON: [
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "losses": 6, "facts": {"losses": 6, "max_losses": 5}},
            [Outcome.LEASE_LOST],
            (
                "It could not be delivered: its node was lost 6 times while it ran, so it is taken for the cause, and "
                "is not delivered again."
            ),
        ),
    ],
    Reason.OUTCOME_UNKNOWN: [
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "losses": 1, "attempt": 1},
            [Outcome.LEASE_LOST],
            (
                "It could not be delivered: delivery had begun when contact was lost, and it must not begin twice "
                "(attempt 1 of 1)."
            ),
        ),
    ],
    Reason.UNREADABLE: [
        (
            {},
            {"phase": Phase.DELIVERY_FAILED, "facts": {"problem": "no such trigger"}},
            [],
            "It could not be delivered: its stored record cannot be read (no such trigger).",
        ),
        ({}, {"phase": Phase.DELIVERY_FAILED}, [], "It could not be delivered: its stored record cannot be read."),
    ],
}
# Reasons of decisions that no row carries, and what is said of one that was caught up is told with what became of it.
OF_DECISIONS = {
    Reason.WITHIN_GRACE: "it has been due since 2026-11-15 12:00:00 UTC, and waits for a node that serves "
    "`function:tidy` to claim it",
    Reason.CAUGHT_UP: "it was missed at first, and the misfire policy `skip` took it up after all",
    Reason.WINDOW_OPEN: "the window in which it may run was open",
}


@pytest.mark.parametrize(
    ("reason", "declared", "fields", "outcomes", "said"),
    [pytest.param(reason, *case, id=f"{reason}-{place}") for reason in TOLD for place, case in enumerate(TOLD[reason])],
)
def test_every_reason_is_shown_with_its_numbers(reason, declared, fields, outcomes, said):
    assert explained(reason, declared, fields, outcomes).summary == said


def test_no_reason_is_without_a_sentence_and_a_rule():
    assert {*TOLD, *OF_DECISIONS} == set(CLAUSES) == set(DECIDED_BY) == set(Reason)
    assert set(LEADS) == set(Phase)


@pytest.mark.parametrize("reason", OF_DECISIONS)
def test_a_reason_that_no_row_carries_has_its_clause(reason):
    schedule = scheduled()
    assert CLAUSES[reason](Case(schedule=schedule, occurrence=row(schedule), now=NOW)) == OF_DECISIONS[reason]
