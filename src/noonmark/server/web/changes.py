"""Live changes: hints of what was written, for the clients that may see it.

Operations and the driver of this process publish what they change. What other processes write is found in the store:
at once where the store notifies, and by looking for it where it cannot. One watcher does that for all clients.

Clients with the same view share a channel, which has its own counter: it tells nothing of others. A channel keeps its
last changes, so that a client that was away for a moment learns what it missed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from anyio import CancelScope, CapacityLimiter, to_thread

from noonmark.clocks import SystemClock
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import visible_id
from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.operations.changes import topics_of
from noonmark.ports.changes import Change, Topic
from noonmark.ports.events import (
    Ended,
    LeaderChanged,
    Matched,
    NodeStarted,
    NodeStopped,
    Planned,
    Progressed,
    Settled,
    Started,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.store import Store

logger = logging.getLogger("noonmark.stream")
PACE = 0.25
"""Seconds between two messages of a channel."""
MAX_IDS = 50
"""Schedules that a message names; beyond that it says that there are more."""
MAX_INBOX = 20_000
"""Changes that wait to be passed on. Beyond that all clients are told to read everything again."""
HISTORY = 256
"""Messages that a channel keeps for clients that come back."""
KEEP_SECONDS = 120.0
"""How long a channel is kept for a client that comes back."""
MAX_CHANNELS = 1_000
CHECK_SECONDS = 2.0
"""How often it is checked whether the keys of clients are still good, and which nodes there are."""
OVERLAP: Micros = 3 * SECOND
"""A change is found this long after its time: it is written a moment after it is made."""
MAX_FOUND = 5_000
MAX_RESOLVED = 10_000
_UNLIMITED = CapacityLimiter(math.inf)
_STREAM = "stream"
_WORK = frozenset({Topic.OCCURRENCES, Topic.RUNS})
_PLANS = frozenset({Topic.SCHEDULES, Topic.OCCURRENCES})
_NODES = Change(topics=frozenset({Topic.NODES}), tenant=None)


class View(NamedTuple):
    """What a client may see."""

    tenant: str
    user: str | None
    """None if it sees all of its tenant."""
    sees_nodes: bool

    def sees(self, change: Change) -> bool:
        """Whether a client may see a change."""
        if change.tenant is None:
            return self.sees_nodes
        return change.tenant == self.tenant and (change.user is None or self.user in (None, change.user))


@dataclass(slots=True)
class Message:
    """Some changes, as one message."""

    counter: int
    topics: set[Topic] = field(default_factory=set)
    schedule_ids: dict[str, None] = field(default_factory=dict)
    has_more: bool = False
    is_reset: bool = False
    """Whether the client must read everything again."""

    def add(self, topics: Iterable[Topic], schedule_ids: Iterable[str], *, has_more: bool = False) -> None:
        """Add changes."""
        self.topics.update(topics)
        self.has_more |= has_more
        for one in schedule_ids:
            if one not in self.schedule_ids and len(self.schedule_ids) >= MAX_IDS:
                self.has_more = True
                return
            self.schedule_ids[one] = None


class Channel:
    """The changes that clients with the same view see."""

    def __init__(self, view: View, counter: int) -> None:
        """The counter starts at the present time, so that a number of another process or channel is unknown here."""
        self.view, self.counter, self.first = view, counter, counter
        self.subscriptions: set[Subscription] = set()
        self.idle_since = 0.0
        self._messages: deque[Message] = deque(maxlen=HISTORY)

    def post(self, changes: Sequence[Change], *, is_reset: bool) -> None:
        """Make one message of the changes that the clients of this channel may see, if there are any."""
        seen = [change for change in changes if self.view.sees(change)]
        message = Message(self.counter + 1, is_reset=is_reset)
        for change in seen:
            message.add(change.topics, change.schedule_ids)
        if not message.topics and not is_reset:
            return
        self.counter += 1
        self._messages.append(message)
        for subscription in self.subscriptions:
            subscription.wakeup.set()

    def knows(self, counter: int) -> bool:
        """Whether it has all messages after a number."""
        oldest = self._messages[0].counter - 1 if self._messages else self.counter
        return oldest <= counter <= self.counter

    def after(self, counter: int) -> Message | None:
        """All messages after a number as one; None if there are none. A number that is too old means a reset."""
        if counter == self.counter:
            return None
        merged = Message(self.counter, is_reset=not self.knows(counter))
        for message in self._messages:
            if message.counter > counter:
                merged.is_reset |= message.is_reset
                merged.add(message.topics, message.schedule_ids, has_more=message.has_more)
        return merged


@dataclass(eq=False, slots=True)
class Subscription:
    """One client that listens."""

    channel: Channel
    is_allowed: Callable[[], bool]
    """Whether its key is still good; it may wait for the store."""
    counter: int
    """The last message that it has."""
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def end(self) -> None:
        """Close the stream of this client."""
        self.is_over = True
        self.wakeup.set()


class ChangeHub:
    """Passes changes to the clients that may see them. `publish` and `report` may be called from any thread.

    Everything else runs on the event loop of the server.
    """

    def __init__(self, store: Store) -> None:
        """Nothing is collected before the first client comes."""
        self._store, self._lock = store, Lock()
        self._channels: OrderedDict[View, Channel] = OrderedDict()
        self._inbox: dict[Change | tuple[str, frozenset[Topic]], None] = {}
        self._is_full = self._is_waking = self._is_closed = self._are_keys_changed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._drainer: asyncio.Task[None] | None = None
        self._nudge, self._is_watching = asyncio.Event(), asyncio.Event()
        self._drained_at = -math.inf
        self._owners: OrderedDict[str, Change] = OrderedDict()
        """To whom each schedule belongs, by its uid."""

    @property
    def open(self) -> int:
        """The number of clients."""
        return sum(len(channel.subscriptions) for channel in self._channels.values())

    def publish(self, change: Change) -> None:
        """Take a change."""
        if self._channels and change.topics:
            self._put([change])

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Take what the driver of this process has done."""
        if self._channels:
            self._put([item for event in events for item in _changes_of(event)])

    def _put(self, items: Collection[Change | tuple[str, frozenset[Topic]]]) -> None:
        loop = self._loop
        if not items or loop is None:
            return
        with self._lock:
            self._inbox.update(dict.fromkeys(items))
            if len(self._inbox) > MAX_INBOX:
                self._inbox.clear()
                self._is_full = True
            wakes, self._is_waking = not self._is_waking, True
        if wakes:
            _call_soon(loop, self._drain_in_time)

    def _drain_in_time(self) -> None:
        """Pass the changes on now, or as soon as the pace allows."""
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, self._drained_at + PACE - loop.time()), self._start_drain)

    def _start_drain(self) -> None:
        self._drainer = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        """Deliver the collected changes."""
        with self._lock:
            items, self._inbox = self._inbox, {}
            is_full, self._is_full = self._is_full, False
        split = {channel.view.tenant for channel in self._channels.values() if channel.view.user is not None}
        changes: list[Change] = []
        try:
            changes = await to_thread.run_sync(self._resolve, list(items), split, limiter=_UNLIMITED)
        except NoonmarkError as error:
            logger.info("could not read what has changed: %s", error)
            is_full = True
        for channel in self._channels.values():
            channel.post(changes, is_reset=is_full)
        if any(Topic.KEYS in change.topics for change in changes):
            self._are_keys_changed = True
            self._nudge.set()
        self._drained_at = asyncio.get_running_loop().time()
        with self._lock:
            self._is_waking = bool(self._inbox) or self._is_full
        if self._is_waking:
            self._drain_in_time()

    def _resolve(self, items: Iterable[Change | tuple[str, frozenset[Topic]]], split: Collection[str]) -> list[Change]:
        """The changes, with the owners of their schedules in the tenants whose users see their own only."""
        resolved: list[Change] = []
        for item in items:
            if isinstance(item, tuple):
                uid, topics = item
                if (owner := self._owner(uid)) is not None:
                    ours = Change(topics=topics, tenant=owner.tenant, user=owner.user, schedule_ids=owner.schedule_ids)
                    resolved.append(ours)
            elif item.tenant in split and item.user is None and item.schedule_ids:
                resolved += [self._owned(item, one) for one in item.schedule_ids]
            else:
                resolved.append(item)
        return resolved

    def _owner(self, uid: str) -> Change | None:
        cached = self._owners.get(uid)
        if cached is None:
            stored = self._store.find_uid(uid)
            if stored is None:
                return None
            owner, shown = stored.schedule.owner, visible_id(stored.schedule.schedule_id)
            ids = () if shown is None else (shown,)
            cached = Change(topics=frozenset(), tenant=owner.tenant, user=owner.user, schedule_ids=ids)
            self._owners[uid] = cached
            if len(self._owners) > MAX_RESOLVED:
                self._owners.popitem(last=False)
        return cached

    def _owned(self, change: Change, schedule_id: str) -> Change:
        tenant = change.tenant or ""
        stored = self._store.find(tenant, schedule_id, deleted=True)
        # Without a schedule there is nobody who may not see it, but those who see all.
        user = "" if stored is None else stored.schedule.owner.user
        return Change(topics=change.topics, tenant=tenant, user=user, schedule_ids=(schedule_id,))

    async def subscribe(
        self, view: View, is_allowed: Callable[[], bool], last: int | None
    ) -> tuple[Subscription, bool]:
        """A new client, and whether it must read everything again. `last` is the last message that it had."""
        self._loop = asyncio.get_running_loop()
        channel = self._channels.get(view)
        if channel is None:
            channel = self._channels[view] = Channel(view, SystemClock().micros())
            self._forget_channels()
        is_known = last is not None and channel.knows(last)
        counter = last if last is not None and is_known else channel.counter
        subscription = Subscription(channel, is_allowed, counter)
        channel.subscriptions.add(subscription)
        if self._is_closed:
            subscription.end()
        elif self._watcher is None or self._watcher.done():
            self._is_watching.clear()
            self._watcher = asyncio.ensure_future(self._watch())
        try:
            if not self._is_closed:
                await self._is_watching.wait()
        except BaseException:
            self.unsubscribe(subscription)
            raise
        return subscription, last is not None and not is_known

    def unsubscribe(self, subscription: Subscription) -> None:
        """A client is gone."""
        channel = subscription.channel
        channel.subscriptions.discard(subscription)
        channel.idle_since = asyncio.get_running_loop().time()

    def close(self) -> None:
        """End all streams, because the server stops."""
        self._is_closed = True
        for subscription in self._subscriptions():
            subscription.end()
        self._nudge.set()

    def _subscriptions(self) -> Iterator[Subscription]:
        for channel in tuple(self._channels.values()):
            yield from tuple(channel.subscriptions)

    def _forget_channels(self) -> None:
        """Forget channels without clients: those that are old, and the oldest if there are too many."""
        now = asyncio.get_running_loop().time()
        idle = [one for one in self._channels.values() if not one.subscriptions and one.idle_since]
        idle.sort(key=lambda one: one.idle_since)
        surplus = len(self._channels) - MAX_CHANNELS
        for place, channel in enumerate(idle):
            if place < surplus or now - channel.idle_since >= KEEP_SECONDS:
                del self._channels[channel.view]

    async def _watch(self) -> None:
        """Look for what others write, and for keys that are no longer good, as long as there is a channel."""
        store, loop = self._store, asyncio.get_running_loop()
        interval = None if store.traits.watch_interval is None else store.traits.watch_interval / SECOND
        watch, is_notified = _Watch(store), asyncio.Event()

        def notify() -> None:
            _call_soon(loop, is_notified.set)
            _call_soon(loop, self._nudge.set)

        stop_listening = await to_thread.run_sync(store.listen, notify, limiter=_UNLIMITED)
        is_forced, checked_at = True, loop.time()
        scanned_at = checked_at
        try:
            await to_thread.run_sync(watch.look, is_forced, limiter=_UNLIMITED)
            self._is_watching.set()
            while self._channels and not self._is_closed:
                await self._wait(min(CHECK_SECONDS, interval or math.inf))
                now = loop.time()
                if self._are_keys_changed or now - checked_at >= CHECK_SECONDS:
                    self._are_keys_changed, checked_at = False, now
                    await self._check_keys()
                    self._forget_channels()
                if interval is not None and (is_notified.is_set() or now - scanned_at >= interval):
                    is_forced, scanned_at = is_notified.is_set(), now
                    is_notified.clear()
                    self._put(await to_thread.run_sync(watch.look, is_forced, limiter=_UNLIMITED))
        finally:
            self._is_watching.set()
            with CancelScope(shield=True):
                await to_thread.run_sync(stop_listening, limiter=_UNLIMITED)

    async def _wait(self, seconds: float) -> None:
        """Wait for a nudge, up to some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudge.wait()
        self._nudge.clear()

    async def _check_keys(self) -> None:
        """End the streams of clients whose key is no longer good."""
        subscriptions = tuple(self._subscriptions())
        for subscription in await to_thread.run_sync(_refused, subscriptions, limiter=_UNLIMITED):
            subscription.end()


def _refused(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    return [one for one in subscriptions if not one.is_allowed()]


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the server has stopped
        loop.call_soon_threadsafe(callback)


class _Watch:
    """Finds what other processes write. It is used by one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun: Micros | None = None
        self._since: Micros = 0
        self._found: dict[tuple[str, str, str | None, str | None], Micros] = {}
        """When each kind of change was last made."""
        self._nodes: frozenset[object] = frozenset()

    def look(self, is_forced: bool) -> list[Change]:  # noqa: FBT001 - anyio passes no names
        """What has changed since the first call; nothing while the store does not answer."""
        try:
            if not self._store.changed_by_others(_STREAM) and not is_forced:
                return []
            changes, nodes = self._changes(), frozenset(_live_nodes(self._store))
        except NoonmarkError as error:
            logger.info("could not look for changes: %s", error)
            return []
        if nodes != self._nodes:
            self._nodes = nodes
            changes.append(_NODES)
        return changes

    def _changes(self) -> list[Change]:
        now = self._store.clock()
        if self._begun is None:
            self._begun = self._since = now
        since, self._since = self._since - OVERLAP, now
        self._found = {one: at for one, at in self._found.items() if at >= since}
        changes: list[Change] = []
        for one in self._store.recent_changes(since, MAX_FOUND):
            key = (one.kind, one.tenant, one.user, one.schedule_id)
            if one.at <= self._found.get(key, self._begun):
                continue
            self._found[key] = one.at
            topics = topics_of(one.kind) if "/" in one.kind else frozenset({Topic(one.kind)})
            shown = None if one.schedule_id is None else visible_id(one.schedule_id)
            ids = () if shown is None else (shown,)
            if topics:
                changes.append(Change(topics=topics, tenant=one.tenant, user=one.user, schedule_ids=ids))
        return changes


