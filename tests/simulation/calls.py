"""Calls to the store that can be interrupted: a task stands still before each of them, and after each of them."""

from enum import StrEnum

from noonmark.core.errors import NoonmarkError, StoreUnavailable
from tests.simulation.trace import summary


class Stage(StrEnum):
    BEFORE = "before"
    """Nothing was written yet: an error here changes nothing."""
    AFTER = "after"
    """It was written, but the caller does not know yet: an error here leaves it in doubt."""


class Call:
    """One verb of the store, awaited by hand."""

    def __init__(self, verb, *, first=False):
        self._verb = verb

    def __await__(self):
        try:
            yield Stage.BEFORE
            answer = self._verb
            yield Stage.AFTER
        finally:
            self._verb.close()
        return answer


class Pause:
    """A place at which a task only lets the others go first."""

    def __await__(self):
        yield None


class Task:
    """A coroutine that stands still at an await."""

    def __init__(self, actor, name, coroutine):
        self.actor, self.name = actor, name
        self.coroutine = coroutine
        self.stage = None
        self.is_over = False

    def resume(self, trace, *, fails=False):
        """Go on to the next await; with `fails`, what it waits for raises that the store cannot be reached."""
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


class WatchedStore:
    """The memory store, with somebody who looks at every answer and at what was written."""

    def __init__(self, inner, world):
        self._inner, self._world = inner, world

    @property
    def traits(self):
        return self._inner.traits

    async def change(self, uid, decide):
        """What was decided is judged as a plan: it differs only in that nobody can have been faster."""
        plans, world = [], self._world

        def decided(snapshot, now):
            made = decide(snapshot, now)
            plans[:] = [] if made is None else [made]
            return made

        answer = await self._inner.change(uid, decided)
        world.trace.add(world.time, world.actor, "change", answer)
        world.checker.after("commit_plans", [plans], [answer] * len(plans), None)
        return answer

    def __getattr__(self, name):
        verb, world = getattr(self._inner, name), self._world

        async def watched(*args, **kwargs):
            before = world.checker.before(name, args)
            answer = await verb(*args, **kwargs)
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
        return lambda *args, **kwargs: Call(verb(*args, **kwargs))
