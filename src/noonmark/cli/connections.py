"""Connections: how long they may take to say what they want, and how many there may be.

The web server waits without end for the rest of a request whose beginning it has. Whoever sends many beginnings would
take all file descriptors of the process, those for its store included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

ENOUGH = 1_000


def most_connections() -> int:
    """So many that as many file descriptors again are left for everything else."""
    try:
        import resource  # noqa: PLC0415 - only Unix has it
    except ImportError:
        return ENOUGH
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if allowed == resource.RLIM_INFINITY else max(1, min(ENOUGH, allowed // 2))


class Connection(H11Protocol):
    """One that is closed when the head of a request does not come in time, or too many wait for one."""

    deadline = 20.0
    """Seconds for the whole head of a request, from the connection, or from the end of the last answer."""
    most = most_connections()
    _timer: TimerHandle | None = None
    """Until the head of a request has come."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # uvicorn only ever has this kind
        """Wait for a request. One connection too many takes the place of the one that has waited longest."""
        super().connection_made(transport)
        self._look()
        if len(self.connections) > self.most:
            others = [one for one in self.connections if isinstance(one, Connection) and one.gives_up_at is not None]
            min(others, key=lambda one: one.gives_up_at or 0.0, default=self).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody waits any more."""
        super().connection_lost(exc)
        self._wait_no_longer()

    def handle_events(self) -> None:
        """Something has come."""
        super().handle_events()
        self._look()

    def on_response_complete(self) -> None:
        """The next request may come."""
        super().on_response_complete()
        self._look()

    @property
    def gives_up_at(self) -> float | None:
        """When it is closed, by the time of its loop, unless the head of a request comes; None when one has come."""
        return None if self._timer is None else self._timer.when()

    def _look(self) -> None:
        """Whether the head of a request is still to come."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._wait_no_longer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.deadline, self.give_up)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def give_up(self) -> None:
        """Close it."""
        self._wait_no_longer()
        self.transport.close()
