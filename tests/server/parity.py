"""The requests of the parity tests: rows for each operation, and rows that every transport must reject alike."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from noonmark.core.admission import refused
from noonmark.core.agents.session import Message, Role
from noonmark.core.api_key import Scope
from noonmark.core.budgets.budget import Reservation
from noonmark.core.budgets.budget import approval_id as budget_approval_id
from noonmark.core.budgets.spend import Amount
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.occurrence import in_force
from noonmark.core.settlement import Accepted, settle
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun, approval_id
from noonmark.operations import bundles
from noonmark.operations.service import LOCAL
from noonmark.operations.table import perform
from noonmark.operations.uploads import Intake
from noonmark.ports.sessions import Turn
from noonmark.ports.workflows import ApprovalRequest, StepWrites
from noonmark.testing.conformance.bench import start
from tests.embedded.waiting import eventually
from tests.server.packed import packed

LATER = "2036-01-01T00:00:00Z"
YEARLY = {"type": "cron", "expression": "0 12 1 1 *", "timezone": "UTC", "start_at_utc": LATER}
NOBODY = {"target_kind": "function", "function": "nobody"}
WORKFLOW = {"target_kind": "workflow", "workflow_id": "elsewhere"}
HOURLY = {"type": "interval", "every_seconds": 3_600, "start_at_utc": LATER}
PAST = {"type": "interval", "every_seconds": 86_400, "start_at_utc": "2026-01-01T00:00:00Z"}
PAST_DAY = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
AS_OPTIONS = ("--function", "nobody", "--cron", "0 12 1 1 *", "--timezone", "UTC", "--start-at", LATER)
SEALED = {"value": "Bearer 0123456789", "hosts": ["api.example.com", "*.example.org:8443"]}
CARRIES = {"target_kind": "http", "url": "https://api.example.com", "secret_headers": {"Authorization": "nothing"}}
PINGED = {"target_kind": "ping"}
STEPS = [
    {"id": "fetch", "target": NOBODY, "input": {"n": "{{ inputs.n }}"}},
    {"id": "load", "target": NOBODY, "depends_on": ["fetch"]},
]
FLOW = {"name": "nightly", "inputs": {"n": 1}, "steps": STEPS}
PROPOSER = replace(LOCAL, name="agent", key_id="nm_live_agent1", scopes=frozenset({Scope.PROPOSE}))
ASKS = {"steps": [{"id": "ask", "approval": {"message": "Publish it?"}}]}
AGENT = {"model": "test", "system_prompt": "Be brief.", "labels": {"team": "ops"}}
CREW = {
    "members": [{"member_id": "writer", "model": "test", "role": "editor"}],
    "flows": {"news": {"steps": [{"id": "draft", "member_id": "writer", "prompt": "Go."}]}},
}
_FILES = TemporaryDirectory()
_numbers = count(1)


class Stage:
    """The data that operations work on; it is created by operations."""

    def __init__(self, service):
        self.service, self.tenant = service, LOCAL.owner.tenant

    def do(self, operation, **arguments):
        return perform(self.service, LOCAL, operation, arguments)

    def name(self):
        """A unique name."""
        return f"parity-{next(_numbers)}"

    def schedule(self, **fields):
        made = self.do("schedule/create", **{"schedule_id": self.name(), "trigger": YEARLY, "target": NOBODY, **fields})
        return made["schedule_id"]

    def workflow(self, **fields):
        """The id of a workflow."""
        return self.do("workflow/create", **{"workflow_id": self.name(), **FLOW, **fields})["workflow_id"]

    def named_workflow(self):
        """A workflow that a schedule names."""
        workflow = self.workflow()
        self.schedule(target={"target_kind": "workflow", "workflow_id": workflow})
        return {"workflow_id": workflow}

    def workflow_run(self, **fields):
        """The id of a workflow run that no node can start."""
        return self.do("workflow/run", workflow_id=self.workflow(**fields), key="waiting")["workflow_run_id"]

    @cached_property
    def kept_workflow(self):
        """A workflow with two versions that is only read."""
        return self.workflow(workflow_id=self.workflow(), description="the second")

    @cached_property
    def kept_run(self):
        """A run that is only read, and waits for an approval."""
        return self.do("approval/list")["approvals"][0]["workflow_run_id"] if self.approval() else None

    def approval(self):
        """The id of an approval that a workflow run waits for."""
        run = self.workflow_run(**ASKS, inputs={})
        store, lease, asked_id = self.service.store, 60 * SECOND, approval_id(run, "ask", 1)
        now = store.clock()
        [claim] = store.claim("taker", ["workflow"], now=now, until=now, limit=9, lease=lease, only=run)
        [admitted] = store.admit([start(claim)], now=now, lease=lease)
        target = in_force(claim.schedule, claim.occurrence).declaration.target
        begun = WorkflowRun(
            occurrence_id=run, workflow_id=target.workflow_id, version=target.version, inputs={}, started=now
        )
        step = StepRecord(step_id="ask", phase=StepPhase.RUNNING, attempt=1, started=now, is_external=True)
        asked = ApprovalRequest(
            approval_id=asked_id, step_id="ask", message="Publish it?", expires=now + DAY_SECONDS * SECOND
        )
        writes = StepWrites(
            occurrence_id=run, fence=admitted.occurrence.fence, run=begun, steps=[step], approvals=[asked]
        )
        assert store.commit_steps([writes]) == [True]
        return asked_id

    def session(self, **fields):
        """The id of a session."""
        return self.do("session/create", **{"session_id": self.name(), **AGENT, **fields})["session_id"]

    def named_session(self):
        """A session that a schedule names."""
        session = self.session()
        action = {"type": "prompt", "prompt": "go"}
        self.schedule(
            target={"target_kind": "session", "type": "exact_session", "session_id": session, "action": action}
        )
        return {"session_id": session}

    def archived_session(self):
        """A session that takes no messages."""
        return self.do("session/archive", session_id=self.session())["session_id"]

    @cached_property
    def kept_session(self):
        """A session with messages that is only read."""
        session = self.session(labels={"kept": "yes"})
        occurrence_id = self.do("session/send", session_id=session, prompt="go", key="once")["occurrence_id"]
        store, lease = self.service.store, 60 * SECOND
        now = store.clock()
        [claim] = store.claim("taker", ["session"], now=now, until=now, limit=9, lease=lease, only=occurrence_id)
        [admitted] = store.admit([start(claim)], now=now, lease=lease)
        tenant = claim.schedule.owner.tenant
        turn = Turn(tenant=tenant, session_id=session, occurrence_id=occurrence_id, fence=admitted.occurrence.fence)
        said = [Message(role=role, parts=({"type": "text", "text": "hi"},)) for role in (Role.USER, Role.ASSISTANT)]
        assert store.begin_turn(turn, said) is not None
        return session

    def mob(self, **fields):
        """The id of a mob."""
        return self.do("mob/create", **{"mob_id": self.name(), **CREW, **fields})["mob_id"]

    @cached_property
    def kept_mob(self):
        """A mob that is only read."""
        return self.mob()

    def occurrence_approval(self):
        """The id of an approval that an occurrence beyond a budget waits for."""
        schedule = self.schedule(target={"target_kind": "task", "query": "what is new"}, name="news")
        self.do("budget/set", scope="schedule", id=schedule, period="day", max_tokens=1, require_approval=True)
        occurrence_id = self.do("schedule/run", schedule_id=schedule, key="asks")["occurrence_id"]
        store, lease = self.service.store, 60 * SECOND
        now = store.clock()
        [claim] = store.claim("taker", ["task"], now=now, until=now, limit=9, lease=lease, only=occurrence_id)
        call = Reservation(
            call_id=f"{occurrence_id}/first",
            tenant=claim.schedule.owner.tenant,
            user=claim.schedule.owner.user,
            schedule_id=schedule,
            session_id=None,
            occurrence_id=occurrence_id,
            fence=None,
            model="m",
            provider=None,
            most=Amount(tokens=2),
        )
        [busy] = store.admit([replace(start(claim), reservation=call)], now=now, lease=lease)
        [waiting] = store.admit([refused(claim, busy)], now=now, lease=lease)
        assert waiting.occurrence.waiting_for == "approval"
        return budget_approval_id(occurrence_id)

    def proposed(self, **fields):
        """The id of a schedule that an agent proposes."""
        asked = {"schedule_id": self.name(), "trigger": YEARLY, "target": NOBODY, **fields}
        return self._propose("schedule/create", asked)["schedule_id"]

    def _propose(self, operation, arguments):
        caller = replace(PROPOSER, owner=replace(PROPOSER.owner, tenant=self.tenant))
        return perform(self.service, caller, operation, arguments)

    @cached_property
    def kept_proposal(self):
        """A schedule with a proposed change, which is only read."""
        schedule = self.schedule(description="old")
        self._propose("schedule/update", {"schedule_id": schedule, "description": "new"})
        return schedule

    def upload(self):
        """A stored upload."""
        intake = Intake(self.service, LOCAL, self.name())
        intake.write(b"something")
        made = intake.finish({"filename": "a.txt"}, "text/plain")
        intake.drop()
        return made["upload_id"]

    def bundle(self):
        """A bundle that no schedule names."""
        intake = bundles.Intake(self.service, LOCAL, self.name())
        intake.write(packed())
        made = intake.finish("eval.zip")
        intake.drop()
        return made["bundle_id"]

    def budget(self):
        """The id of a schedule with a budget."""
        schedule = self.schedule()
        self.do("budget/set", scope="schedule", id=schedule, period="month", max_cost_usd=1)
        return schedule

    def halted(self):
        """The id of a halt that covers no schedule."""
        return self.do("halt/set", labels={"of": self.name()})["halt_id"]

    def halted_lineage(self):
        """The lineage of such a halt."""
        of = {"lineage": self.name()}
        self.do("halt/set", **of)
        return of

    def halted_labels(self):
        """The labels of such a halt."""
        of = {"of": self.name()}
        self.do("halt/set", labels=of)
        return of

    @cached_property
    def kept_budget(self):
        """The id of a schedule with a budget that is only read."""
        return self.budget()

    @cached_property
    def kept_usage(self):
        """The id of a schedule with usage."""
        schedule = self.schedule(name="spender")
        self.do("usage/record", idempotency_key=schedule, schedule_id=schedule, model="m", tokens=1_000, cost_usd=0.25)
        return schedule

    @cached_property
    def kept_bundle(self):
        """A bundle that is only read."""
        return self.bundle()

    def key(self):
        """The id of a key of this store."""
        return self.do("key/create", tenant="acme", scopes="read")["key_id"]

    def secret(self):
        return self.do("secret/set", name=self.name(), **SEALED)["name"]

    def paused(self):
        return self.do("schedule/pause", schedule_id=self.schedule())["schedule_id"]

    def labelled(self, **fields):
        """Labels that only one new schedule has."""
        labels = {"batch": self.name()}
        self.schedule(labels=labels, **fields)
        return labels

    @cached_property
    def kept_backfill(self):
        """A backfill that is only read."""
        return self.backfilled()

    def backfilled(self):
        """A backfill that no node can run."""
        schedule = self.schedule(trigger=PAST)
        range_ = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-03T00:00:00Z"}
        return {
            "schedule_id": schedule,
            "backfill_id": self.do("schedule/backfill", schedule_id=schedule, key="again", **range_)["backfill_id"],
        }

    def waiting(self):
        """An occurrence that no node can run."""
        return self.do("schedule/run", schedule_id=self.schedule(), key="waiting")["occurrence_id"]

    def cancelled(self):
        """An occurrence that was cancelled before it ran."""
        return self.do("occurrence/cancel", occurrence_id=self.waiting())["occurrence_id"]

    def accepted(self, **fields):
        """An occurrence that awaits its completion by a client."""
        schedule = self.schedule(target=WORKFLOW, **fields)
        occurrence_id = self.do("schedule/run", schedule_id=schedule, key="taken")["occurrence_id"]
        store, lease = self.service.store, 60 * SECOND
        now = store.clock()
        [claim] = store.claim("taker", ["workflow"], now=now, until=now, limit=9, lease=lease, only=occurrence_id)
        [admitted] = store.admit([start(claim)], now=now, lease=lease)
        taken = Accepted(started=now, accepted=now, deadline=now + DAY_SECONDS * SECOND)
        assert store.settle([settle(admitted.occurrence, claim.schedule, taken, node="taker")])[0]
        return occurrence_id

    def busy(self):
        """A schedule with an occurrence in flight."""
        return self.do("occurrence/get", occurrence_id=self.accepted())["schedule_id"]

    def completed(self):
        """A schedule that has run once, its occurrence and its run."""
        worker, schedule = (
            self.service.worker,
            self.schedule(target={**NOBODY, "function": "greet"}, labels={"has": "run"}),
        )
        worker.start()
        occurrence_id = self.do("schedule/run", schedule_id=schedule, key="once", payload="you")["occurrence_id"]
        eventually(lambda: self.do("occurrence/get", occurrence_id=occurrence_id)["phase"] == "completed")
        worker.stop()
        [run] = self.do("occurrence/runs", occurrence_id=occurrence_id)["runs"]
        return schedule, occurrence_id, run["run_id"]


@dataclass(frozen=True)
class Row:
    """One request: its arguments, and the command that does the same, if there is one."""

    operation: str
    arguments: Callable[[Stage], dict] = lambda _: {}
    command: Callable[[dict], tuple] | None = None
    of_command: Callable[[dict], dict] = lambda document: document
    """Extracts the answer of the operation from what the command prints."""
    audited: int = 0
    """Entries in the audit log of the schedule after the request; 0 if there is no schedule."""


def _on(*words, **options):
    """A command with the first argument as id, and some of the others as options."""

    def command(arguments):
        ids = [arguments[one] for one in arguments if one.endswith("_id")][:1]
        given = [(option, str(arguments[name])) for name, option in options.items() if name in arguments]
        return (*words, *ids, *(word for pair in given for word in pair))

    return command


def _on_backfill(verb):
    """A command for one backfill."""

    def command(asked):
        reason = ("--reason", asked["reason"]) if "reason" in asked else ()
        return ("backfill", verb, asked["schedule_id"], asked["backfill_id"], *reason)

    return command


def _create_workflow(asked):
    """A command that creates a workflow from a file."""
    file = Path(_FILES.name) / f"{asked.get('workflow_id')}.json"
    file.write_text(json.dumps(asked), "utf-8")
    return ("workflow", "create", str(file))


def _create_mob(asked):
    """A command that creates a mob from a file."""
    file = Path(_FILES.name) / f"{asked.get('mob_id')}.json"
    file.write_text(json.dumps(asked), "utf-8")
    return ("mob", "create", str(file))


def _create_session(asked):
    """A command that creates a session."""
    labels = [word for name, value in asked.get("labels", {}).items() for word in ("--label", f"{name}={value}")]
    prompt = ("--system-prompt", asked["system_prompt"]) if "system_prompt" in asked else ()
    return ("session", "create", asked["session_id"], "--model", asked["model"], *prompt, *labels)


def _set_secret(asked):
    hosts = [word for host in asked["hosts"] for word in ("--host", host)]
    programs = [word for program in asked.get("programs", ()) for word in ("--program", program)]
    return ("secret", "set", asked["name"], *hosts, *programs, "--value", asked["value"])


def _selecting(verb):
    """A command on all schedules with a label."""

    def command(asked):
        more = [word for name in ("reason", "until") if name in asked for word in (f"--{name}", asked[name])]
        labels = [word for name, value in asked["labels"].items() for word in ("--label", f"{name}={value}")]
        return ("schedule", verb, *labels, *more)

    return command


LOOKS = (
    Row("schedule/get", lambda at: {"schedule_id": at.ids[0]}, _on("schedule", "status"),
        lambda document: {name: one for name, one in document.items() if name != "occurrences"}),
    Row("schedule/list", lambda _: {"labels": {"has": "run"}, "kind": "periodic", "phase": "active", "limit": 1_000},
        _on("schedule", "list", "--label", "has=run", kind="--kind", phase="--status", limit="--limit")),
    Row("schedule/count", lambda _: {"labels": {"has": "run"}, "phase": ["active", "paused"]}),
    Row("schedule/preview", lambda at: {"schedule_id": at.ids[0], "after": LATER, "count": 2},
        _on("schedule", "preview", after="--after", count="--count")),
    Row("schedule/preview", lambda _: {"trigger": YEARLY, "count": 3},
        _on("schedule", "preview", *AS_OPTIONS[2:], count="--count")),
    Row("schedule/preview", lambda at: {"schedule_id": at.ids[0], "changes": {"trigger": YEARLY}, "count": 2}),
    Row("crontab/read", lambda _: {"text": "CRON_TZ=Europe/Stockholm\n*/5 * * * * backup --all\n99 * * * * x\n"}),
    Row("schedule/check", lambda at: {"schedules": [{"schedule_id": at.ids[0], "max_runs": 0}, {"trigger": YEARLY}]}),
    Row("schedule/occurrences", lambda at: {"schedule_id": at.ids[0], "phase": "completed", "limit": 10},
        _on("schedule", "occurrences", phase="--phase", limit="--limit")),
    Row("schedule/runs", lambda at: {"schedule_id": at.ids[0], "limit": 10}, _on("schedule", "runs", limit="--limit")),
    Row("backfill/list", lambda at: {"schedule_id": at.kept_backfill["schedule_id"]}, _on("backfill", "list")),
    Row("backfill/get", lambda at: at.kept_backfill, _on_backfill("show")),
    Row("schedule/explain", lambda at: {"schedule_id": at.ids[0], "at": "2036-01-01T13:00:00Z"},
        _on("schedule", "explain", at="--at")),
    Row("occurrence/list", lambda at: {"schedule_id": at.ids[0], "phase": ["completed"], "limit": 10},
        lambda asked: ("failures", "--schedule", asked["schedule_id"], "--phase", "completed", "--limit", "10")),
    Row("occurrence/get", lambda at: {"occurrence_id": at.ids[1]}),
    Row("occurrence/runs", lambda at: {"occurrence_id": at.ids[1]}),
    Row("occurrence/explain", lambda at: {"occurrence_id": at.ids[1]}, _on("schedule", "explain")),
    Row("run/get", lambda at: {"run_id": at.ids[2]}),
    Row("workflow/get", lambda at: {"workflow_id": at.kept_workflow}, _on("workflow", "show")),
    Row("workflow/get", lambda at: {"workflow_id": at.kept_workflow, "version": 1},
        _on("workflow", "show", version="--version")),
    Row("workflow/list", lambda at: {"limit": 1_000} if at.kept_workflow else {},
        _on("workflow", "list", limit="--limit")),
    Row("workflow/versions", lambda at: {"workflow_id": at.kept_workflow, "limit": 10},
        _on("workflow", "versions", limit="--limit")),
    Row("workflow_run/get", lambda at: {"workflow_run_id": at.kept_run}, _on("workflow", "status")),
    Row("workflow_run/list", lambda at: {"phase": "dispatching", "limit": 1_000} if at.kept_run else {},
        lambda _: ("workflow", "runs", "--phase", "dispatching", "--limit", "1000")),
    Row("session/get", lambda at: {"session_id": at.kept_session}, _on("session", "show")),
    Row("session/list", lambda at: {"labels": {"kept": "yes"}, "state": "active", "limit": at.kept_session and 10},
        _on("session", "list", "--label", "kept=yes", state="--state", limit="--limit")),
    Row("session/messages", lambda at: {"session_id": at.kept_session, "newest_first": True, "limit": 10},
        _on("session", "messages", limit="--limit")),
    Row("session/messages", lambda at: {"session_id": at.kept_session, "after": 1, "limit": 10}),
    Row("mob/get", lambda at: {"mob_id": at.kept_mob}, _on("mob", "show")),
    Row("mob/list", lambda at: {"limit": 1_000} if at.kept_mob else {}, _on("mob", "list", limit="--limit")),
    Row("approval/list", lambda at: {"state": "pending", "limit": 1_000} if at.kept_run else {},
        _on("approval", "list", state="--state", limit="--limit")),
    Row("schedule/proposals", lambda at: {"limit": 1_000} if at.kept_proposal else {},
        _on("schedule", "proposals", limit="--limit")),
    Row("schedule/proposal", lambda at: {"schedule_id": at.kept_proposal}, _on("schedule", "proposals")),
    Row("budget/list", lambda at: {"scope": "schedule", "id": at.kept_budget, "limit": 10},
        lambda asked: ("budget", "list", "--scope", "schedule", "--id", asked["id"], "--limit", "10")),
    Row("halt/list", command=lambda _: ("halt", "--list")),
    Row("usage/report", lambda at: at.kept_usage and {"by": "schedule", "from": "2026-01-01T00:00:00Z", "to": LATER,
                                                       "user": "local", "limit": 100},
        lambda asked: ("usage", "--by", "schedule", "--since", asked["from"], "--until", LATER, "--user", "local")),
    Row("usage/forecast", lambda at: {"schedule_id": at.kept_usage}, _on("usage", "forecast")),
    Row("event/list", lambda _: {"event_type": "seen", "limit": 10},
        _on("event", "list", event_type="--event", limit="--limit")),
    Row("ping/url", lambda at: {"schedule_id": at.pinged}, _on("schedule", "ping-url")),
    Row("bundle/get", lambda at: {"bundle_id": at.kept_bundle}, _on("bundle", "show")),
    Row("bundle/list", lambda at: at.kept_bundle and {"limit": 1_000}, _on("bundle", "list", limit="--limit")),
    Row("secret/list", command=_on("secret", "list")),
    Row("limits/get", command=_on("limits")),
    Row("schedule/tools"),
    Row("key/list", lambda _: {"tenant": "nobody"}, lambda _: ("key", "list", "--tenant", "nobody")),
    Row("signing/key", command=_on("secret", "signing-key")),
    Row("event/match", lambda _: {"event_type": "seen", "filters": {"n": {"gt": 1}}, "limit": 10},
        lambda _: ("event", "match", "seen", "--filter-json", '{"n": {"gt": 1}}', "--last", "10")),
    Row("event/match", lambda at: {"schedule_id": at.trigger, "limit": 10}, _on("trigger", "test", limit="--last")),
    Row("event/match", lambda _: {"filters": {}, "limit": 1},
        lambda _: ("event", "match", "--filter-json", "{}", "--last", "1")),
    Row("trigger/list", lambda _: {"event_type": "seen", "labels": {"of": "triggers"}, "phase": "active", "limit": 10},
        _on("trigger", "list", "--label", "of=triggers", event_type="--event", phase="--status", limit="--limit")),
    Row("node/list", command=_on("node", "list")),
    Row("timeline", lambda at: {"schedule_id": at.ids[0], "from": PAST_DAY[0], "to": PAST_DAY[1]},
        lambda asked: ("timeline", asked["schedule_id"], "--since", asked["from"], "--until", asked["to"])),
    Row("schedule/revisions", lambda at: {"schedule_id": at.ids[0], "limit": 100},
        _on("schedule", "revisions", limit="--limit")),
    Row("schedule/trends",
        lambda at: {"schedule_id": at.ids[0], "from": PAST_DAY[0], "to": PAST_DAY[1], "timezone": "Asia/Kolkata"},
        lambda asked: ("schedule", "trends", asked["schedule_id"], "--since", asked["from"], "--until", asked["to"],
                       "--timezone", asked["timezone"])),
    Row("schedule/list", lambda at: {"outcomes": 3, "last_state": "completed", "next_before": LATER, "limit": 100},
        lambda _: ("schedule", "list", "--outcomes", "3", "--last", "completed", "--next-before", LATER)),
    Row("overview", lambda _: {"timezone": "Europe/Stockholm"}, _on("overview", timezone="--timezone")),
    Row("workload", lambda _: {"limit": 10}),
    Row("doctor", lambda _: {"rows": 100_000}, _on("doctor", rows="--rows")),
    Row("audit/list", lambda at: {"schedule_id": at.ids[0], "limit": 10},
        lambda asked: ("audit", "list", "--schedule", asked["schedule_id"], "--limit", "10")),
)  # fmt: skip
CHANGES = (
    Row("schedule/call", lambda at: {"name": "noonmark_schedule_pause", "arguments": {"schedule_id": at.schedule()}}),
    Row("schedule/create",
        lambda at: {"name": "n", "trigger": YEARLY, "target": NOBODY, "labels": {"team": "ops"}},
        lambda _: ("schedule", "create", *AS_OPTIONS, "--name", "n", "--label", "team=ops"), audited=1),
    Row("schedule/upsert",
        lambda at: {"schedule_id": at.schedule(), "trigger": HOURLY, "target": NOBODY, "max_runs": 3}, audited=2),
    Row("schedule/update",
        lambda at: {"schedule_id": at.schedule(), "expected_revision": 1, "name": "other"},
        _on("schedule", "update", expected_revision="--expected-revision", name="--name"), audited=2),
    Row("schedule/pause", lambda at: {"schedule_id": at.schedule(), "reason": "a holiday", "until": LATER},
        _on("schedule", "pause", reason="--reason", until="--until"), audited=2),
    Row("schedule/resume", lambda at: {"schedule_id": at.paused(), "reason": "back again"},
        _on("schedule", "resume", reason="--reason"), audited=3),
    Row("schedule/delete", lambda at: {"schedule_id": at.schedule(), "reason": "retired"},
        _on("schedule", "delete", reason="--reason"), audited=2),
    Row("schedule/delete", lambda at: {"schedule_id": at.schedule(), "stop_running": True},
        lambda asked: ("schedule", "delete", asked["schedule_id"], "--stop-running"), audited=2),
    Row("schedule/run",
        lambda at: {"schedule_id": at.schedule(), "payload": 1, "overlap": "allow", "key": "k", "reason": "why not"},
        _on("schedule", "run-now", payload="--payload-json", overlap="--overlap", key="--key", reason="--reason"),
        audited=2),
    Row("selection/pause", lambda at: {"labels": at.labelled(), "reason": "a holiday", "until": LATER},
        _selecting("pause")),
    Row("selection/resume", lambda at: {"labels": at.labelled(enabled=False), "reason": "back"}, _selecting("resume")),
    Row("selection/delete", lambda at: {"labels": at.labelled(), "reason": "retired"}, _selecting("delete")),
    Row("selection/label", lambda at: {"labels": at.labelled(), "set_labels": {"tier": "1"}},
        lambda asked: (*_selecting("label")(asked), "--set", "tier=1")),
    Row("selection/run", lambda at: {"labels": at.labelled(), "key": "k", "reason": "why not"},
        lambda asked: (*_selecting("run-now")(asked), "--key", "k")),
    Row("schedule/backfill",
        lambda at: {"schedule_id": at.schedule(trigger=PAST), "from": "2026-02-01T00:00:00Z",
                    "to": "2026-02-03T00:00:00Z", "concurrency": 2, "key": "again"},
        lambda asked: ("schedule", "backfill", asked["schedule_id"], "--from", asked["from"], "--to", asked["to"],
                       "--concurrency", "2", "--key", "again"), audited=2),
    *(Row(f"backfill/{verb}", lambda at: {**at.backfilled(), "reason": "why not"}, _on_backfill(verb), audited=3)
      for verb in ("pause", "resume", "cancel")),
    Row("occurrence/complete",
        lambda at: {"occurrence_id": at.accepted(), "result": {"rows": 3}, "usage": {"tokens": 5, "cost_usd": 0.5}},
        audited=3),
    Row("occurrence/fail", lambda at: {"occurrence_id": at.accepted(), "error": "it was full"}, audited=3),
    Row("occurrence/cancel", lambda at: {"occurrence_id": at.waiting(), "reason": "never mind"},
        _on("run", "cancel", reason="--reason"), audited=3),
    Row("occurrence/redrive", lambda at: {"occurrence_id": at.cancelled()}, _on("run", "redrive")),
    Row("event/emit", lambda at: {"event_type": "told", "payload": {"n": 1}, "source": "parity", "event_id": at.name()},
        lambda asked: ("event", "emit", "told", "--payload-json", '{"n": 1}', "--source", "parity",
                       "--event-id", asked["event_id"])),
    Row("workflow/create", lambda at: {"workflow_id": at.name(), "version": 7, **FLOW}, _create_workflow),
    Row("workflow/delete", lambda at: {"workflow_id": at.workflow(), "reason": "retired"},
        _on("workflow", "delete", reason="--reason")),
    Row("workflow/run", lambda at: {"workflow_id": at.workflow(), "inputs": {"n": 2}, "version": 1, "key": "k"},
        lambda asked: ("workflow", "run", asked["workflow_id"], "--input", "n=2", "--version", "1", "--key", "k")),
    Row("workflow_run/cancel", lambda at: {"workflow_run_id": at.workflow_run(), "reason": "never mind"},
        _on("workflow", "cancel", reason="--reason")),
    Row("session/create", lambda at: {"session_id": at.name(), **AGENT}, _create_session),
    Row("session/send", lambda at: {"session_id": at.session(), "prompt": "go", "key": "k"},
        lambda asked: ("session", "send", asked["session_id"], "go", "--key", "k")),
    *(Row(f"session/{verb}", lambda at: {"session_id": at.session(), "reason": "retired"},
          _on("session", verb, reason="--reason")) for verb in ("archive", "delete")),
    Row("mob/create", lambda at: {"mob_id": at.name(), **CREW}, _create_mob),
    Row("mob/delete", lambda at: {"mob_id": at.mob(), "reason": "retired"}, _on("mob", "delete", reason="--reason")),
    *(Row(f"approval/{verb}", lambda at: {"approval_id": at.approval(), "comment": "as agreed"},
          _on("approval", verb, comment="--comment")) for verb in ("approve", "deny")),
    *(Row(f"approval/{verb}", lambda at: {"approval_id": at.occurrence_approval()}, _on("approval", verb))
      for verb in ("approve", "deny")),
    *(Row(f"schedule/{verb}", lambda at: {"schedule_id": at.proposed(), "comment": "as agreed"},
          _on("schedule", verb, comment="--comment")) for verb in ("approve", "deny")),
    Row("schedule/propose", lambda at: {"schedule_id": at.name(), "trigger": YEARLY, "target": NOBODY}),
    Row("budget/set", lambda at: {"scope": "schedule", "id": at.schedule(), "period": "day", "max_cost_usd": 2.5,
                                  "max_tokens": 9, "warning_threshold": 0.5, "when_exhausted": "pause"},
        lambda asked: ("budget", "set", "schedule", asked["id"], "--period", "day", "--max-cost", "2.5",
                       "--max-tokens", "9", "--warn-at", "0.5", "--when-exhausted", "pause")),
    Row("budget/set", lambda at: {"scope": "user", "id": at.name(), "period": "month", "max_tokens": 9,
                                  "require_approval": True, "hard": False},
        lambda asked: ("budget", "set", "user", asked["id"], "--max-tokens", "9", "--require-approval", "--soft")),
    Row("budget/delete", lambda at: {"scope": "schedule", "id": at.budget(), "period": "month"},
        lambda asked: ("budget", "delete", "schedule", asked["id"], "--period", "month")),
    Row("halt/set", lambda at: {"labels": {"of": at.name()}, "reason": "a loop"},
        lambda asked: ("halt", "--label", f"of={asked['labels']['of']}", "--reason", "a loop")),
    Row("halt/set", lambda at: {"lineage": at.name()}, lambda asked: ("halt", "--lineage", asked["lineage"])),
    Row("halt/lift", lambda at: at.halted_lineage(), lambda asked: ("unhalt", "--lineage", asked["lineage"])),
    Row("halt/lift", lambda at: {"labels": at.halted_labels()},
        lambda asked: ("unhalt", "--label", f"of={asked['labels']['of']}")),
    Row("halt/lift", lambda at: {"halt_id": at.halted(), "reason": "mended"}, _on("unhalt", reason="--reason")),
    Row("usage/record", lambda at: {"idempotency_key": at.name(), "schedule_id": at.schedule(), "model": "m",
                                    "provider": "p", "input_tokens": 3, "output_tokens": 2, "cost_usd": 0.001}),
    Row("ping/rotate", lambda at: {"schedule_id": at.schedule(target=PINGED)},
        _on("schedule", "ping-url", "--rotate"), audited=2),
    Row("secret/set", lambda at: {"name": at.name(), **SEALED, "programs": ["curl", "bundle:eval"]}, _set_secret),
    Row("key/create", lambda at: {"scopes": "read,run", "tenant": "acme", "user": "ada", "name": "ci", "agent": True},
        lambda _: ("key", "create", "--scopes", "read,run", "--tenant", "acme", "--user", "ada", "--name", "ci",
                   "--agent")),
    Row("bundle/run", lambda at: {"bundle_id": at.bundle(), "payload": {"n": 1}, "key": "once"}),
    Row("bundle/delete", lambda at: {"bundle_id": at.bundle()}, _on("bundle", "delete")),
    Row("key/revoke", lambda at: {"key_id": at.key(), "reason": "lost"}, _on("key", "revoke", reason="--reason")),
    Row("key/rotate", lambda at: {"key_id": at.key(), "grace_seconds": 60},
        lambda asked: ("key", "rotate", asked["key_id"], "--grace", "1m")),
    Row("secret/delete", lambda at: {"name": at.secret()}, lambda asked: ("secret", "delete", asked["name"])),
)  # fmt: skip
IDENTITY = (Row("whoami", command=_on("whoami")),)
"""The answer depends on the key that a transport uses."""
UPLOADS = (
    Row("upload/list", lambda _: {"limit": 10}, _on("upload", "list", limit="--limit")),
    Row("upload/delete", lambda at: {"upload_id": at.upload()}, _on("upload", "delete")),
)
"""Uploads need a server: a command on a store has none."""
WORKER = (
    Row("worker/start", command=_on("worker", "start")),
    Row("worker/stop", command=_on("worker", "stop")),
    Row("worker/confirm-time", command=_on("worker", "confirm-time")),
    Row("worker/status", command=_on("worker", "status")),
)
"""These concern the worker of the server process: a command on a store has none."""


@dataclass(frozen=True)
class Wrong(Row):
    """One request that is rejected."""

    code: str = "not_found"
    field: str = "schedule_id"
    is_typed: bool = True
    """Whether a method of the client can express it."""


GONE = {"schedule_id": "nowhere"}
NO_FLOW = {"workflow_id": "nowhere"}
NO_SESSION = {"session_id": "nowhere"}
LOST = {"occurrence_id": "occ_" + "0" * 32}
MORE = {"surprise": 1}


def _wrong(operation, arguments, command=None, code="not_found", field="schedule_id", **more):
    return Wrong(operation, lambda _: arguments, command, code=code, field=field, **more)


def _lost(operation, command=None):
    return _wrong(operation, LOST, command, field="occurrence_id")


def _stale(operation, **expected):
    return Wrong(
        operation,
        lambda at: {"schedule_id": at.schedule(), **expected},
        code="revision_conflict",
        field=next(iter(expected)),
    )


WRONG = (
    _wrong("schedule/create", {"trigger": {**YEARLY, "expression": "0 0 0 * *"}, "target": NOBODY},
           lambda _: ("schedule", "create", "--cron", "0 0 0 * *", *AS_OPTIONS[:2], *AS_OPTIONS[4:]),
           "invalid_trigger", "trigger.expression"),
    _wrong("schedule/create", {"trigger": {**YEARLY, "expression": "0 0 30 2 *"}, "target": NOBODY},
           lambda _: ("schedule", "create", "--cron", "0 0 30 2 *", *AS_OPTIONS[:2], *AS_OPTIONS[4:]),
           "trigger_never_fires", "trigger.expression"),
    _wrong("schedule/create", {"trigger": YEARLY, "target": {**NOBODY, "function": "os:getcwd"}},
           lambda _: ("schedule", "create", "--function", "os:getcwd", *AS_OPTIONS[2:]),
           "invalid_schedule", "target.function"),
    _wrong("schedule/create", {"trigger": YEARLY, "target": NOBODY, **MORE}, None, "invalid_schedule", "surprise",
           is_typed=False),
    _wrong("schedule/upsert", {"trigger": YEARLY, "target": NOBODY}, None, "invalid_request", "schedule_id"),
    _wrong("schedule/update", {**GONE, "name": "n"}, _on("schedule", "update", name="--name")),
    Wrong("schedule/update", lambda at: {"schedule_id": at.schedule(), "expected_revision": 7, "name": "n"},
          _on("schedule", "update", name="--name", expected_revision="--expected-revision"),
          code="revision_conflict", field="expected_revision"),
    *(
        row
        for steer in ("pause", "resume", "delete")
        for row in (
            _wrong(f"schedule/{steer}", GONE, _on("schedule", steer)),
            _stale(f"schedule/{steer}", expected_revision=7),
            _stale(f"schedule/{steer}", expected_updated_at_utc=LATER),
        )
    ),
    _wrong("schedule/run", GONE, _on("schedule", "run-now")),
    Wrong("schedule/run", lambda at: {"schedule_id": at.busy()}, _on("schedule", "run-now"),
          code="overlap", field="overlap"),
    Wrong("schedule/run", lambda at: {"schedule_id": at.schedule(), "overlap": "never"},
          _on("schedule", "run-now", overlap="--overlap"), code="invalid_request", field="overlap"),
    *(
        _wrong(f"selection/{verb}", {"phase": "asleep", **more}, command, "invalid_request", "phase")
        for verb, more, command in (
            ("pause", {}, _on("schedule", "pause", phase="--status")),
            ("resume", {}, _on("schedule", "resume", phase="--status")),
            ("delete", {}, _on("schedule", "delete", phase="--status")),
            ("label", {"set_labels": {"a": "b"}}, _on("schedule", "label", "--set", "a=b", phase="--status")),
            ("run", {}, _on("schedule", "run-now", phase="--status")),
        )
    ),
    _wrong("schedule/backfill", {**GONE, "from": LATER, "to": LATER},
           _on("schedule", "backfill", "--from", LATER, "--to", LATER)),
    Wrong("schedule/backfill", lambda at: {"schedule_id": at.schedule(), "from": LATER, "to": LATER},
          _on("schedule", "backfill", "--from", LATER, "--to", LATER), code="invalid_request", field="to"),
    _wrong("backfill/list", GONE, _on("backfill", "list")),
    _wrong("backfill/get", {**GONE, "backfill_id": "b"}, _on_backfill("show")),
    *(_wrong(f"backfill/{verb}", {**GONE, "backfill_id": "b"}, _on_backfill(verb))
      for verb in ("pause", "resume", "cancel")),
    _wrong("schedule/get", GONE, _on("schedule", "status")),
    _wrong("schedule/list", {"phase": "asleep"}, _on("schedule", "list", phase="--status"), "invalid_request", "phase"),
    _wrong("schedule/count", {"kind": "rare"}, None, "invalid_request", "kind"),
    _wrong("schedule/preview", GONE, _on("schedule", "preview")),
    _wrong("schedule/preview", {"trigger": YEARLY, "count": 0}, _on("schedule", "preview", *AS_OPTIONS[2:],
           count="--count"), "invalid_request", "count"),
    _wrong("schedule/check", {"schedules": [1]}, None, "invalid_request", "schedules"),
    _wrong("crontab/read", {"text": "@daily date", "timezone": "Mars/Base"}, None, "invalid_request", "timezone"),
    _wrong("schedule/occurrences", GONE, _on("schedule", "occurrences")),
    _wrong("schedule/runs", GONE, _on("schedule", "runs")),
    _wrong("schedule/explain", {**GONE, "at": LATER}, _on("schedule", "explain", at="--at")),
    _lost("occurrence/get"),
    _lost("occurrence/runs"),
    _lost("occurrence/explain", _on("schedule", "explain")),
    _lost("occurrence/complete"),
    Wrong("occurrence/complete", lambda at: {"occurrence_id": at.waiting()}, code="conflict", field=""),
    _lost("occurrence/fail"),
    _lost("occurrence/cancel", _on("run", "cancel")),
    _lost("occurrence/redrive", _on("run", "redrive")),
    Wrong("occurrence/redrive", lambda at: {"occurrence_id": at.waiting()}, _on("run", "redrive"),
          code="conflict", field="occurrence_id"),
    _wrong("occurrence/list", {"reason": "boredom"}, lambda _: ("failures", "--reason", "boredom"),
           "invalid_request", "reason"),
    _wrong("run/get", {"run_id": "run_0"}, None, "not_found", "run_id"),
    _wrong("workflow/create", {"workflow_id": "w", "steps": [{"id": "a", "target": NOBODY, "depends_on": ["b"]}]},
           None, "invalid_workflow", "steps[0].depends_on[0]"),
    _wrong("workflow/create", {"workflow_id": "w", "steps": [{"id": "a", "target": {**NOBODY, "function": "os:kill"}}]},
           None, "invalid_workflow", "steps[0].target.function"),
    Wrong("workflow/create", lambda at: {"workflow_id": at.workflow(), "version": 1, **ASKS}, _create_workflow,
          code="conflict", field="version"),
    _wrong("workflow/get", NO_FLOW, _on("workflow", "show"), field="workflow_id"),
    Wrong("workflow/get", lambda at: {"workflow_id": at.workflow(), "version": 9},
          _on("workflow", "show", version="--version"), field="version"),
    _wrong("workflow/list", {"limit": 0}, None, "invalid_request", "limit"),
    _wrong("workflow/versions", NO_FLOW, _on("workflow", "versions"), field="workflow_id"),
    _wrong("workflow/delete", NO_FLOW, _on("workflow", "delete"), field="workflow_id"),
    Wrong("workflow/delete", lambda at: at.named_workflow(), _on("workflow", "delete"),
          code="conflict", field="workflow_id"),
    _wrong("workflow/run", NO_FLOW, _on("workflow", "run"), field="workflow_id"),
    Wrong("workflow/run", lambda at: {"workflow_id": at.workflow(), "inputs": {"m": 1}},
          lambda asked: ("workflow", "run", asked["workflow_id"], "--input", "m=1"),
          code="invalid_request", field="inputs.m"),
    _wrong("workflow_run/get", {"workflow_run_id": "occ_0"}, _on("workflow", "status"), field="workflow_run_id"),
    Wrong("workflow_run/get", lambda at: {"workflow_run_id": at.waiting()}, _on("workflow", "status"),
          field="workflow_run_id"),
    _wrong("workflow_run/list", {"phase": "asleep"}, lambda _: ("workflow", "runs", "--phase", "asleep"),
           "invalid_request", "phase"),
    _wrong("workflow_run/cancel", {"workflow_run_id": "occ_0"}, _on("workflow", "cancel"), field="workflow_run_id"),
    _wrong("session/create", {"session_id": "mob:a:b", "model": "test"}, _create_session,
           "invalid_request", "session_id"),
    Wrong("session/create", lambda at: {"session_id": at.session(), "model": "test"}, _create_session,
          code="conflict", field="session_id"),
    *(_wrong(f"session/{verb}", NO_SESSION, _on("session", command), field="session_id")
      for verb, command in (("get", "show"), ("messages", "messages"), ("archive", "archive"), ("delete", "delete"))),
    _wrong("session/list", {"state": "asleep"}, _on("session", "list", state="--state"), "invalid_request", "state"),
    _wrong("session/send", {**NO_SESSION, "prompt": "go"}, lambda _: ("session", "send", "nowhere", "go"),
           field="session_id"),
    Wrong("session/send", lambda at: {"session_id": at.archived_session(), "prompt": "go"},
          lambda asked: ("session", "send", asked["session_id"], "go"), code="conflict", field="session_id"),
    Wrong("session/delete", lambda at: at.named_session(), _on("session", "delete"),
          code="conflict", field="session_id"),
    _wrong("mob/create", {"mob_id": "m", "members": [{"member_id": "a"}]}, _create_mob,
           "invalid_request", "members[0].model"),
    _wrong("mob/create", {"mob_id": "m", **CREW, "flows": {"f": {"steps": [{"id": "a", "member_id": "b",
           "prompt": "Go."}]}}}, _create_mob, "invalid_request", "flows.f.steps[0].member_id"),
    *(_wrong(f"mob/{verb}", {"mob_id": "nowhere"}, _on("mob", command), field="mob_id")
      for verb, command in (("get", "show"), ("delete", "delete"))),
    _wrong("mob/list", {"limit": 0}, None, "invalid_request", "limit"),
    _wrong("approval/list", {"state": "asleep"}, _on("approval", "list", state="--state"), "invalid_request", "state"),
    *(_wrong(f"approval/{verb}", {"approval_id": "nowhere"}, _on("approval", verb), field="approval_id")
      for verb in ("approve", "deny")),
    *(_wrong(f"schedule/{verb}", {"schedule_id": "nowhere"}, _on("schedule", verb), field="schedule_id")
      for verb in ("approve", "deny")),
    _wrong("schedule/proposal", {"schedule_id": "nowhere"}, _on("schedule", "proposals"), field="schedule_id"),
    _wrong("schedule/proposals", {"limit": 0}, None, "invalid_request", "limit"),
    _wrong("schedule/propose", {"trigger": YEARLY, "target": NOBODY, "enabled": False}, None, "invalid_schedule",
           "enabled"),
    _wrong("budget/set", {"scope": "schedule", "id": "nowhere", "period": "day", "max_tokens": 1},
           lambda _: ("budget", "set", "schedule", "nowhere", "--period", "day", "--max-tokens", "1"), field="id"),
    _wrong("budget/set", {"scope": "user", "id": "ada", "period": "week", "max_tokens": 1},
           lambda _: ("budget", "set", "user", "ada", "--period", "week", "--max-tokens", "1"),
           "invalid_request", "period"),
    _wrong("budget/set", {"scope": "user", "id": "ada", "period": "day"},
           lambda _: ("budget", "set", "user", "ada", "--period", "day"), "invalid_request", "max_cost_usd"),
    _wrong("budget/set", {"scope": "run", "id": "x", "period": "day", "max_tokens": 1}, None,
           "invalid_request", "scope"),
    _wrong("budget/set", {"scope": "tenant", "id": "other", "period": "day", "max_tokens": 1}, None, field="id"),
    _wrong("budget/list", {"scope": "nobody"}, lambda _: ("budget", "list", "--scope", "nobody"),
           "invalid_request", "scope"),
    _wrong("budget/delete", {"scope": "user", "id": "nobody"}, lambda _: ("budget", "delete", "user", "nobody"),
           field="id"),
    _wrong("halt/set", {"labels": {"of": 3}}, None, "invalid_request", "labels.of"),
    _wrong("halt/set", {"labels": {"of": "a"}, "lineage": "a"},
           lambda _: ("halt", "--label", "of=a", "--lineage", "a"), "invalid_request", "lineage"),
    _wrong("halt/lift", {"lineage": "nobody"}, lambda _: ("unhalt", "--lineage", "nobody"), field="lineage"),
    _wrong("halt/list", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("halt/lift", {"halt_id": "nowhere"}, _on("unhalt"), field="halt_id"),
    _wrong("halt/lift", {"labels": {"of": "nobody"}}, lambda _: ("unhalt", "--label", "of=nobody"), field="labels"),
    _wrong("usage/report", {"by": "colour"}, lambda _: ("usage", "report", "--by", "colour"), "invalid_request", "by"),
    _wrong("usage/record", {"idempotency_key": "k", "tokens": 1, "output_tokens": 1}, None, "invalid_request", "tokens",
           is_typed=False),
    _wrong("usage/record", {"idempotency_key": "k", **GONE}),
    _wrong("usage/forecast", GONE, _on("usage", "forecast")),
    _wrong("event/emit", {"event_type": "no spaces"}, lambda _: ("event", "emit", "no spaces"),
           "invalid_request", "event_type"),
    _wrong("event/match", {"event_type": "no spaces"}, lambda _: ("event", "match", "no spaces"),
           "invalid_trigger", "event_type"),
    _wrong("event/match", {"filters": {"n": {"near": 1}}}, lambda _: ("event", "match", "--filter-json",
           '{"n": {"near": 1}}'), "invalid_trigger", "filters.n.near"),
    _wrong("event/match", GONE, _on("trigger", "test")),
    Wrong("event/match", lambda at: {"schedule_id": at.schedule()}, _on("trigger", "test"),
          code="invalid_request", field="schedule_id"),
    _wrong("event/match", {"trigger": YEARLY}, None, "invalid_request", "trigger"),
    _wrong("event/match", {"event_type": "seen", "trigger": YEARLY}, None, "invalid_request", "trigger"),
    _wrong("event/match", {"event_type": "seen", "event": {"payload": 1, "source": 2}}, None, "invalid_request",
           "event.source"),
    _wrong("trigger/list", {"event_type": "no spaces"}, _on("trigger", "list", event_type="--event"),
           "invalid_request", "event_type"),
    _wrong("event/list", {"event_type": "no spaces"}, _on("event", "list", event_type="--event"),
           "invalid_request", "event_type"),
    _wrong("bundle/list", {"limit": 0}, None, "invalid_request", "limit", is_typed=False),
    _wrong("bundle/get", {"bundle_id": "nope"}, _on("bundle", "show"), "not_found", "bundle_id"),
    _wrong("bundle/get", {"bundle_id": "a b"}, _on("bundle", "show"), "invalid_request", "bundle_id"),
    _wrong("bundle/run", {"bundle_id": "nope"}, None, "not_found", "bundle_id"),
    _wrong("bundle/delete", {"bundle_id": "nope"}, _on("bundle", "delete"), "not_found", "bundle_id"),
    _wrong("upload/list", {"cursor": "elsewhere"}, None, "invalid_request", "cursor", is_typed=False),
    _wrong("upload/delete", {"upload_id": "nope"}, _on("upload", "delete"), "not_found", "upload_id"),
    _wrong("upload/delete", {"upload_id": "a b"}, _on("upload", "delete"), "invalid_request", "upload_id"),
    _wrong("schedule/create", {"trigger": YEARLY, "target": CARRIES},
           lambda _: ("schedule", "create", *AS_OPTIONS[2:], "--http", CARRIES["url"],
                      "--secret-header", "Authorization: nothing"),
           "invalid_schedule", "target.secret_headers.Authorization"),
    _wrong("secret/set", {"name": "n", **SEALED, "value": "abc"}, _set_secret, "invalid_request", "value"),
    _wrong("secret/set", {"name": "n", **SEALED, "hosts": ["0x7f.1"]}, _set_secret, "invalid_request", "hosts[0]"),
    _wrong("secret/set", {"name": "n", **SEALED, "programs": ["a b"]}, _set_secret, "invalid_request", "programs[0]"),
    _wrong("secret/set", {"name": "n", **SEALED, "hosts": []}, None, "invalid_request", "hosts"),
    _wrong("secret/delete", {"name": "nowhere"}, lambda _: ("secret", "delete", "nowhere"), "not_found", "name"),
    _wrong("key/create", {"scopes": "root"}, lambda _: ("key", "create", "--scopes", "root"),
           "invalid_request", "scopes"),
    _wrong("key/create", {"scopes": "read", "tenant": "a b"},
           lambda _: ("key", "create", "--scopes", "read", "--tenant", "a b"), "invalid_request", "tenant"),
    _wrong("key/list", {"tenant": "a b"}, lambda _: ("key", "list", "--tenant", "a b"), "invalid_request", "tenant"),
    _wrong("key/revoke", {"key_id": "nm_live_000000"}, _on("key", "revoke"), "not_found", "key_id"),
    _wrong("key/rotate", {"key_id": "nm_live_000000"}, _on("key", "rotate"), "not_found", "key_id"),
    _wrong("whoami", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("limits/get", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("schedule/tools", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("schedule/call", {"name": "noonmark_schedule_get", "arguments": GONE}),
    _wrong("schedule/call", {"name": "nothing"}, None, "invalid_request", "name"),
    _wrong("secret/list", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("ping/url", GONE, _on("schedule", "ping-url")),
    _wrong("ping/rotate", GONE, _on("schedule", "ping-url", "--rotate")),
    _wrong("signing/key", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("node/list", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("timeline", {"from": PAST_DAY[1], "to": PAST_DAY[0]},
           lambda _: ("timeline", "--since", PAST_DAY[1], "--until", PAST_DAY[0]), "invalid_request", "to"),
    _wrong("schedule/revisions", GONE, _on("schedule", "revisions")),
    _wrong("schedule/trends", {"schedule_id": "s", "unit": "year"},
           _on("schedule", "trends", unit="--unit"), "invalid_request", "unit"),
    _wrong("overview", {"timezone": "Nowhere"}, _on("overview", timezone="--timezone"), "invalid_request", "timezone"),
    _wrong("workload", {"limit": 0}, None, "invalid_request", "limit"),
    _wrong("doctor", {"rows": -1}, _on("doctor", rows="--rows"), "invalid_request", "rows"),
    _wrong("audit/list", {"schedule_id": "no spaces"}, lambda _: ("audit", "list", "--schedule", "no spaces"),
           "invalid_request", "schedule_id"),
    _wrong("worker/start", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("worker/stop", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("worker/confirm-time", MORE, None, "invalid_request", "surprise", is_typed=False),
    _wrong("worker/status", MORE, None, "invalid_request", "surprise", is_typed=False),
)  # fmt: skip
