"""The overview: the day of a tenant in numbers, and what needs attention."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from noonmark.core import explain
from noonmark.core.budgets.budget import BudgetScope, Period
from noonmark.core.budgets.forecast import RUNS_READ, percentile
from noonmark.core.budgets.spend import to_dollars
from noonmark.core.fair_queue import rounds
from noonmark.core.halt import halted_text
from noonmark.core.ids import visible_id
from noonmark.core.instants import DAY, HOUR, SECOND, micros_to_seconds, to_text
from noonmark.core.lifecycle import FAILURES, MarkState, Phase, SchedulePhase
from noonmark.core.local_spans import LocalUnit, span_of
from noonmark.core.occurrence import in_force
from noonmark.core.outcomes import late_by
from noonmark.core.reasons import Reason
from noonmark.core.schedule import BY_ITSELF
from noonmark.core.triggers.zones import load_zone
from noonmark.operations.approvals import list_approvals
from noonmark.operations.budgets import list_budgets
from noonmark.operations.halts import halt_document
from noonmark.operations.models.arguments import ApprovalQuery, BudgetQuery
from noonmark.operations.serializers import lost_nodes
from noonmark.operations.target_policy import unserved_by
from noonmark.operations.timeline import schedule_name
from noonmark.operations.usage import fires_until, spenders
from noonmark.ports.budgets import UsageBy
from noonmark.ports.records import MarkScope, OccurrenceFilter, ScheduleFilter, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.proposals import Proposal
    from noonmark.operations.models.arguments import OverviewQuery
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import NodeRecord, StoredSchedule

SLOW: Micros = 10 * SECOND
"""What is due for longer and was not taken up is late."""
BLOCKING = " The fires of its schedule are skipped until it has ended."
MAX_LISTED = 20
"""How much that needs attention is listed."""
MAX_READ = 50
"""How many occurrences of each kind are read for it."""
MAX_SCHEDULES = 1_000
"""How many paused or failing schedules are looked at."""
MAX_COUNTED = 100
"""As far as approvals and proposals are counted."""
MAX_MODELS = 1_000
SPENDERS = 20
"""From how many schedules with usage the day is forecast."""


def get_overview(service: Service, caller: Caller, arguments: OverviewQuery) -> dict[str, Any]:
    """Get today's figures: fires, lateness, failures, runs, schedules, spend, nodes, and what needs attention."""
    store, tenant, now = service.store, caller.owner.tenant, service.store.clock()
    user = caller.owner.user if caller.sees_own_only else None
    scope = MarkScope(tenant=tenant, wanted=None if user is None else ScheduleFilter(user=user))
    midnight, following = span_of(load_zone(arguments.timezone), LocalUnit.DAY, now)
    today: Counter[tuple[MarkState, bool | None]] = Counter()
    for one in store.count_marks(scope, Span(since=midnight, until=now + 1, now=now), now + 1 - midnight):
        today[one.state, one.is_late] += one.count
    failed = sum(
        one.count
        for one in store.count_marks(scope, Span(since=now - DAY, until=now + 1, now=now), DAY + 1)
        if one.state is MarkState.FAILED
    )
    late = store.lateness(scope, Span(since=now - HOUR, until=now + 1, now=now), 99)
    phases = store.count_phases(tenant, user)
    approvals = list_approvals(service, caller, ApprovalQuery.read({"limit": MAX_COUNTED}))["approvals"]
    proposals = store.proposals(tenant, MAX_COUNTED, user=user)
    nodes = store.nodes()
    on_time = sum(count for (_, is_late), count in today.items() if is_late is False)
    # What failed without a start was missed, or could not be delivered.
    judged = sum(n for (state, is_late), n in today.items() if is_late is not None or state is MarkState.FAILED)
    return {
        "now_utc": to_text(now),
        "day_from_utc": to_text(midnight),
        "fires_today": sum(count for (state, _), count in today.items() if state is not MarkState.PLANNED),
        "on_time_share": on_time / judged if judged else None,
        "lateness_p99_seconds": None if late is None else micros_to_seconds(late),
        "failed_last_day": failed,
        "running": sum(count for (state, _), count in today.items() if state is MarkState.RUNNING),
        "queued": sum(count for (state, _), count in today.items() if state is MarkState.QUEUED),
        "schedules": {
            "total": sum(phases.values()),
            "active": phases.get(SchedulePhase.ACTIVE, 0),
            "paused": phases.get(SchedulePhase.PAUSED, 0),
            "completed": phases.get(SchedulePhase.COMPLETED, 0),
        },
        "spend": _spend(service, caller, midnight, following, now=now),
        "approvals_waiting": len(approvals),
        "proposals_waiting": len(proposals),
        "nodes": {
            "live": sum(node.is_alive for node in nodes),
            "leader": next((node.name for node in nodes if node.is_leader and node.is_alive and caller.is_root), None),
        },
        "halts": [halt_document(halt) for halt in store.halts(tenant)],
        "needs_look": _needs_look(_Attention(service, caller, nodes, phases, now), approvals, proposals),
    }


