"""The documents of sessions and mobs that callers create."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import Mob, Session, member_session
from noonmark.core.documents import Reader, present
from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.frozen import frozen
from noonmark.core.json_values import identifier, shown
from noonmark.core.targets.mob import read_tool_access
from noonmark.core.targets.session import read_spec

if TYPE_CHECKING:
    from noonmark.core.api_key import Scope
    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.core.targets.session import SessionSpec

MAX_MEMBERS = 100
MAX_FLOWS = 100
RESERVED = ("schedule:", "mob:")
"""The prefixes of the ids of sessions that schedules and mobs create; callers cannot choose such an id."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}", re.ASCII)


@frozen(kw_only=True)
class NewSession:
    """A session to create."""

    session_id: str | None
    """None for a generated id."""
    spec: SessionSpec
    tool_access_policy: ToolAccessPolicy | None


@frozen(kw_only=True)
class Member:
    """A member of a mob to create."""

    member_id: str
    role: str | None
    spec: SessionSpec
    tool_access_policy: ToolAccessPolicy | None

    def to_document(self) -> dict[str, Any]:
        """The member as the document of its mob has it."""
        policy = self.tool_access_policy
        return present(
            member_id=self.member_id,
            role=self.role,
            **self.spec.to_document(),
            tool_access_policy=None if policy is None else policy.to_document(),
        )


@frozen(kw_only=True)
class NewMob:
    """A mob to create. Its flows are objects that are not checked yet."""

    mob_id: str
    members: tuple[Member, ...]
    flows: dict[str, dict[str, Any]] = field(hash=False)

    def to_mob(self, tenant: str, user: str) -> Mob:
        """The mob of an owner."""
        members = [one.to_document() for one in self.members]
        document = present(members=members, flows=self.flows or None)
        return Mob(tenant=tenant, mob_id=self.mob_id, user=user, document=document)

    def sessions(self, tenant: str, user: str, scopes: frozenset[Scope] | None = None) -> list[Session]:
        """The sessions of the members, whose own tools may do no more than these scopes."""
        return [
            Session(
                tenant=tenant,
                session_id=member_session(self.mob_id, one.member_id),
                user=user,
                spec=one.spec,
                tool_access_policy=one.tool_access_policy,
                scopes=scopes,
                mob_id=self.mob_id,
                member_id=one.member_id,
                role=one.role,
            )
            for one in self.members
        ]


def parse_session(document: object) -> NewSession:
    """Read what a session is created with; InvalidRequest lists everything wrong with it."""
    problems: list[Problem] = []
    reader = Reader(document, path="", code=InvalidRequest.code, problems=problems)
    session = NewSession(
        session_id=reader.read("session_id", _session_id, None),
        spec=read_spec(reader),
        tool_access_policy=read_tool_access(reader),
    )
    reader.close()
    if problems:
        raise refusal(problems)
    return session


def read_new_mob(document: object) -> tuple[NewMob, list[Problem]]:
    """Read a mob, and everything wrong with it except in its flows."""
    problems: list[Problem] = []
    reader = Reader(document, path="", code=InvalidRequest.code, problems=problems)
    mob_id = reader.read("mob_id", _name)
    members = _read_members(reader)
    flows = _read_flows(reader)
    reader.close()
    return NewMob(mob_id=mob_id, members=members, flows=flows), problems


def _read_members(reader: Reader) -> tuple[Member, ...]:
    before = len(reader.problems)
    entries = reader.items("members", high=MAX_MEMBERS)
    if not entries and len(reader.problems) == before:
        reader.problem("members", "must be an array of at least one member")
    members: dict[str, Member] = {}
    for index, entry in enumerate(entries):
        fields = reader.entry(f"members[{index}]", entry)
        if fields is None:
            continue  # the reader has noted it
        member_id = fields.read("member_id", _name)
        member = Member(
            member_id=member_id,
            role=fields.text("role", None),
            spec=read_spec(fields),
            tool_access_policy=read_tool_access(fields),
        )
        fields.close()
        if member_id in members:
            fields.problem("member_id", "is named twice")
        members[member_id] = member
    return tuple(members.values())


def _read_flows(reader: Reader) -> dict[str, dict[str, Any]]:
    flows = {}
    documents = reader.json_object("flows")
    if len(documents) > MAX_FLOWS:
        reader.problem("flows", f"has {len(documents):,} entries; at most {MAX_FLOWS:,} are allowed")
        return {}
    for flow_id, flow in documents.items():
        try:
            _name(flow_id)
        except ValueError as error:
            reader.problem("flows", f"the name of a flow {error}")
            continue
        if reader.entry(f"flows.{flow_id}", flow) is not None:
            flows[flow_id] = flow
    return flows


def _session_id(value: object) -> str:
    session_id = identifier(value)
    for prefix in RESERVED:
        if session_id.startswith(prefix):
            raise ValueError(f"must not begin with {prefix}, as the sessions that {prefix[:-1]}s create do")
    return session_id


def _name(value: object) -> str:
    """The id of a mob, a member or a flow: together they are the id of a session or of a workflow."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError(f"must be 1 to 60 letters, digits, -, _ or ., not {shown(value)}")
