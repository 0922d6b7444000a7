"""Occurrences: one planned delivery of a schedule each."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from noonmark.core.api_key import Scope
from noonmark.core.documents import Reader, present
from noonmark.core.frozen import brief, fast_frozen, frozen
from noonmark.core.instants import Micros, from_micros, micros_to_seconds, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.limits import Concurrency, read_concurrency
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.policies.retry import read_retry
from noonmark.core.policies.window import read_window
from noonmark.core.reasons import Reason
from noonmark.core.targets import BundleTarget, WorkflowTarget, read_target

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.event import Chain
    from noonmark.core.ids import Origin
    from noonmark.core.policies.overlap import OverlapPolicy
    from noonmark.core.policies.retry import RetryPolicy
    from noonmark.core.policies.window import Window
    from noonmark.core.targets import Target

RESOURCE_WAITS = frozenset({Reason.RESOURCES_SHORT, Reason.SERVICE_UNAVAILABLE})
"""What an occurrence waits for that a node could not start: nothing of that attempt has begun."""
CONTINUED = frozenset({Reason.LEASE_LOST, Reason.SUSPENDED, *RESOURCE_WAITS})
"""The reasons of pending occurrences whose attempt goes on later."""
BACKFILL_PAUSED = "backfill_paused"
"""The part of its detail that says why its backfill is paused."""


@frozen(kw_only=True)
class Parent:
    """The step of a workflow run that an occurrence is for."""

    occurrence_id: str
    step_id: str
    index: int | None = None
    """The element of a `for_each` step."""
    depth: int = 1
    """How many runs are above it."""

    def to_document(self) -> dict[str, Any]:
        """The parent in the document of the overrides."""
        return present(occurrence_id=self.occurrence_id, step_id=self.step_id, index=self.index, depth=self.depth)


@frozen(kw_only=True)
class PinnedBundle:
    """The archive of a bundle that an occurrence began with, and runs in every attempt."""

    bundle_id: str
    digest: str
    is_workflow: bool = False

    def applies_to(self, target: BundleTarget) -> bool:
        """Whether a target names this archive, or its bundle; an edit of the schedule may have changed that."""
        return target.bundle_id in (None, self.bundle_id) and target.digest in (None, self.digest)

    def to_document(self) -> dict[str, Any]:
        """The bundle in the document of the overrides."""
        return {"bundle_id": self.bundle_id, "digest": self.digest, "is_workflow": self.is_workflow}


@frozen(kw_only=True)
class Overrides:
    """None leaves what the schedule says."""

    overlap_policy: OverlapPolicy | None = None
    concurrency: Concurrency | None = None
    target: Target | None = None
    timeout: Micros | None = None
    retry_policy: RetryPolicy | None = None
    window: Window | None = None
    parent: Parent | None = None
    """Whose step it is, if it is a child of a workflow run."""
    bundle: PinnedBundle | None = None
    """The archive that it runs, once it has started for the first time, if its target is a bundle."""
    behind: Chain | None = None
    """What led to it, where its upstreams have set it off."""
    scopes: frozenset[Scope] | None = None
    """What sessions may do at most in this run: no more than who asked for it. None if that is not narrowed."""

    @property
    def declared_fields(self) -> dict[str, Any]:
        """The fields of the declaration that it replaces, with its values."""
        return present(
            overlap_policy=self.overlap_policy,
            concurrency=self.concurrency,
            target=self.target,
            timeout=self.timeout,
            retry_policy=self.retry_policy,
            window=self.window,
        )

    def to_document(self) -> dict[str, Any]:
        """The overrides as the document that `read_overrides` reads; the chain is stored separately."""
        parts = {
            "overlap_policy": self.overlap_policy,
            "target": self.target,
            "retry_policy": self.retry_policy,
            "window": self.window,
            "parent": self.parent,
            "bundle": self.bundle,
        }
        timeout = None if self.timeout is None else micros_to_seconds(self.timeout)
        return (
            {name: part.to_document() for name, part in parts.items() if part is not None}
            | present(timeout_seconds=timeout, scopes=None if self.scopes is None else sorted(self.scopes))
            | ({} if self.concurrency is None else self.concurrency.to_document())
        )


def read_overrides(document: object) -> Overrides:
    """Read the document that `to_document` writes; ValueError if it is invalid."""
    reader = Reader(document, path="", code="", problems=[])
    has = {name for name in ("overlap_policy", "target", "retry_policy") if reader.raw(name) is not None}
    own = Overrides(
        overlap_policy=read_overlap(reader, "overlap_policy", trigger_type="") if "overlap_policy" in has else None,
        concurrency=read_concurrency(reader),
        target=read_target(reader, "target") if "target" in has else None,
        timeout=reader.seconds("timeout_seconds", None),
        retry_policy=read_retry(reader, "retry_policy") if "retry_policy" in has else None,
        window=read_window(reader, "window", target_kind=None),
        parent=_read_parent(reader),
        bundle=_read_bundle(reader),
        scopes=_read_scopes(reader),
    )
    reader.close()
    if reader.problems:
        raise ValueError(str(reader.problems[0]))
    return own


def _read_scopes(reader: Reader) -> frozenset[Scope] | None:
    scopes = reader.raw("scopes")
    return None if scopes is None else frozenset(Scope(one) for one in scopes)


def _read_parent(reader: Reader) -> Parent | None:
    if reader.raw("parent") is None:
        return None
    fields = reader.child("parent")
    parent = Parent(
        occurrence_id=fields.text("occurrence_id"),
        step_id=fields.text("step_id"),
        index=fields.integer("index", None),
        depth=fields.integer("depth"),
    )
    fields.close()
    return parent


def _read_bundle(reader: Reader) -> PinnedBundle | None:
    if reader.raw("bundle") is None:
        return None
    fields = reader.child("bundle")
    bundle = PinnedBundle(
        bundle_id=fields.text("bundle_id"),
        digest=fields.text("digest"),
        is_workflow=fields.boolean("is_workflow", False),  # noqa: FBT003 - its default
    )
    fields.close()
    return bundle


class Declared(Protocol):
    """A schedule."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def declaration(self) -> Any:
        """What it declares."""