def _spend(service: Service, caller: Caller, midnight: Micros, following: Micros, *, now: Micros) -> dict[str, Any]:
    """What models cost today, the limit of the day, and what they will have cost."""
    store, tenant = service.store, caller.owner.tenant
    user = caller.owner.user if caller.sees_own_only else None
    groups = store.usage(tenant, UsageBy.MODEL, since=midnight, until=now + 1, limit=MAX_MODELS, user=user)
    spent = sum(group.usage.cost or 0 for group in groups)
    scope, scope_id = (BudgetScope.TENANT, tenant) if user is None else (BudgetScope.USER, user)
    standings = store.budgets(tenant, len(Period), scope=scope, scope_id=scope_id)
    limits = [one.budget.max_cost for one in standings if one.budget.period is Period.DAY]
    ahead = 0
    for stored in spenders(service, caller, SPENDERS, now=now):
        costs = sorted(cost for cost in store.costs_of_runs(stored.schedule.uid, RUNS_READ) if cost is not None)
        fires = fires_until(stored.schedule.declaration.trigger, now, following)
        if costs and fires and stored.schedule.phase is SchedulePhase.ACTIVE:
            ahead += fires * percentile(costs, 50)
    return {
        "today_usd": to_dollars(spent),
        "limit_usd": to_dollars(limits[0]) if limits and limits[0] is not None else None,
        "forecast_usd": to_dollars(spent + ahead),
    }


def _needs_look(
    attention: _Attention, approvals: Sequence[dict[str, Any]], proposals: Sequence[Proposal]
) -> list[dict[str, Any]]:
    """What needs attention, in the order of what it costs to ignore it."""
    service, caller, now = attention.service, attention.caller, attention.now
    entries = [*_halts(service, caller), *_no_node(attention.nodes, now)]
    entries += [*attention.of_pauses(), *attention.of_occurrences()]
    budgets = list_budgets(service, caller, BudgetQuery.read({"limit": MAX_READ}))["budgets"]
    entries += [entry for budget in budgets if (entry := _budget(budget, now)) is not None]
    entries += [
        _entry(
            "approval",
            approval["requested_at_utc"],
            approval["message"],
            schedule=(approval["schedule_id"], approval["schedule_name"]),
            occurrence_id=approval["occurrence_id"],
            action="approval/approve",
            named=approval["approval_id"],
        )
        for approval in approvals
    ]
    entries += [
        _entry(
            "proposal",
            to_text(proposal.proposed),
            f"`{proposal.by}` proposes to {proposal.action} it; it waits until {to_text(proposal.expires)}.",
            schedule=(proposal.schedule_id, proposal.name),
            action="schedule/approve",
            named=proposal.proposal_id,
        )
        for proposal in proposals
    ]
    kinds: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        kinds.setdefault(entry["kind"], []).append(entry)
    # In rounds, so that many of one kind do not hide the others.
    listed = {id(entry) for entry in rounds(list(kinds.values()), MAX_LISTED)}
    return [entry for entry in entries if id(entry) in listed]


