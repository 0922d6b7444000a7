"""Group commit: small writes that come at the same time share one transaction.

A commit waits for the disk, and often for a lock, whatever it writes. The first caller commits; those that come
meanwhile wait, and the first of them commits for all of them. A write that comes alone is committed at once.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from noonmark.core.errors import NoonmarkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
A = TypeVar("A")
MAX_GROUP = 100
"""How many writes share a transaction: the first of them waits for the last."""


class GroupCommit(Generic[T, A]):
    """Hands the writes of many threads to one of them at a time, for each key.

    `commit` writes, in one transaction for a key, what its second argument returns once the transaction has its locks.
    It answers each write; one that is refused has its error as the answer. If it starts anew, it calls that argument
    again, which returns the same writes and perhaps more.
    """

    def __init__(self, commit: Callable[[str, Callable[[], Sequence[T]]], Sequence[A | NoonmarkError]]) -> None:
        self._commit = commit
        self._lock = Lock()
        self._queues: dict[str, list[_Write[T, A]]] = {}
        """The writes that wait, for each key that a thread commits for."""

    def write(self, key: str, value: T) -> A:
        """Write one value, alone or with others of its key; returns once it is committed.

        Raises what it is refused with.
        """
        [answer] = self.write_each(key, [value])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def write_each(self, key: str, values: Sequence[T]) -> list[A | Exception]:
        """Write values of several callers; returns for each what `write` would return or raise.

        A store that fails does so for all writes of the transaction. After any other error, each of them is tried
        alone, so that one bad write does not fail the others.
        """
        own: _Write[T, A] = _Write(values)
        with self._lock:
            own.leads = key not in self._queues
            self._queues.setdefault(key, []).append(own)
        if not own.leads:
            self._wait(key, own)
        if own.leads:
            self._lead(key, own)
        return [self._write_alone(key, value) for value in values] if own.is_alone else own.answers

    def _write_alone(self, key: str, value: T) -> A | Exception:
        try:
            [answer] = self._commit(key, lambda: [value])
        except Exception as error:  # noqa: BLE001 - it is the answer for this value
            return error
        return answer

    def _wait(self, key: str, own: _Write[T, A]) -> None:
        """Wait for an answer, or to lead; a caller that is interrupted leaves the queue."""
        try:
            own.wakeup.acquire()
        except BaseException:
            with self._lock:
                queue = self._queues.get(key, [])
                if own in queue:
                    queue.remove(own)
                if own.leads:
                    self._pass_on(key)
            raise

    def _lead(self, key: str, own: _Write[T, A]) -> None:
        group: list[_Write[T, A]] = []
        take = partial(self._take, key, group)
        try:
            answers = iter(self._commit(key, take))
            for one in group:
                one.answers = list(islice(answers, len(one.values)))
        except NoonmarkError as error:
            take()  # those that came since waited for the same store
            for one in group:
                one.answers = [error] * len(one.values)
        except Exception as error:  # noqa: BLE001 - it is raised by those that wait
            are_several = len(take()) > 1
            for one in group:
                one.is_alone, one.answers = are_several, [error]
        except BaseException:
            take()
            for one in group:
                one.is_alone = True
            raise
        finally:
            with self._lock:
                self._pass_on(key)
            for one in group:
                if one is not own:
                    one.wakeup.release()

    def _take(self, key: str, group: list[_Write[T, A]]) -> list[T]:
        """Take what waits into a group, as far as there is room; returns all values of the group."""
        with self._lock:
            queue = self._queues[key]
            while queue and (not group or sum(len(one.values) for one in (*group, queue[0])) <= MAX_GROUP):
                group.append(queue.pop(0))
        return [value for one in group for value in one.values]

    def _pass_on(self, key: str) -> None:
        """Let the next in the queue lead; without one, the next that comes."""
        if queue := self._queues[key]:
            queue[0].leads = True
            queue[0].wakeup.release()
        else:
            del self._queues[key]


class _Write(Generic[T, A]):
    """The values of one thread, and what became of them."""

    __slots__ = ("answers", "is_alone", "leads", "values", "wakeup")

    def __init__(self, values: Sequence[T]) -> None:
        self.values = values
        self.answers: list[A | Exception] = []
        self.leads = self.is_alone = False
        self.wakeup = Lock()
        self.wakeup.acquire()
