"""Group commit: small writes that come at the same time share one transaction.

A commit waits for the disk, and often for a lock, whatever it writes. The first caller commits; those that come
meanwhile wait, and the first of them commits for all of them. A write that comes alone is committed at once.
"""

from __future__ import annotations

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

        Raises what it is refused with. A store that fails does so for all writes of the transaction. After any other
        error, each of them is tried alone, so that one bad write does not fail the others.
        """
        own: _Write[T, A] = _Write(value)
        with self._lock:
            own.leads = key not in self._queues
            self._queues.setdefault(key, []).append(own)
        if not own.leads:
            self._wait(key, own)
        if own.leads:
            self._lead(key, own)
        if own.is_alone:
            [own.answer] = self._commit(key, lambda: [value])
        if isinstance(own.answer, NoonmarkError):
            raise own.answer
        assert own.answer is not None  # noqa: S101 - it was answered, or is alone
        return own.answer

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

        def take() -> list[T]:
            with self._lock:
                queue = self._queues[key]
                room = MAX_GROUP - len(group)
                group.extend(queue[:room])
                del queue[:room]
            return [one.value for one in group]

        try:
            answers = self._commit(key, take)
            for one, answer in zip(group, answers, strict=True):
                one.answer = answer
        except NoonmarkError as error:
            take()  # those that came since waited for the same store
            for one in group:
                one.answer = error
        except BaseException as error:
            take()
            for one in group:
                one.is_alone = True
            if group == [own] or not isinstance(error, Exception):
                raise
        finally:
            with self._lock:
                self._pass_on(key)
            for one in group:
                if one is not own:
                    one.wakeup.release()

    def _pass_on(self, key: str) -> None:
        """Let the next in the queue lead; without one, the next that comes."""
        if queue := self._queues[key]:
            queue[0].leads = True
            queue[0].wakeup.release()
        else:
            del self._queues[key]


class _Write(Generic[T, A]):
    """One write, and what became of it."""

    __slots__ = ("answer", "is_alone", "leads", "value", "wakeup")

    def __init__(self, value: T) -> None:
        self.value = value
        self.answer: A | NoonmarkError | None = None
        self.leads = self.is_alone = False
        self.wakeup = Lock()
        self.wakeup.acquire()