def _entry(  # noqa: PLR0913 - each is a field of the entry
    kind: str,
    at: str,
    sentence: str,
    *,
    schedule: tuple[str | None, str | None] = (None, None),
    occurrence_id: str | None = None,
    action: str | None = None,
    named: str | None = None,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "schedule_id": schedule[0],
        "schedule_name": schedule[1],
        "occurrence_id": occurrence_id,
        "at_utc": at,
        "text": sentence,
        "action": action,
        "id": named,
    }


def _halts(service: Service, caller: Caller) -> list[dict[str, Any]]:
    entries = []
    for halt in service.store.halts(caller.owner.tenant):
        subject = halted_text(halt.labels, halt.lineage)
        why = "" if halt.reason is None else f" ({halt.reason})"
        sentence = f"{subject} is halted by `{halt.by}`{why}: nothing of it starts until that is lifted."
        entries.append(_entry("halt", to_text(halt.at), sentence, action="halt/lift", named=halt.halt_id))
    return entries


def _no_node(nodes: Sequence[NodeRecord], now: Micros) -> list[dict[str, Any]]:
    if any(node.is_alive for node in nodes):
        return []
    seen = max((node.seen for node in nodes), default=None)
    since = "" if seen is None else f" since {to_text(seen)}"
    return [_entry("no_node", to_text(now if seen is None else seen), f"No node has been alive{since}: nothing runs.")]


def _budget(budget: Mapping[str, Any], now: Micros) -> dict[str, Any] | None:
    """A budget that is nearly spent."""
    shares = [
        ((budget["spent_usd"] or 0) + (budget["reserved_usd"] or 0)) / budget["max_cost_usd"]
        if budget["max_cost_usd"]
        else 0,
        (budget["spent_tokens"] + budget["reserved_tokens"]) / budget["max_tokens"] if budget["max_tokens"] else 0,
    ]
    share = max(shares)
    if share < (budget["warning_threshold"] or 1):
        return None
    period = "in all" if budget["period"] == "total" else f"of this {budget['period']}"
    sentence = f"The budget {period} of {budget['scope']} `{budget['id']}` is spent to {share:.0%}."
    schedule = (budget["id"], None) if budget["scope"] == "schedule" else (None, None)
    return _entry(
        "budget",
        to_text(now),
        sentence,
        schedule=schedule,
        action="budget/set",
        named=f"{budget['scope']}/{budget['id']}",
    )


