"""A bundle runner for tests with real processes."""

import asyncio
import hashlib
import os
import threading
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from noonmark.core.ids import manual
from noonmark.core.secret import Secret
from noonmark.core.settlement import RunInProgress
from noonmark.core.targets import parse_target
from noonmark.ports.bundles import CHUNK, Bundle
from noonmark.ports.target import Assignment
from noonmark.stores.memory import MemoryStore
from noonmark.targets.bundle.cache import BundleCache
from noonmark.targets.bundle.resources import NodeOffer, NodeResources
from noonmark.targets.bundle.runner import BundleRunner
from noonmark.targets.command.orphans import OrphanReaper
from noonmark.targets.secrets import SecretResolver
from noonmark.testing import factories
from tests.server.packed import SMALLEST, packed
from tests.targets.assignments import SOON, now

_numbers = count()


class Plain:
    """A seal that seals nothing."""

    def close(self, _tenant, _name, value):
        return value

    def open(self, _tenant, _name, sealed):
        return sealed


class Passed:
    """A target that notes what it is given."""

    def __init__(self):
        self.given, self.has_come = [], threading.Event()

    def deliver(self, assignments):
        self.given += assignments
        self.has_come.set()


class BundleHarness:
    """A bundle runner, its store and its reports."""

    def __init__(self, folder, **offer):
        self.store = MemoryStore(now)
        self.cache = BundleCache(folder / "cache", 10_000_000)
        self.resources = NodeResources(NodeOffer(**offer))
        self.other = Passed()
        secrets = SecretResolver(self.store, Plain())
        self.runner = BundleRunner(
            self.store, OrphanReaper(self.store), secrets, self.cache, self.resources, {"function": self.other}
        )
        self._reported, self._news = {}, threading.Condition()
        self.told = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(SOON)

    async def _open(self):
        self.runner.open(self._report, now)

    def _report(self, assignment, delivered):
        with self._news:
            if isinstance(delivered, RunInProgress):
                self.told.append(delivered.result)
            else:
                self._reported[assignment] = delivered
            self._news.notify_all()

    def push(self, manifest=None, files=None, data=None):
        """Store a bundle as a push does."""
        data = packed(manifest, files) if data is None else data
        content_id = f"content-{next(_numbers)}"
        for number in range(-(-len(data) // CHUNK)):
            self.store.add_bundle_chunk("acme", content_id, number, data[number * CHUNK : (number + 1) * CHUNK])
        document = {**SMALLEST, **(manifest or {})}
        return self.store.keep_bundle(
            Bundle(
                tenant="acme",
                bundle_id=document["name"],
                digest=hashlib.sha256(data).hexdigest(),
                manifest=manifest or SMALLEST,
                size=len(data),
                files=2,
                content_id=content_id,
                user="ada",
                source="rest",
                created=0,
                pushed=0,
            )
        )

    def secret(self, name, value, *programs):
        time = now()
        secret = Secret(name=name, hosts=(), sealed=value, created=time, updated=time, programs=programs)
        self.store.put_secret("acme", secret, most=9)

    def start(self, target=None, *, payload=None, origin=None, after=0, overrides=None, stop=None, **declared):
        begins = now() + after
        document = {"target_kind": "bundle", **(target or {"bundle_id": "eval"})}
        schedule = replace(factories.schedule(target=parse_target(document), **declared), source="rest")
        origin = origin or manual(f"one-{os.getpid()}-{next(_numbers)}")
        occurrence = factories.occurrence(
            schedule, origin, nominal=begins, attempt=1, payload=payload, overrides=overrides, stop=stop
        )
        assignment = Assignment(occurrence, schedule, begins=begins)
        self.runner.deliver([assignment])
        return assignment

    def end_of(self, assignment):
        with self._news:
            assert self._news.wait_for(lambda: assignment in self._reported, SOON)
            return self._reported[assignment]

    def run(self, *args, **options):
        return self.end_of(self.start(*args, **options))

    def close(self):
        self.runner.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def bundle_runner(folder, **offer):
    made = BundleHarness(folder, **offer)
    try:
        yield made
    finally:
        made.close()
