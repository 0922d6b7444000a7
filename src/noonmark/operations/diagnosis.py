"""The judgement of the doctor: from facts about a store and its nodes to checks. Pure; `doctor` gathers the facts."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from noonmark.core.clock_trust import LONG_SILENCE, discrepancy
from noonmark.core.frozen import frozen
from noonmark.core.ids import shown_name
from noonmark.core.instants import SECOND, micros_to_seconds, to_text
from noonmark.ports.records import Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.records import Condition, Damaged, NodeRecord

OK, WARNING, PROBLEM = "ok", "warning", "problem"
MAX_NAMED = 5
"""How many schedules, nodes or occurrences a sentence names."""
APART: Micros = 60 * SECOND
"""How far two clocks may differ without a warning."""
SLOW: Micros = 10 * SECOND
"""A healthy node with room claims due work within this time."""
STUCK: Micros = 60 * SECOND
"""Work that is due for longer, and a deadline that passed longer ago, is a problem."""
MEGABYTE = 2**20
LARGE_JOURNAL = 256 * MEGABYTE
LITTLE_SPACE, NO_SPACE = 1024 * MEGABYTE, 128 * MEGABYTE


@frozen(kw_only=True)
class Disk:
    """The space on the file system of a path."""

    what: str
    """What is stored there."""
    path: str
    free: int
    """Bytes that this process may still write."""


@frozen(kw_only=True)
class Conflict:
    """Settings of a server that contradict each other."""

    sentence: str
    advice: str
    status: str = WARNING


@frozen(kw_only=True)
class EngineState:
    """What a node has last seen of its engine."""

    server: str
    problem: str | None = None
    """Why it does not answer."""
    unserved: Sequence[str] = ()
    """Routes that no worker delivers."""
    orphans: int = 0
    """Workflows without an occurrence, and occurrences without a workflow."""


@frozen(kw_only=True)
class Check:
    """The result of one check."""

    name: str
    status: str = OK
    sentence: str
    advice: str | None = None
    """What to do, unless it is ok."""

    def to_document(self) -> dict[str, Any]:
        """The check as an answer has it."""
        return {"check": self.name, "status": self.status, "detail": self.sentence, "advice": self.advice}


@frozen(kw_only=True)
class Clocks:
    """The clock of the store and what it is compared with."""

    now: Micros
    """The store's time."""
    machine: Micros
    """The time of the machine that looks."""
    remembered: Micros | None = None
    """The newest time that is stored."""
    unconfirmed: Micros | None = None
    """How far the store's time leapt ahead, while the node that answers does not believe it."""
    ahead: tuple[str, ...] = ()
    """Schedules that are planned further ahead than any plan made now would be."""


@frozen(kw_only=True)
class Targets:
    """The targets of the schedules that are due, wait or come next."""

    schedules: int
    unserved: Mapping[str, Sequence[str]]
    """The routes that no live node serves, with the names of their schedules."""


@frozen(kw_only=True)
class Facts:
    """What the doctor has found. Of a store with another schema there is only its condition."""

    condition: Condition
    rows: int = 0
    damaged: Sequence[Damaged] = ()
    is_complete: bool = True
    """Whether all rows were checked."""
    clocks: Clocks | None = None
    nodes: Sequence[NodeRecord] = ()
    zone_data: str = ""
    """The version of the time zone data of the process that answers."""
    halts: Sequence[Halt] = ()
    """What does not start, since somebody halted it."""
    targets: Targets | None = None
    """None where no node is alive: the nodes that start may serve anything."""
    workload: Workload = field(default_factory=Workload)
    disks: Sequence[Disk] = ()
    conflicts: Sequence[Conflict] | None = None
    """None where there is no server, and so no settings."""
    engine: EngineState | None = None
    """None without an engine, and where no node knows it."""


def judge(facts: Facts) -> list[Check]:
    """The checks of a store, in the order in which they are shown."""
    checks = [_store(facts.condition), _schema(facts.condition)]
    if facts.clocks is not None:
        now = facts.clocks.now
        checks += [
            _rows(facts),
            _clock(facts.clocks, facts.nodes),
            _zones(facts),
            _leader(facts.nodes),
            _nodes(facts.nodes, now),
            _halts(facts.halts),
            _targets(facts.targets),
            _lag(facts, now),
            _overdue(facts, now),
        ]
    if facts.engine is not None:
        checks.append(_engine(facts.engine))
    if facts.disks:
        checks.append(_disk(facts.disks))
    if facts.conflicts is not None:
        checks.append(_settings(facts.conflicts))
    return checks


