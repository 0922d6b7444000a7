"""Calls to the store that can be interrupted: a task stands still before each of them, and after each of them."""

from contextlib import suppress
from enum import StrEnum
from threading import Lock, Thread, local

from noonmark.core.errors import NoonmarkError, StoreUnavailable
from tests.simulation.trace import summary


class Stage(StrEnum):
    BEFORE = "before"
    """Nothing was written yet: an error here changes nothing."""
    AFTER = "after"
    """It was written, but the caller does not know yet: an error here leaves it in doubt."""


class Interruptible:
    """The executor of a simulated node: its task stands still before each call of the store, and after it."""

    async def call(self, fn, *args, priority=None, **kwargs):
        await Standstill(Stage.BEFORE)
        answer = fn(*args, **kwargs)
        await Standstill(Stage.AFTER)
        return answer


class Standstill:
    """A place at which a task lets the others go first; with a stage, the store may fail there."""

    def __init__(self, stage=None):
        self._stage = stage

    def __await__(self):
        yield self._stage


class Task:
    """A coroutine that stands still at an await."""

    def __init__(self, actor, name, coroutine):
        self.actor, self.name = actor, name
        self.coroutine = coroutine
        self.stage = None
        self.is_over = False

    def resume(self, trace, *, fails=False):
        """Go on to the next standstill; with `fails`, what it waits for raises that the store cannot be reached."""
        if fails:
            trace.add(self.actor, self.name, "fails", self.stage)
        try:
            if fails:
                self.stage = self.coroutine.throw(StoreUnavailable("the simulation says so"))
            else:
                self.stage = self.coroutine.send(None)
        except StopIteration:
            self.is_over = True
        except NoonmarkError as error:  # a loop would try again, a caller would be told
            trace.add(self.actor, self.name, "gives up:", error.code)
            self.is_over = True

    def drop(self):
        """Its process is gone."""
        self.is_over = True
        self.coroutine.close()


class Lost(BaseException):
    """The process of a caller is gone."""


class Caller:
    """A plain function that calls the store, in a thread that runs only while it is resumed.

    It has the methods of a coroutine, so that it can be a task: only one thread runs at a time, and a seed always gives
    the same trace.
    """

    def __init__(self, function):
        self._function = function
        self._turn, self._standstill = Lock(), Lock()
        self._turn.acquire()
        self._standstill.acquire()
        self._thread = None
        self._stage = self._thrown = self._error = None

    def send(self, _):
        return self._resume(None)

    def throw(self, error):
        return self._resume(error)

    def close(self):
        if self._thread is not None and self._thread.is_alive():
            with suppress(Lost, StopIteration):
                self._resume(Lost())

    def stand_still(self, stage):
        """Called in its thread: the others go first."""
        self._stage = stage
        self._standstill.release()
        self._turn.acquire()
        if self._thrown is not None:
            raise self._thrown

    def _resume(self, error):
        self._thrown = error
        if self._thread is None:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._turn.release()
        self._standstill.acquire()
        if self._stage is not None:
            return self._stage
        self._thread.join()
        raise StopIteration if self._error is None else self._error

    def _run(self):
        _current.caller = self
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - it is raised where it was resumed
            self._error = error
        self._stage = None
        self._standstill.release()


_current = local()


class WatchedStore:
    """The memory store, with somebody who looks at every answer and at what was written."""

    def __init__(self, inner, world):
        self._inner, self._world = inner, world

    @property
    def traits(self):
        return self._inner.traits

    def change(self, uid, decide):
        """What was decided is judged as a plan: it differs only in that nobody can have been faster."""
        plans, world = [], self._world

        def decided(snapshot, now):
            decision = decide(snapshot, now)
            plans[:] = [] if decision is None else [decision]
            return decision

        answer = self._inner.change(uid, decided)
        world.trace.add(world.time, world.actor, "change", answer)
        world.checker.after("commit_plans", [plans], [answer] * len(plans), None)
        return answer

    def __getattr__(self, name):
        verb, world = getattr(self._inner, name), self._world

        def watched(*args, **kwargs):
            before = world.checker.before(name, args)
            answer = verb(*args, **kwargs)
            world.trace.add(world.time, world.actor, name, summary(answer))
            world.checker.after(name, args, answer, before)
            return answer

        return watched


class RemoteStore:
    """The same store as a caller outside of any node has it: each verb can be interrupted."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        verb = getattr(self._store, name)

        def called(*args, **kwargs):
            _current.caller.stand_still(Stage.BEFORE)
            answer = verb(*args, **kwargs)
            _current.caller.stand_still(Stage.AFTER)
            return answer

        return called