def _live_nodes(store: Store) -> Iterator[tuple[str, bool, bool]]:
    return ((one.name, one.is_alive, one.is_leader) for one in store.nodes())


def _changes_of(event: DriverEvent) -> Iterator[Change | tuple[str, frozenset[Topic]]]:
    """What an event of the driver says; schedules are named by their uids, since their owners are found later."""
    match event:
        case Planned():
            yield event.plan.snapshot.schedule.uid, _PLANS
        case Matched():
            yield Change(topics=frozenset({Topic.EVENTS}), tenant=event.tenant)
            yield from ((one.uid, frozenset({Topic.OCCURRENCES})) for one in event.occurrences)
        case Started() | Ended():
            yield event.occurrence.uid, _WORK
        case Progressed():
            yield event.occurrence.uid, frozenset({Topic.RUNS})
        case Waiting():
            yield event.occurrence.uid, _waiting(event.occurrence)
        case Settled():
            used = frozenset({Topic.USAGE, Topic.SESSIONS}) if event.run.usage else frozenset()
            yield event.occurrence.uid, _WORK | used
        case LeaderChanged() | NodeStarted() | NodeStopped():
            yield _NODES
        case _:
            pass


def _waiting(occurrence: Occurrence) -> frozenset[Topic]:
    topics = frozenset({Topic.OCCURRENCES})
    return topics | {Topic.APPROVALS} if occurrence.waiting_for is Reason.APPROVAL else topics