def overall(checks: Sequence[Check]) -> str:
    """The status of all checks: `ok`, `warnings` or `problems`."""
    statuses = {check.status for check in checks}
    return "problems" if PROBLEM in statuses else "warnings" if WARNING in statuses else OK


def _halts(halts: Sequence[Halt]) -> Check:
    if not halts:
        return Check(name="halts", sentence="nothing is halted")
    each = (
        f"{halt.halt_id} of tenant {halt.tenant} by {halt.by} since {to_text(halt.at)}" for halt in halts[:MAX_NAMED]
    )
    more = f" and {len(halts) - MAX_NAMED} more" if len(halts) > MAX_NAMED else ""
    return Check(
        name="halts",
        status=WARNING,
        sentence=f"what these cover does not start: {'; '.join(each)}{more}",
        advice="Lift a halt when its cause is gone: noonmark unhalt HALT-ID",
    )


def _store(condition: Condition) -> Check:
    about = f"{condition.kind} {condition.version}".strip()
    journal = condition.journal_bytes or 0
    if condition.journal_bytes is not None:
        about += f", {journal // MEGABYTE} MB in its journal"
    if condition.problems:
        return Check(
            name="store",
            status=PROBLEM,
            sentence=f"{about}; {'; '.join(condition.problems)}",
            advice="Look into the log of the server, and at its disk"
            if condition.promise
            else "Copy the file, then restore a backup with `noonmark restore`",
        )
    if condition.is_lossy:
        return Check(
            name="store",
            status=WARNING,
            sentence=f"{about}: {condition.promise}",
            advice="Set appendonly to yes, appendfsync to always and maxmemory-policy to noeviction, unless losses are"
            " acceptable",
        )
    if condition.promise:
        return Check(name="store", sentence=f"{about}: {condition.promise}")
    if journal > LARGE_JOURNAL:
        return Check(
            name="store",
            status=WARNING,
            sentence=f"{about}: a reader has been open for long",
            advice="Find the program that keeps the file open, and end its transaction",
        )
    fine = "sound as a whole" if condition.is_complete else "too large to be checked to its end; nothing wrong so far"
    return Check(name="store", sentence=f"{about}, {fine}")


def _schema(condition: Condition) -> Check:
    if condition.schema == condition.expected_schema:
        return Check(name="schema", sentence=f"version {condition.schema}" if condition.schema else "none is needed")
    if not condition.schema:
        return Check(
            name="schema",
            status=PROBLEM,
            sentence=f"there is none yet, and this Noonmark needs version {condition.expected_schema}",
            advice="Create it with `noonmark migrate`",
        )
    is_newer = condition.schema > condition.expected_schema
    return Check(
        name="schema",
        status=PROBLEM,
        sentence=f"it has version {condition.schema}, which is {'newer' if is_newer else 'older'} than"
        f" {condition.expected_schema}, the version of this Noonmark; nothing else in the store was checked",
        advice="Install the newer Noonmark here" if is_newer else "Upgrade the store with `noonmark migrate`",
    )


def _rows(facts: Facts) -> Check:
    those = "all" if facts.is_complete else "the first"
    count = len({(cell.table, cell.key) for cell in facts.damaged})
    if not count:
        return Check(name="rows", sentence=f"{those} {facts.rows} are sound")
    schedules = sorted({cell.schedule_id for cell in facts.damaged if cell.schedule_id is not None})
    of = f", of the schedules {_named(schedules)}" if schedules else ""
    return Check(
        name="rows",
        status=PROBLEM,
        sentence=f"{count} damaged among {those} {facts.rows}{of}",
        advice="Copy the store, then repair each row as it says below",
    )