class _Attention:
    """What needs attention among the occurrences that a caller sees."""

    def __init__(
        self,
        service: Service,
        caller: Caller,
        nodes: Sequence[NodeRecord],
        phases: Mapping[SchedulePhase, int],
        now: Micros,
    ) -> None:
        self.service, self.caller, self.nodes, self.now = service, caller, nodes, now
        self._user = caller.owner.user if caller.sees_own_only else None
        self._phases, self._total = phases, sum(phases.values())
        self._known: dict[str, StoredSchedule] = {}

    def of_pauses(self) -> list[dict[str, Any]]:
        """The schedules that were paused because of what they did: nobody has decided that they should not run."""
        if not self._phases.get(SchedulePhase.PAUSED):
            return []
        wanted = ScheduleFilter(phases=frozenset({SchedulePhase.PAUSED}), user=self._user)
        paused = self.service.store.schedules(
            self.caller.owner.tenant, limit=MAX_SCHEDULES, wanted=wanted, newest_first=True
        )
        return [
            _entry(
                "paused",
                to_text(pause.at),
                f"It was paused automatically{'' if pause.reason is None else f' ({pause.reason})'}, and does not run "
                f"until {'it is resumed' if pause.until is None else to_text(pause.until)}.",
                schedule=(visible_id(stored.schedule.schedule_id), schedule_name(stored.schedule)),
                action="schedule/resume",
            )
            for stored in paused
            if (pause := stored.schedule.pause) is not None and pause.by == BY_ITSELF
        ]

    def of_occurrences(self) -> list[dict[str, Any]]:
        """What no node serves, is overdue, failed, was missed and is late; each schedule once of each kind."""
        store, tenant, now = self.service.store, self.caller.owner.tenant, self.now
        workload = store.workload(now=now, limit=MAX_READ, tenant=tenant)
        failed = self._failures()
        groups = [workload.due.occurrences, workload.overdue.occurrences, failed, workload.running.occurrences]
        self._known = store.find_uids({row.uid for rows in groups for row in rows})
        due, overdue, failed, running = ([row for row in rows if self._is_seen(row)] for rows in groups)
        not_served = [row for row in due if self._unserved(row) is not None]
        # A schedule that has completed since needs no look.
        broken = [row for row in failed if self._known[row.uid].counters.last_phase in FAILURES]
        late = [row for row in running if late_by(row.first_due, row.started) is not None and row.attempt == 1]
        late += [row for row in due if row.due < now - SLOW and self._unserved(row) is None]
        known_overdue = {row.uid for row in overdue}
        blocking = [row for row in running if row.uid not in known_overdue and self._is_blocking(row)]
        return [
            *self._entries("not_served", not_served, "schedule/update"),
            *self._entries("overdue", overdue, "occurrence/cancel"),
            *self._entries("overdue", blocking, "occurrence/cancel", BLOCKING),
            *self._entries("failed", [row for row in broken if row.phase is not Phase.MISFIRED], "occurrence/redrive"),
            *self._entries("missed", [row for row in broken if row.phase is Phase.MISFIRED], "schedule/backfill"),
            *self._entries("late", late, "occurrence/explain"),
        ]

    def _failures(self) -> list[Occurrence]:
        """The newest failures of the last day, then those of schedules that have only failed since.

        A schedule that fails every few seconds must not hide the others. In a large store only the newest are read.
        """
        store, tenant, user = self.service.store, self.caller.owner.tenant, self._user
        failures = OccurrenceFilter(phases=FAILURES, user=user, since=self.now - DAY)
        newest = list(store.search(tenant, failures, MAX_READ).occurrences)
        if self._total > MAX_SCHEDULES:
            return newest
        found = {row.uid for row in newest}
        wanted = ScheduleFilter(phases=frozenset({SchedulePhase.ACTIVE}), last_phases=FAILURES, user=user)
        failing = (stored.schedule.uid for stored in store.schedules(tenant, limit=MAX_SCHEDULES, wanted=wanted))
        others = [uid for uid in failing if uid not in found][:MAX_LISTED]
        return newest + [row for uid in others for row in store.occurrences(uid, 1, phases=FAILURES)]

    def _is_blocking(self, row: Occurrence) -> bool:
        """Whether the last fire of its schedule was skipped because it runs."""
        if self._known[row.uid].counters.last_phase is not Phase.SKIPPED:
            return False
        newest = self.service.store.occurrences(row.uid, 1, phases=[Phase.SKIPPED])
        return any(one.reason is Reason.OVERLAP and one.nominal > row.nominal for one in newest)

    def _is_seen(self, row: Occurrence) -> bool:
        return row.uid in self._known and self.caller.sees(self._known[row.uid].schedule)

    def _unserved(self, row: Occurrence) -> str | None:
        return unserved_by(self.nodes, self._known[row.uid].schedule, self.service.permissions)

    def _entries(
        self, kind: str, rows: Sequence[Occurrence], action: str, consequence: str = ""
    ) -> Iterator[dict[str, Any]]:
        first = {row.uid: row for row in reversed(rows)}
        for row in [row for row in rows if first[row.uid] is row][:MAX_LISTED]:
            schedule = self._known[row.uid].schedule
            explanation = explain.explain_occurrence(
                schedule,
                row,
                self.service.store.occurrence_runs(row.id),
                now=self.now,
                unserved=unserved_by(self.nodes, in_force(schedule, row), self.service.permissions),
                lost_node=lost_nodes(self.nodes, [row], now=self.now).get(row.node or ""),
            )
            yield _entry(
                kind,
                to_text(row.due if row.ended is None else row.ended),
                f"{explanation.summary}{consequence}",
                schedule=(visible_id(schedule.schedule_id), schedule_name(schedule)),
                occurrence_id=row.id,
                action=action,
            )
