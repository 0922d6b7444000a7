"""Target policy: what a caller over the network may declare of a target, and what only a program may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule, NotAllowed
from noonmark.core.program_ownership import BY_MODULE, change_problem, payload_problem
from noonmark.core.targets import CommandTarget, FunctionTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.core.targets.ping import Moment
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.service import Caller, Service


def check_declaration(
    service: Service, caller: Caller, declaration: Declaration, stored: Schedule | None
) -> Declaration:
    """Return the declaration if the caller may make it; an unchanged target is always allowed."""
    _check_upstreams(service, caller, declaration, stored)
    if stored is not None and (refused := change_problem(stored, declaration, service.offered)) is not None:
        raise NotAllowed(refused[1], field=refused[0])
    _check_ping_urls(service, declaration, stored)
    target = declaration.target
    if stored is not None and stored.declaration.target == target:
        return declaration
    if service.permissions is not None:
        tenant = caller.owner.tenant if stored is None else stored.owner.tenant
        if (refused := service.permissions.problem(tenant, target)) is not None:
            raise NotAllowed(refused[1], field=refused[0])
    if isinstance(target, FunctionTarget):
        _check_function(target, stored)
    elif isinstance(target, HttpTarget) and service.egress is not None:
        if (problem := service.egress.url_problem(target.address)) is not None:
            raise InvalidSchedule(problem, field="target.url")
    elif isinstance(target, CommandTarget) and service.commands is not None:
        _check_command(service, target)
    return declaration


def _check_upstreams(service: Service, caller: Caller, declaration: Declaration, stored: Schedule | None) -> None:
    """Refuse a dependency on a schedule that the caller does not see, as on one that does not exist."""
    if not caller.sees_own_only or (stored is not None and stored.declaration.depends_on == declaration.depends_on):
        return
    for index, dependency in enumerate(declaration.depends_on):
        found = service.store.find(caller.owner.tenant, dependency.schedule_id)
        if found is not None and not caller.sees(found.schedule):
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


def _check_function(target: FunctionTarget, stored: Schedule | None) -> None:
    """Refuse a function by its module: documents name functions that nodes have registered."""
    before = None if stored is None else stored.declaration.target
    if isinstance(before, FunctionTarget) and before.function == target.function:
        return
    if BY_MODULE in target.function:
        raise InvalidSchedule(
            "must be the name under which a node has registered the function; only a program can name one by its"
            " module",
            field="target.function",
        )


def _check_command(service: Service, target: CommandTarget) -> None:
    """Refuse a command that no node with these rules would start."""
    assert service.commands is not None  # noqa: S101 - the caller has checked
    for name in target.env:
        if (problem := service.commands.env_problem(name)) is not None:
            raise NotAllowed(problem, field=f"target.env.{name}")
    if target.cwd is not None and (problem := service.commands.cwd_problem(target.cwd)) is not None:
        raise NotAllowed(problem, field="target.cwd")
