"""Proposals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noonmark.core.lineage import read_lineage
from noonmark.core.proposals import Proposal, ProposedAction
from noonmark.core.schedule import Owner
from noonmark.stores.rules import proposal_records as rules
from noonmark.stores.sql.row_checks import RowCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.sql.session import Session, Values

COLUMNS = (
    "tenant", "schedule_id", "proposal_id", "action", "uid", "name", "username", "document", "base_revision", "source",
    "proposer", "key_id", "is_agent", "reason", "proposed", "expires", "lineage",
)  # fmt: skip
_CHECK = RowCheck("proposals", COLUMNS)
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM proposals WHERE"
_ONE = f"{_SELECT} tenant = ? AND schedule_id = ?"
_COUNT = "SELECT count(*) FROM proposals WHERE tenant = ? AND proposer = ?"
_ALIKE = f"{_SELECT} tenant = ? AND username = ? AND schedule_id <> ? AND lineage LIKE ? ORDER BY proposed"
"""A fingerprint is hexadecimal, and quotes inside other texts are escaped: nothing else in the record looks like it."""
_DELETE = "DELETE FROM proposals WHERE tenant = ? AND schedule_id = ?"
_EXPIRED = f"{_SELECT} expires <= ? ORDER BY expires LIMIT ?"
_PAGE = f"{_SELECT} %s ORDER BY proposed, schedule_id LIMIT ?"


class ProposalRecords(rules.ProposalRecords):
    """The proposals of all tenants."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, tenant: str, schedule_id: str) -> Proposal | None:
        proposals = readable(self._session.query(_ONE, tenant, schedule_id))
        return proposals[0] if proposals else None

    def count(self, tenant: str, by: str) -> int:
        return int(self._session.query(_COUNT, tenant, by)[0][0])

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        written = f'%"fingerprint": {json.dumps(fingerprint)}%'
        proposals = readable(self._session.query(_ALIKE, tenant, user, besides, written))
        return proposals[0].schedule_id if proposals else None

    def put(self, proposal: Proposal) -> None:
        self._session.put("proposals", COLUMNS, [proposal_values(proposal)], key=2)

    def delete(self, tenant: str, schedule_id: str) -> None:
        self._session.execute(_DELETE, tenant, schedule_id)

    def expired(self, now: Micros, limit: int) -> list[Proposal]:
        return readable(self._session.query(_EXPIRED, now, limit))

    def page(
        self, tenant: str, limit: int, *, after: tuple[Micros, str] | None = None, user: str | None = None
    ) -> list[Proposal]:
        conditions, values = ["tenant = ?"], list[object]([tenant])
        if user is not None:
            conditions.append("username = ?")
            values.append(user)
        if after is not None:
            conditions.append("(proposed, schedule_id) > (?, ?)")
            values += after
        return readable(self._session.query(_PAGE % " AND ".join(conditions), *values, limit))


def proposal_values(proposal: Proposal) -> Values:
    """The row of a proposal."""
    lineage = None if proposal.lineage is None else json.dumps(proposal.lineage.to_record())
    return (
        proposal.owner.tenant, proposal.schedule_id, proposal.proposal_id, str(proposal.action), proposal.uid,
        proposal.name, proposal.owner.user, json.dumps(proposal.document), proposal.base_revision, proposal.source,
        proposal.by, proposal.key_id, int(proposal.is_agent), proposal.reason, proposal.proposed, proposal.expires,
        lineage,
    )  # fmt: skip


def readable(rows: Sequence[Values]) -> list[Proposal]:
    """The proposals that can be read; a damaged one cannot be approved, and counts as unknown."""
    proposals = []
    for columns in rows:
        if _CHECK.problems(columns):
            continue
        row = dict(zip(COLUMNS, columns, strict=True))
        try:
            document, lineage = json.loads(row["document"]), row["lineage"]
            proposals.append(
                Proposal(
                    proposal_id=row["proposal_id"],
                    action=ProposedAction(row["action"]),
                    uid=row["uid"],
                    schedule_id=row["schedule_id"],
                    name=row["name"],
                    owner=Owner(tenant=row["tenant"], user=row["username"]),
                    document=document,
                    base_revision=row["base_revision"],
                    source=row["source"],
                    by=row["proposer"],
                    key_id=row["key_id"],
                    is_agent=bool(row["is_agent"]),
                    reason=row["reason"],
                    proposed=row["proposed"],
                    expires=row["expires"],
                    lineage=None if lineage is None else read_lineage(json.loads(lineage)),
                )
            )
        except (TypeError, ValueError, AttributeError, RecursionError):
            continue
    return proposals
