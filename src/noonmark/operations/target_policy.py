"""Target policy: what a caller over the network may declare of a target, and what only a program may."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from noonmark.core.agents.tasks import context_problem, remote_agent
from noonmark.core.agents.turns import agent_target, missing, needed_mob, needed_session, session_of
from noonmark.core.bundles.manifest import needs_of_manifest
from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, NotAllowed
from noonmark.core.frozen import evolve
from noonmark.core.interruption import engine_of
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.runaway import AGENT_FACTOR, AGENT_FIRES, is_looser
from noonmark.core.policies.window import last_window_warning
from noonmark.core.program_ownership import BY_MODULE, change_problem, payload_problem
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import AGENT_KINDS, CommandTarget, FunctionTarget, TaskTarget, WorkflowTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.targets.ping import Moment
from noonmark.core.urls import parse_url
from noonmark.core.workflows.definition import check_inputs, restore_definition
from noonmark.operations.service import check_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.agents.tasks import Instructions
    from noonmark.core.agents.turns import AgentTarget
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.targets import Target
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.core.targets.session import OnDemandSessionTarget, Provider
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import NodeRecord
    from noonmark.ports.store import Store


MAX_NAMED = 5
"""How many of the served routes are named."""
_AGENTS = "a server runs agents with --agents embedded, which needs noonmark[agents]"
REMEDIES = {
    "function": "a process on this store has to register it",
    "command": "a server runs commands with --allow-commands",
    "bundle": "a server runs bundles with --allow-bundles",
    "session": _AGENTS,
    "mob": _AGENTS,
    "task": _AGENTS,
}
"""How a node comes to serve each kind of target."""


def target_warnings(service: Service, tenant: str, target: Target, source: str = "") -> list[str]:
    """What keeps a target from being served by the live nodes. While no node is alive, nothing is known.

    A schedule from a trusted source may start any program. A workflow must exist when it is due.
    """
    missing = missing_workflow(service.store, tenant, target) if isinstance(target, WorkflowTarget) else None
    if isinstance(target, TaskTarget) and not service.has_agent_model and not target.context.get("model"):
        missing = "the task names no model, and this server has none for that: set --agent-model, or context.model"
    if (agent := agent_target(target)) is not None:
        missing = _missing_agent(service.store, tenant, agent)
    missing = missing or unknown_model(service.model_problem, target)
    return [*_route_warnings(service, tenant, target, source), *([] if missing is None else [missing])]


def unknown_model(problem_of: Callable[[str, Provider | None], str | None], target: Target) -> str | None:
    """What is wrong with the model that a target names for a session of its own."""
    if (agent := agent_target(target)) is not None and agent.type == "materialize_on_demand_session":
        spec = cast("OnDemandSessionTarget", agent).create
        return problem_of(spec.model, spec.provider)
    if isinstance(target, TaskTarget) and remote_agent(target.context) is None:
        model = target.context.get("model")
        return problem_of(model, None) if isinstance(model, str) else None
    return None


def _route_warnings(service: Service, tenant: str, target: Target, source: str) -> list[str]:
    if not service.serves(target.route) or not shown_routes(service.permissions, tenant, [target.route]):
        nodes = [node for node in service.store.nodes() if node.is_alive]
        served = shown_routes(service.permissions, tenant, {route for node in nodes for route in node.routes})
        if nodes and target.route not in served:
            return [unserved_words(target.route, served)]
    if service.lacks_workers(target.route):
        return [lacks_workers_words(target.route)]
    if source == TRUSTED or service.commands is None or not isinstance(target, CommandTarget):
        return []
    programs = service.commands.programs
    is_refused = programs is not None and target.argv[0] not in programs
    return [refused_program_words(target.argv[0])] if is_refused else []


def missing_workflow(store: Store, tenant: str, target: WorkflowTarget) -> str | None:
    """That the workflow of a target does not exist, or not in that version."""
    newest = store.workflow(tenant, target.workflow_id)
    if newest is None:
        return unknown_workflow_words(target.workflow_id)
    if target.version is None or store.workflow(tenant, target.workflow_id, target.version) is not None:
        return None
    return f"the workflow `{target.workflow_id}` has no version {target.version}; the newest is {newest.version}"


def unknown_workflow_words(workflow_id: str) -> str:
    """Say that there is no such workflow."""
    return f"there is no workflow `{workflow_id}`; it must be created before this is due"


def _missing_agent(store: Store, tenant: str, target: AgentTarget) -> str | None:
    """That the session, the mob, the member or the flow of a target does not exist."""
    session_id, mob_id = needed_session(target), needed_mob(target)
    session = None if session_id is None else store.session(tenant, session_id)
    lacking = missing(target, session, None if mob_id is None else store.mob(tenant, mob_id))
    match lacking:
        case None:
            return None
        case {"session": name, "state": state}:
            words = f"the session `{name}` is {state}"
        case {"session": name}:
            words = f"there is no session `{name}`"
        case {"mob": name, "member": member_id}:
            words = f"the mob `{name}` has no member `{member_id}`"
        case {"mob": name, "flow": flow_id}:
            words = f"the mob `{name}` has no flow `{flow_id}`"
        case _:
            words = f"there is no mob `{mob_id}`"
    return f"{words}; that must change before this is due"


def _input_warnings(service: Service, tenant: str, target: WorkflowTarget) -> list[str]:
    """Inputs that do not fit the version that would run now."""
    version = service.store.workflow(tenant, target.workflow_id, target.version)
    if version is None:
        return []
    try:
        check_inputs(restore_definition(version.document), target.inputs)
    except InvalidSchedule as error:
        which = f"version {version.version} of the workflow `{target.workflow_id}`"
        return [f"target.{problem.field}: {problem.message} ({which})" for problem in error.problems]
    return []


def schedule_warnings(service: Service, schedule: Schedule, *, now: Micros) -> list[str]:
    """What may surprise about a schedule: its trigger, its last window, and a target that no live node serves."""
    from noonmark.core.describe.warnings import find_warnings  # noqa: PLC0415 - it loads a library, for its words

    declared = schedule.declaration
    about_times = [] if declared.trigger is None else find_warnings(declared.trigger, now, is_present=True)
    about_window = last_window_warning(declared.window, declared.trigger, now=schedule.updated - 1)
    about_target = target_warnings(service, schedule.owner.tenant, declared.target, schedule.source)
    if isinstance(declared.target, WorkflowTarget):
        about_target += _input_warnings(service, schedule.owner.tenant, declared.target)
    return [*about_times, *([] if about_window is None else [about_window]), *about_target]


def unserved(store: Store, schedule: Schedule, permissions: TargetPermissions | None) -> str | None:
    """Why nothing of a schedule can start at present; None if a live node serves its target.

    A program may have registered a function just before it declared a schedule for it, and its node reports that with
    its next heartbeat.
    """
    return unserved_by(store.nodes(), schedule, permissions)


def unserved_by(nodes: Sequence[NodeRecord], schedule: Schedule, permissions: TargetPermissions | None) -> str | None:
    """The same, where the nodes are known."""
    alive = [node for node in nodes if node.is_alive]
    served = {route for node in alive for route in node.routes}
    route = schedule.declaration.target.route
    may_follow = schedule.source == TRUSTED and any(node.seen <= schedule.updated for node in alive)
    if not alive or route in served or may_follow:
        return None
    return unserved_words(route, shown_routes(permissions, schedule.owner.tenant, served))


def shown_routes(permissions: TargetPermissions | None, tenant: str, served: Collection[str]) -> set[str]:
    """The routes that a tenant may use: the names of functions of others are not for it."""
    return {route for route in served if permissions is None or permissions.shows(tenant, route)}


def unserved_words(route: str, served: Collection[str]) -> str:
    """Say that no live node serves a route, and what would help; `served` are the routes to suggest."""
    kind, _, name = route.partition(":")
    alike = sorted(one for one in served if one.partition(":")[0] == kind)
    if close := get_close_matches(name, [one.partition(":")[2] for one in alike], n=1):
        hint = f"did you mean `{kind}:{close[0]}`?"
    elif alike:
        more = ", .." if len(alike) > MAX_NAMED else ""
        hint = f"they serve {', '.join(f'`{one}`' for one in alike[:MAX_NAMED])}{more}"
    else:
        hint = REMEDIES.get(kind, "none of them delivers this kind of target")
    return f"no live node serves `{route}`; {hint}"


def lacks_workers_words(route: str) -> str:
    """Say that no worker of the engine delivers a route."""
    return f"no worker of the engine delivers `{route}`; start one with `noonmark temporal-worker --routes {route}`"


def engine_wait(service: Service, occurrence: Occurrence) -> str | None:
    """Why an occurrence waits for its engine or for a worker of it; None if it does not, as far as is known."""
    words = None
    if occurrence.phase is Phase.DISPATCHING:  # its start is tried again
        words = service.engine_problem(occurrence.route)
    elif engine_of(occurrence) is not None and service.lacks_workers(occurrence.route):
        words = lacks_workers_words(occurrence.route)
    return None if words is None else f"It waits: {words}."


def refused_program_words(program: str) -> str:
    """Say that a server starts no such program."""
    return f"this server does not run `{program}`: it is not among its --allow-commands"


def with_bundle_needs(store: Store, tenant: str, document: dict[str, Any]) -> dict[str, Any]:
    """The document of a schedule whose target, if it names a bundle, says what the bundle needs of a node."""
    target = document.get("target")
    bundle_id = target.get("bundle_id") if isinstance(target, dict) else None
    if not isinstance(target, dict) or not isinstance(bundle_id, str) or target.get("target_kind") != "bundle":
        return document
    bundle = store.find_bundle(tenant, bundle_id)
    needs = {} if bundle is None else needs_of_manifest(bundle.manifest)
    return {**document, "target": needs | present(**target)} if needs else document


def check_declaration(
    service: Service, caller: Caller, declaration: Declaration, stored: Schedule | None
) -> Declaration:
    """Return the declaration if the caller may make it; an unchanged target is always allowed."""
    check_limits(service, caller, declaration, None if stored is None else stored.declaration)
    _check_upstreams(service, caller, declaration, stored)
    if stored is not None and (refused := change_problem(stored, declaration, service.offered)) is not None:
        raise NotAllowed(refused[1], field=refused[0])
    _check_ping_urls(service, declaration, stored)
    if caller.acts_as_agent:
        _check_guard(declaration, stored)
        if stored is not None:
            _check_halts(service, declaration, stored)
    target = declaration.target
    if stored is not None and stored.declaration.target == target:
        return declaration
    check_agent(service, caller, target)
    check_target(
        service,
        caller.owner.tenant if stored is None else stored.owner.tenant,
        target,
        before=None if stored is None else stored.declaration.target,
    )
    return declaration


def _check_guard(declaration: Declaration, stored: Schedule | None) -> None:
    """Refuse to let an agent change the runaway guard of a schedule, or leave itself more room than agents have."""
    if stored is not None and stored.declaration.runaway != declaration.runaway:
        raise NotAllowed("a person changes the runaway guard of a schedule; an agent cannot", field="runaway")
    if stored is None and declaration.target.kind in AGENT_KINDS and is_looser(declaration.runaway):
        allowed = f"at most {AGENT_FIRES} starts in an hour, and {AGENT_FACTOR} times the usual spend"
        raise NotAllowed(f"an agent gives an agent {allowed}; a person may give it more", field="runaway")


def _check_halts(service: Service, declaration: Declaration, stored: Schedule) -> None:
    """Refuse to let an agent take a schedule out of a halt by an edit, such as one of its labels."""
    edited = evolve(stored, declaration=declaration)
    for halt in service.store.halts(stored.owner.tenant):
        if halt.covers(stored) and not halt.covers(edited):
            field = "target" if halt.lineage is not None else "labels"
            raise NotAllowed("a halt covers the schedule; a person takes it out of that, an agent cannot", field=field)


def check_target(
    service: Service, tenant: str, target: Target, *, field: str = "target", before: Target | None = None
) -> None:
    """Refuse a target that a document may not name, or that no node with these rules would deliver.

    `before` is what it replaces: the same function again is allowed.
    """
    if service.permissions is not None and (refused := service.permissions.problem(tenant, target)) is not None:
        raise NotAllowed(refused[1], field=_moved(refused[0], field))
    if isinstance(target, FunctionTarget):
        _check_function(target, before, field)
    elif isinstance(target, HttpTarget) and service.egress is not None:
        if (problem := service.egress.url_problem(target.address)) is not None:
            raise InvalidSchedule(problem, field=f"{field}.url")
    elif isinstance(target, CommandTarget) and service.commands is not None:
        _check_command(service, target, field)
    elif isinstance(target, TaskTarget) and service.instructions is not None:
        _check_task(target, service.instructions, field)


def check_agent(service: Service, caller: Caller, target: Target, *, field: str = "target") -> None:
    """Refuse a session or a mob that the caller does not see: its transcript can be read by talking in it."""
    agent = agent_target(target)
    if agent is None or not caller.sees_own_only:
        return
    tenant, mob_id, session_id = caller.owner.tenant, needed_mob(agent), session_of(agent, "")
    mob = None if mob_id is None else service.store.mob(tenant, mob_id)
    if mob is not None and mob.user != caller.owner.user:
        raise InvalidSchedule(f"there is no mob {mob_id!r}", field=f"{field}.mob_id")
    session = None if session_id is None else service.store.session(tenant, session_id)
    if session is not None and session.user != caller.owner.user:
        raise InvalidSchedule(f"there is no session {session_id!r}", field=f"{field}.session_id")


def _moved(path: str, field: str) -> str:
    """A path in a target of a schedule, for a target that stands elsewhere."""
    return field + path.removeprefix("target")


def _check_upstreams(service: Service, caller: Caller, declaration: Declaration, stored: Schedule | None) -> None:
    """Refuse a dependency on a schedule that the caller does not see, as on one that does not exist."""
    if not caller.sees_own_only or (stored is not None and stored.declaration.depends_on == declaration.depends_on):
        return
    for index, dependency in enumerate(declaration.depends_on):
        upstream = service.store.find(caller.owner.tenant, dependency.schedule_id)
        if upstream is not None and not caller.sees(upstream.schedule):
            message = f"there is no schedule {dependency.schedule_id!r}"
            raise InvalidSchedule(message, field=f"depends_on[{index}].schedule_id")


def _check_ping_urls(service: Service, declaration: Declaration, stored: Schedule | None) -> None:
    """Refuse a URL that no node with these rules would call."""
    urls = declaration.ping_urls
    if urls is None or service.egress is None or (stored is not None and stored.declaration.ping_urls == urls):
        return
    for moment in Moment:
        url = urls.url_for(moment)
        if url is not None and (problem := service.egress.url_problem(parse_url(url))) is not None:
            raise InvalidSchedule(problem, field=f"ping_urls.{moment}")


def check_payload(service: Service, schedule: Schedule, payload: object) -> None:
    """Refuse a payload if a program declared the function, and does not accept payloads."""
    if payload is not None and (problem := payload_problem(schedule, service.offered)) is not None:
        raise NotAllowed(problem, field="payload")


def _check_function(target: FunctionTarget, before: Target | None, field: str) -> None:
    """Refuse a function by its module: documents name functions that nodes have registered."""
    if isinstance(before, FunctionTarget) and before.function == target.function:
        return
    if BY_MODULE in target.function:
        raise InvalidSchedule(
            "must be the name under which a node has registered the function; only a program can name one by its"
            " module",
            field=f"{field}.function",
        )


def _check_task(target: TaskTarget, instructions: Instructions, field: str) -> None:
    """Refuse a context that names what there is not."""
    if (refused := context_problem(target.context, instructions)) is not None:
        raise InvalidSchedule(refused[1], field=f"{field}.context.{refused[0]}")


def _check_command(service: Service, target: CommandTarget, field: str) -> None:
    """Refuse a command that no node with these rules would start."""
    assert service.commands is not None  # noqa: S101 - the caller has checked
    for part, names in (("env", target.env), ("secret_env", target.secret_env)):
        for name in names:
            if (problem := service.commands.env_problem(name)) is not None:
                raise NotAllowed(problem, field=f"{field}.{part}.{name}")
    if target.cwd is not None and (problem := service.commands.cwd_problem(target.cwd)) is not None:
        raise NotAllowed(problem, field=f"{field}.cwd")