def _clock(clocks: Clocks, nodes: Sequence[NodeRecord]) -> Check:
    now, problems = clocks.now, []
    if abs(now - clocks.machine) > APART:
        way = "ahead of" if now > clocks.machine else "behind"
        problems.append(f"the store is {_seconds(now - clocks.machine)} {way} the machine that looks")
    if clocks.unconfirmed is not None:
        problems.append(
            f"the store's time leapt ahead by {_seconds(clocks.unconfirmed)}, and this node plans and changes nothing"
            " until it returns, has gone on for a lease, or is confirmed by `noonmark worker confirm-time`"
        )
    apart = discrepancy(now, clocks.remembered)
    if apart > LONG_SILENCE:
        problems.append(
            f"the store was not used for {_seconds(apart)}, or its time is ahead: a node that starts waits for a lease"
        )
    elif apart < 0:
        problems.append(
            f"the store remembers a time {_seconds(apart)} ahead of now: its clock was ahead once, or is behind; nodes"
            " set such times back once none was written for a lease"
        )
    problems += [
        f"node {node.name} was last seen {_seconds(node.seen - now)} in the future"
        for node in nodes
        if node.seen > now + APART
    ]
    if clocks.ahead:
        problems.append(
            "schedules are planned further ahead than any plan made now would be:"
            f" {len(clocks.ahead)} ({_named(clocks.ahead)})"
        )
    if not problems:
        return Check(name="clock", sentence="store and machine agree, and nothing stored lies ahead of them")
    return Check(
        name="clock",
        status=PROBLEM,
        sentence="; ".join(problems),
        advice="Set the clocks of the machines by NTP; nodes then correct what a wrong clock wrote",
    )


def _zones(facts: Facts) -> Check:
    versions: dict[str, list[str]] = {}
    for node in _alive(facts.nodes):
        if node.zone_data:
            versions.setdefault(node.zone_data, []).append(node.name)
    if facts.zone_data:
        versions.setdefault(facts.zone_data, [])
    if len(versions) < 2:
        known = next(iter(versions), "")
        return Check(name="zones", sentence=f"time zone data {known}" if known else "no version is known")
    described = "; ".join(
        f"{version} on {_named(names) if names else 'the machine that looks'}"
        for version, names in sorted(versions.items())
    )
    return Check(
        name="zones",
        status=WARNING,
        sentence=f"nodes have different time zone data: {described}",
        advice="Upgrade tzdata, of the operating system or the Python package, on the older ones, and restart",
    )


def _leader(nodes: Sequence[NodeRecord]) -> Check:
    leader = next((node.name for node in nodes if node.is_leader), None)
    if leader is not None:
        return Check(name="leader", sentence=f"{leader} leads")
    if not _alive(nodes):
        return Check(name="leader", sentence="there is no leader, because no node is alive")
    return Check(
        name="leader",
        status=PROBLEM,
        sentence="nodes are alive, but none of them leads: nothing is cleaned up, and lost work is not taken over",
        advice="Wait for a lease and look again; if it stays, the log of the nodes says why they cannot lead",
    )


def _nodes(nodes: Sequence[NodeRecord], now: Micros) -> Check:
    alive = _alive(nodes)
    dead = [node for node in nodes if not node.is_alive and node.left is None]
    if dead:
        gone = [node.name for node in dead if node.gone is not None]
        silent = [f"{node.name} for {_seconds(now - node.seen)}" for node in dead if node.gone is None]
        kinds = {"the process is gone without having stopped": gone, "silent without having stopped": silent}
        unserved = "; ".join(f"{kind}: {_named(names)}" for kind, names in kinds.items() if names)
        return Check(
            name="nodes",
            status=WARNING if alive else PROBLEM,
            sentence=f"{len(alive)} alive; {unserved}",
            advice="Start them again, unless others replace them; a dead node is listed for a day",
        )
    versions = sorted({node.version for node in alive})
    if len(versions) > 1:
        return Check(
            name="nodes",
            status=WARNING,
            sentence=f"{len(alive)} alive, of different versions: {', '.join(versions)}",
            advice="Finish the upgrade: restart the older nodes with the newer version",
        )
    return Check(name="nodes", sentence=f"{len(alive)} alive" if alive else "no node uses this store at present")


def _targets(targets: Targets | None) -> Check:
    if targets is None:
        return Check(name="targets", sentence="not checked, because no node is alive")
    if not targets.unserved:
        return Check(
            name="targets", sentence=f"live nodes serve those of the next schedules to run ({targets.schedules:,})"
        )
    routes = sorted(targets.unserved)[:MAX_NAMED]
    each = (f"{route} ({_named(targets.unserved[route])})" for route in routes)
    more = f" and {len(targets.unserved) - MAX_NAMED} more" if len(targets.unserved) > MAX_NAMED else ""
    return Check(
        name="targets",
        status=WARNING,
        sentence=f"no live node serves {', '.join(each)}{more}",
        advice=f"Start a node that serves {', '.join(routes)}{more}, or correct the target: noonmark schedule update",
    )


