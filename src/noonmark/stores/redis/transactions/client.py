"""The commands that the Redis store sends, and the errors that it may meet."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from hashlib import sha1
from importlib.resources import files
from itertools import count
from secrets import token_hex  # noqa: TID251 - a client must know its own messages
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)
from redis.retry import Retry

from noonmark.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.stores.redis.address import Address

Question = tuple[str, bytes, bytes, int, bool]
"""A range of a sorted set: its key, the least and the greatest member, a limit, and whether it is read backwards."""


class _Script:
    """A script of this package, and the name by which the server knows it."""

    def __init__(self, file: str) -> None:
        self.text = files(__package__ or "").joinpath(file).read_bytes()
        self.digest = sha1(self.text, usedforsecurity=False).hexdigest()


_COMMIT, _DISTINCT = _Script("commit.lua"), _Script("distinct.lua")


FORMAT_KEY = "format"
"""The version of keys and values; see `bootstrap`."""
HOLD_KEY = "hold"
"""While this key exists, no commit writes; see `copy_endpoint`."""
TURN_KEY = "turn"
"""While this key exists, only the transaction that it names commits; see `Client.turn`."""
TURN_SECONDS = 5
"""How long a turn lasts at most; it usually takes milliseconds."""
_PATIENCE = 4 * TURN_SECONDS
"""Seconds that a transaction waits for others to have their turns."""
_PAUSE = 0.002
_HELD, _WAIT, _OTHER_FORMAT = -2, -3, -4
_PROLONG = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
"""


class NoAnswer(StoreUnavailable):
    """The server did not answer in time."""


class ConnectionLost(NoAnswer):
    """The connection broke, or could not be made. What only reads may be tried again at once."""


class FormatChanged(StoreUnavailable):
    """The store is gone, or has another format than when it was opened. Nothing was written."""