S = TypeVar("S", bound=Declared)


def in_force(schedule: S, occurrence: Occurrence) -> S:
    """The schedule as it applies to one occurrence: its declaration with the overrides."""
    if occurrence.overrides is None:
        return schedule
    fields = occurrence.overrides.declared_fields
    if occurrence.bundle is not None:
        target = fields.get("target", schedule.declaration.target)
        fields["target"] = pinned_target(target, occurrence.bundle)
    return replace(schedule, declaration=replace(schedule.declaration, **fields)) if fields else schedule


def pinned_target(target: Target, bundle: PinnedBundle | None) -> Target:
    """A target that names the archive that an occurrence began with, if it is for that bundle."""
    if bundle is None or not isinstance(target, BundleTarget) or not bundle.applies_to(target):
        return target
    return replace(target, bundle_id=bundle.bundle_id, digest=bundle.digest)


@fast_frozen
@frozen(kw_only=True)
class Occurrence:
    """The unit that is claimed, explained and counted.

    `nominal` is the time the trigger named, `due` that time with jitter or the time of a retry, `first_due` the due
    time before any retry. One row may stand for a gap of many missed fires: then it says how many, from when to when.
    `fence` rises with every claim, so that a node that lost its lease cannot settle it.

    `caught_up` is the moment at which the misfire policy took it up after all, alone or in a line with others of the
    same moment; overlap policies do not turn it away. `losses` counts the leases that ran out
    while it was being delivered. `waiting_for` is set from the moment it first had to wait until it starts, so that the
    wait is never taken for lateness. `holds_slot` is set from its start to its end, retries included, unless its
    schedule lets occurrences overlap.

    `node` is the node that claimed it, and `started` the start of this delivery; both until it is released or has
    ended. `stop` is the reason of a stop request. `deadline` is when its delivery has to end: set once the target
    accepted the work, or once it was asked to give up the slot. Both survive a lost lease, but not a retry.

    `payload` comes from the caller of a manual run; for an occurrence of an event, it is that event. `overrides` are
    the caller's overlap policy and limits, instead of the schedule's. `ended` is when it got its final phase, by the
    store's clock.
    """

    id: str
    """Computed from the schedule, the origin and the nominal time; the same in every attempt."""
    uid: str
    schedule_id: str
    """The id of its job."""
    revision: int
    """The revision of the declaration that is in force for it."""
    origin: Origin
    """What asked for it: `trigger`, or `manual:`, `event:` and `backfill:` with a key."""
    phase: Phase
    """Its phase; final phases do not change."""
    route: str
    nominal: Micros
    due: Micros
    first_due: Micros
    attempt: int = 0
    """How many attempts it has had; a run that was handed back is none."""
    fence: int = 0
    reason: Reason | None = None
    """Why it is in this phase."""
    detail: str = ""
    """The numbers behind the reason, as JSON, or nothing."""
    missed_count: int = 0
    """How many fires it counts, if it records missed ones."""
    missed_first: Micros | None = None
    missed_last: Micros | None = None
    caught_up: Micros | None = None
    losses: int = 0
    waiting_for: Reason | None = None
    holds_slot: bool = False
    node: str | None = None
    started: Micros | None = None
    stop: Reason | None = None
    deadline: Micros | None = None
    payload: Any = field(default=None, hash=False)
    overrides: Overrides | None = None
    ended: Micros | None = None
    wanted_limit: int | None = None
    """The limit of the concurrency key that it waits for, while it waits for a place under one."""

    def __repr__(self) -> str:
        return brief(
            self,
            phase=self.phase,
            nominal_at=to_text(self.nominal),
            attempt=self.attempt,
            reason=self.reason,
            waiting_for=self.waiting_for,
            missed_count=self.missed_count or None,
            id=self.id,
        )

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started; what was handed back, lost or suspended has no attempt to show for it."""
        return self.attempt > 0 or self.losses > 0 or self.reason in CONTINUED

    @property
    def is_suspended(self) -> bool:
        """Whether its workflow has begun and waits: it is in flight, though no node holds it."""
        return self.phase is Phase.PENDING and self.reason is Reason.SUSPENDED

    @property
    def bundle(self) -> PinnedBundle | None:
        """The archive of a bundle that it runs, once it has started."""
        return None if self.overrides is None else self.overrides.bundle

    @property
    def is_workflow_run(self) -> bool:
        """Whether it runs a workflow, perhaps that of a bundle."""
        return self.route == WorkflowTarget.route or (self.bundle is not None and self.bundle.is_workflow)

    @property
    def nominal_at(self) -> datetime:
        """The time the trigger named, in UTC."""
        return from_micros(self.nominal)

    @property
    def due_at(self) -> datetime:
        """When it is to start, in UTC."""
        return from_micros(self.due)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, in UTC; None while something is still to come."""
        return None if self.ended is None else from_micros(self.ended)

    @property
    def missed_from(self) -> datetime | None:
        """The first missed nominal time of a gap, in UTC."""
        return None if self.missed_first is None else from_micros(self.missed_first)

    @property
    def missed_to(self) -> datetime | None:
        """The last missed nominal time of a gap, in UTC."""
        return None if self.missed_last is None else from_micros(self.missed_last)


def backfill_pause(occurrence: Occurrence) -> dict[str, Any] | None:
    """The pause of its backfill that holds an occurrence, as a document, as far as it is known."""
    if BACKFILL_PAUSED not in occurrence.detail or occurrence.phase is not Phase.PENDING:
        return None
    pause = (kept_facts(occurrence) or {}).get(BACKFILL_PAUSED)
    return pause if isinstance(pause, dict) else None


class Detailed(Protocol):
    """An occurrence, or the row of one."""

    @property
    def detail(self) -> str:
        """The numbers behind its reason, as JSON."""


def kept_facts(occurrence: Detailed) -> dict[str, Any] | None:
    """The numbers that were stored with its reason; None if they cannot be read."""
    try:
        facts = json.loads(occurrence.detail or "{}")
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