def _lag(facts: Facts, now: Micros) -> Check:
    due = facts.workload.due
    if not due.occurrences:
        return Check(name="lag", sentence="nothing is due that no node has claimed")
    oldest = due.occurrences[0]
    lag = max(0, now - oldest.due)
    count = f"{due.count:,}{'' if due.is_complete else ' or more'}"
    sentence = f"{count} due and unclaimed, the oldest for {_seconds(lag)} ({_one(oldest)})"
    if lag <= SLOW:
        return Check(name="lag", sentence=sentence)
    alive = _alive(facts.nodes)
    served = {route for node in alive for route in node.routes}
    missing = sorted({row.route for row in due.occurrences} - served)
    if not alive:
        advice = "Start a node: `noonmark serve`"
    elif missing:
        advice = f"Start a node that serves {_named(missing)}"
    else:
        advice = "Add nodes, or look into the log of the nodes for what keeps them from claiming"
    return Check(name="lag", status=WARNING if lag <= STUCK else PROBLEM, sentence=sentence, advice=advice)


def _overdue(facts: Facts, now: Micros) -> Check:
    late = [
        row for row in facts.workload.overdue.occurrences if row.deadline is not None and row.deadline < now - STUCK
    ]
    if not late:
        return Check(name="overdue", sentence="no run is past its deadline")
    count = (
        max(len(late), facts.workload.overdue.count)
        if len(late) == len(facts.workload.overdue.occurrences)
        else len(late)
    )
    return Check(
        name="overdue",
        status=PROBLEM,
        sentence=f"{count:,} past their deadline, and no node has ended them: {_named([_one(row) for row in late])}",
        advice="Nodes end them within seconds; start one, or look into the log of the leader",
    )


def _disk(disks: Sequence[Disk]) -> Check:
    least = min(disks, key=lambda disk: disk.free)
    sentence = "; ".join(f"{disk.free // MEGABYTE:,} MB free for {disk.what} ({disk.path})" for disk in disks)
    if least.free >= LITTLE_SPACE:
        return Check(name="disk", sentence=sentence)
    return Check(
        name="disk",
        status=WARNING if least.free >= NO_SPACE else PROBLEM,
        sentence=sentence,
        advice=f"Free space on the file system of {least.path}, or keep less: --keep-days, --upload-quota-bytes",
    )


def _engine(engine: EngineState) -> Check:
    if engine.problem is not None:
        return Check(
            name="engine",
            status=PROBLEM,
            sentence=engine.problem,
            advice="What it carries out waits for it; see its own log, and `noonmark engine check`",
        )
    if engine.unserved:
        routes = " ".join(f"--routes {route}" for route in engine.unserved[:MAX_NAMED])
        return Check(
            name="engine",
            status=PROBLEM,
            sentence=f"no worker delivers {_named(engine.unserved)}",
            advice=f"Start one: noonmark temporal-worker {routes}",
        )
    if engine.orphans:
        return Check(
            name="engine",
            status=WARNING,
            sentence=f"workflows and occurrences without their counterpart: {engine.orphans}",
            advice="`noonmark engine check` lists them, and ends them with --end-orphans",
        )
    return Check(name="engine", sentence=f"{engine.server} has answered, and no route lacks a worker")


def _settings(conflicts: Sequence[Conflict]) -> Check:
    if not conflicts:
        return Check(name="settings", sentence="none contradicts another")
    return Check(
        name="settings",
        status=PROBLEM if any(one.status == PROBLEM for one in conflicts) else WARNING,
        sentence="; ".join(one.sentence for one in conflicts),
        advice="; ".join(one.advice for one in conflicts),
    )


def _alive(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    return [node for node in nodes if node.is_alive]


def _one(row: Occurrence) -> str:
    return f"{shown_name(row.schedule_id)} {row.id}"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", .." if len(names) > MAX_NAMED else "")


def _seconds(time: Micros) -> str:
    return f"{micros_to_seconds(abs(time)):,.0f} s"