class Client:
    """A pool of connections to one database. Any thread may call a method."""

    def __init__(self, address: Address) -> None:
        """Connections are made when they are needed."""
        self._address = address
        self._redis = connect(address)
        self._prefix = address.prefix + ":"
        self.token = token_hex(4)
        """What this client calls itself: in versions of records, and in its messages."""
        self._turns = count(1)
        self.format: str | None = None
        """The format of the data that it writes, if commits should check that."""
        self.commits = 0
        """How many commits of this client have written something."""

    @property
    def channel(self) -> str:
        """The channel on which all clients tell each other that they have written something."""
        return f"{self._prefix}wake"

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def time(self) -> Micros:
        """The server's clock."""
        with self.translated():
            seconds, micros = self._redis.time()
        return int(seconds) * 1_000_000 + int(micros)

    def hmget(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        """The values of fields of a hash."""
        with self.translated():
            values: list[bytes | None] = self._redis.hmget(self._prefix + key, fields)
        return values

    def gather(
        self, hashes: Sequence[tuple[str, Sequence[bytes]]], questions: Sequence[Question], *, begins: bool
    ) -> tuple[Micros, list[list[bytes | None]], list[list[bytes]]]:
        """The values of fields of hashes and the members of ranges, in one round trip.

        If a transaction `begins`, it also returns the server's clock, and refuses a store that is gone: everything
        would seem to be empty.
        """
        with self.translated():
            pipeline = self._redis.pipeline(transaction=False)
            if begins:
                pipeline.time()
                pipeline.get(self._prefix + FORMAT_KEY)
            for key, fields in hashes:
                pipeline.hmget(self._prefix + key, fields)
            for key, low, high, limit, reverse in questions:
                order = ("ZREVRANGEBYLEX", self._prefix + key, high, low)
                if not reverse:
                    order = ("ZRANGEBYLEX", self._prefix + key, low, high)
                pipeline.execute_command(*order, "LIMIT", 0, limit)
            answers: list[Any] = pipeline.execute()
        time = 0
        if begins:
            (seconds, micros), found = answers[:2]
            time = int(seconds) * 1_000_000 + int(micros)
            if self.format is not None and found != self.format.encode():
                raise self._format_changed()
            del answers[:2]
        return time, answers[: len(hashes)], answers[len(hashes) :]

    def distinct(self, questions: Sequence[tuple[str, bytes, bytes, int]], steps: int) -> list[list[bytes]]:
        """Of ranges of sorted sets, the first member with each beginning; the last number says of how many values."""
        with self.translated():
            try:
                return self._distinct(questions, steps)
            except NoScriptError:
                self._redis.script_load(_DISTINCT.text)
                return self._distinct(questions, steps)

    def _distinct(self, questions: Sequence[tuple[str, bytes, bytes, int]], steps: int) -> list[list[bytes]]:
        pipeline = self._redis.pipeline(transaction=False)
        for key, low, high, values in questions:
            pipeline.evalsha(_DISTINCT.digest, 1, self._prefix + key, low, high, values, steps)
        answers: list[list[bytes]] = pipeline.execute()
        return answers

    def count(self, key: str, low: bytes, high: bytes) -> int:
        """How many members a range of a sorted set has."""
        with self.translated():
            return int(self._redis.zlexcount(self._prefix + key, low, high))

    def size(self, table: str) -> int:
        """How many records a table has."""
        with self.translated():
            return int(self._redis.hlen(self._prefix + table))

    def scan(self, table: str, cursor: int, count: int) -> tuple[int, dict[bytes, bytes]]:
        """Some records of a table, in no order, and where to go on; 0 is the beginning, and the end."""
        with self.translated():
            following, found = self._redis.hscan(self._prefix + table, cursor=cursor, count=count)
        return int(following), found

    def increase(self, key: str, by: int) -> int:
        """Add to a counter; returns its new value."""
        with self.translated():
            return int(self._redis.incrby(self._prefix + key, by))

    def read(self, key: str) -> bytes | None:
        """The value of a key."""
        with self.translated():
            value: bytes | None = self._redis.get(self._prefix + key)
        return value

    def write_once(self, key: str, value: str, *, seconds: int | None = None) -> bytes:
        """Set a key that does not exist, perhaps for so long; returns the value that it has now."""
        with self.translated():
            self._redis.set(self._prefix + key, value, nx=True, ex=seconds)
        return self.read(key) or b""

    def prolong(self, key: str, value: str, *, seconds: int) -> bool:
        """Keep a key for so long; False if it does not have this value any more."""
        with self.translated():
            return bool(self._redis.eval(_PROLONG, 1, self._prefix + key, value, seconds))

    def replace(
        self,
        key: str,
        value: str,
        *,
        hashes: Mapping[str, Mapping[bytes, str]],
        others: Mapping[str, Any] | None = None,
    ) -> None:
        """Set keys, and set or delete hashes, all together."""
        with self.translated(), self._redis.pipeline(transaction=True) as pipeline:
            for name, fields in hashes.items():
                pipeline.delete(self._prefix + name)
                if fields:
                    pipeline.hset(self._prefix + name, mapping=dict(fields))
            for name, other in {key: value, **(others or {})}.items():
                pipeline.set(self._prefix + name, other)
            pipeline.execute()

    def has_any(self, keys: Sequence[str]) -> bool:
        """Whether one of the keys exists."""
        with self.translated():
            return bool(self._redis.exists(*(self._prefix + key for key in keys)))

    def run(self, *command: str) -> Any:
        """Run a command about the server."""
        with self.translated():
            return self._redis.execute_command(*command)

    def notify(self) -> None:
        """Tell others that something was written."""
        with self.translated():
            self._redis.publish(self.channel, self.token)

    def foreign_commits(self) -> int:
        """How many commits other clients have made; it may count one of this client that has just been made."""
        return int(self.read("commits") or 0) - self.commits

    def commit(self, keys: Sequence[str], arguments: Sequence[Any]) -> int:
        """Run the commit script; returns the number of the commit, 0 if nothing was written, -1 if it is refused."""
        names = [*(self._prefix + key for key in (*keys, FORMAT_KEY, TURN_KEY, HOLD_KEY, "commits")), self.channel]
        arguments = ["w", self.token, *arguments]
        if self.format is not None:
            arguments = ["u", self.format, *arguments]
        for _ in range(round(_PATIENCE / _PAUSE)):
            number = self._commit(names, arguments)
            if number != _WAIT:
                break
            threading.Event().wait(_PAUSE)
        else:
            raise StoreUnavailable(f"Redis at {self._address.shown}: others had their turn for {_PATIENCE} s")
        if number == _HELD:
            raise StoreUnavailable(f"the store in {self._address.shown} is being copied; nothing was written")
        if number == _OTHER_FORMAT:
            raise self._format_changed()
        if number > 0:
            self.commits += 1
        return number

    def _format_changed(self) -> FormatChanged:
        return FormatChanged(f"the store in {self._address.shown} is gone, or has another format than before")

    def _commit(self, names: Sequence[str], arguments: Sequence[Any]) -> int:
        with self.translated():
            try:
                number = self._redis.evalsha(_COMMIT.digest, len(names), *names, *arguments)
            except NoScriptError:
                number = self._redis.eval(_COMMIT.text, len(names), *names, *arguments)
        return int(number)

    @contextmanager
    def turn(self) -> Iterator[str]:
        """Wait for a turn, as long as the block or a few seconds: no other transaction commits meanwhile.

        Yields the name that the transaction must have.
        """
        name = f"{self.token}-{next(self._turns)}"
        for _ in range(round(_PATIENCE / _PAUSE)):
            if self.write_once(TURN_KEY, name, seconds=TURN_SECONDS) == name.encode():
                break
            threading.Event().wait(_PAUSE)
        try:
            yield name
        finally:
            with suppress(StoreUnavailable):  # it ends by itself, and what was done in it is done
                self.prolong(TURN_KEY, name, seconds=0)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of the server and the network as those of a store."""
        try:
            yield
        except NoPermissionError as error:
            raise StoreUnavailable(f"Redis at {self._address.shown}: the user lacks a right: {error}") from error
        except AuthenticationError as error:
            raise StoreUnavailable(f"Redis at {self._address.shown} refuses the user or password: {error}") from error
        except OutOfMemoryError as error:
            raise StoreUnavailable(
                f"Redis at {self._address.shown} has reached its maxmemory and takes no writes; nothing was written"
            ) from error
        except ReadOnlyError as error:
            self._redis.connection_pool.disconnect()  # a fail-over may have made another server the primary one
            raise StoreUnavailable(
                f"Redis at {self._address.shown} is a read-only replica; nothing was written"
            ) from error
        except BusyLoadingError as error:
            raise StoreUnavailable(f"Redis at {self._address.shown} is starting: {error}") from error
        except (RedisTimeoutError, RedisConnectionError) as error:
            kind = ConnectionLost if isinstance(error, RedisConnectionError) else NoAnswer
            raise kind(f"Redis at {self._address.shown} did not answer: {error}") from error
        except ResponseError as error:
            raise StoreUnavailable(f"Redis at {self._address.shown} refuses a command: {error}") from error
        except RedisError as error:
            raise StoreUnavailable(f"Redis at {self._address.shown} failed: {error}") from error


def connect(address: Address) -> redis.Redis:
    """A client of the library; a command is sent once, since a lost answer does not say what was done."""
    return redis.Redis(
        host=address.host,
        port=address.port,
        db=address.database,
        username=address.username,
        password=address.password,
        ssl=address.tls,
        socket_timeout=address.timeout,
        socket_connect_timeout=address.timeout / 2,
        retry=Retry(NoBackoff(), 0),
        client_name="noonmark",
        protocol=2,
    )
