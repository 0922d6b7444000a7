"""Mobs: create, get, list and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.agents.mobs import read_new_mob
from noonmark.core.agents.session import member_session
from noonmark.core.errors import Conflict, InvalidRequest, NotFound, Problem, refusal
from noonmark.core.workflows.flows import flow_problems
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import read_page, text, visible
from noonmark.operations.sessions import refuse_if_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.agents.session import Mob
    from noonmark.operations.models.arguments import MobDeletion, MobQuery, OneMob
    from noonmark.operations.service import Caller, Service


def create_mob(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create a mob with a session for each member; a conflict if its id is taken."""
    new, problems = read_new_mob(dict(arguments))
    problems += flow_problems(new.mob_id, new.flows, {one.member_id for one in new.members})
    for index, member in enumerate(() if problems else new.members):
        if (wrong := service.model_problem(member.spec.model, member.spec.provider)) is not None:
            problems.append(Problem(code=InvalidRequest.code, field=f"members[{index}].model", message=wrong))
    if problems:
        raise refusal(problems)
    tenant, user = caller.owner.tenant, caller.owner.user
    note = caller.audit(f"mob {new.mob_id}")(None, None, now=service.store.clock())
    if not service.store.put_mob(new.to_mob(tenant, user), new.sessions(tenant, user, caller.granted), note=note):
        raise Conflict(f"there is a mob {new.mob_id!r} already", field="mob_id")
    return _document(_find(service, caller, new.mob_id))


def get_mob(service: Service, caller: Caller, arguments: OneMob) -> dict[str, Any]:
    """Get a mob: its members and its flows."""
    return _document(_find(service, caller, arguments.mob_id))


def list_mobs(service: Service, caller: Caller, arguments: MobQuery) -> dict[str, Any]:
    """List the mobs by id."""
    start = None if arguments.cursor is None else arguments.cursor[0]

    def read(count: int, place: str | None) -> Sequence[Mob]:
        return service.store.mobs(caller.owner.tenant, count, after=place)

    fetch = visible(read, lambda mob: mob.mob_id, lambda mob: _sees(caller, mob), start)
    entries, end = read_page(arguments.limit, fetch, lambda page: [_document(one) for one in page])
    return {"mobs": entries, "next_cursor": None if end is None else write_cursor(end.mob_id)}


def delete_mob(service: Service, caller: Caller, arguments: MobDeletion) -> dict[str, Any]:
    """Delete a mob, unless schedules name it; the sessions of its members are archived."""
    mob = _find(service, caller, arguments.mob_id)
    about = f"mob {mob.mob_id}" if arguments.reason is None else f"mob {mob.mob_id}: {arguments.reason}"
    note = caller.audit(about)(None, None, now=service.store.clock())
    naming = service.store.delete_mob(mob.tenant, mob.mob_id, note=note)
    if naming is None:  # deleted a moment ago
        raise _unknown(mob.mob_id)
    refuse_if_named(naming, "mob")
    return _document(mob)


def _find(service: Service, caller: Caller, mob_id: str) -> Mob:
    mob = service.store.mob(caller.owner.tenant, mob_id)
    if mob is None or not _sees(caller, mob):
        raise _unknown(mob_id)
    return mob


def _sees(caller: Caller, mob: Mob) -> bool:
    return not caller.sees_own_only or mob.user == caller.owner.user


def _unknown(mob_id: str) -> NotFound:
    return NotFound(f"there is no mob {mob_id!r}", field="mob_id")


def _document(mob: Mob) -> dict[str, Any]:
    """A mob; each member has the id of its session."""
    members = [
        {"member_id": one["member_id"], "session_id": member_session(mob.mob_id, one["member_id"]), **one}
        for one in mob.document["members"]
    ]
    return {
        "mob_id": mob.mob_id,
        "owner": {"tenant": mob.tenant, "user": mob.user},
        "members": members,
        "flows": mob.document.get("flows", {}),
        "created_at_utc": text(mob.created),
        "updated_at_utc": text(mob.updated),
    }
