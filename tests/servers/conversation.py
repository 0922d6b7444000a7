"""Parses a PostgreSQL connection on the wire, to find commits.

The server's word is what counts. A reply is everything from the first `CommandComplete` to `ReadyForQuery`, because a
statement outside a transaction is committed between the two.
"""

import re
import struct
from collections import deque
from dataclasses import dataclass

UNTYPED = {80877103: "SSLRequest", 80877104: "GSSENCRequest", 80877102: "CancelRequest"}
"""The codes of what a client may say before its `StartupMessage`; each but the last is answered by one bare byte."""
WRITES = re.compile(rb"\b(insert|update|delete|merge|copy|truncate|create|alter|drop)\b", re.IGNORECASE)
"""A statement with one of these words may write; the server's own word for it may be SELECT."""
IDLE = b"I"


@dataclass(frozen=True)
class Reply:
    """Bytes of the server that belong together."""

    data: bytes
    ends_transaction: bool = False
    """It tells that a COMMIT has been done."""
    ends_statement: bool = False
    """It tells that something outside a transaction has been done, and may have been written."""


class Conversation:
    """One connection. Both sides are heard in the order in which they speak."""

    def __init__(self):
        self._client, self._server = bytearray(), bytearray()
        self._is_started = False
        self._bare = 0
        self._texts = {}
        self._writes = False
        self._asked = deque()
        self._status = IDLE
        self._tags, self._failed = [], False
        self._held = bytearray()

    def hear_client(self, data):
        """Take note of what the client asks for."""
        self._client += data
        while not self._is_started and (message := _take(self._client, typed=False)):
            code = UNTYPED.get(struct.unpack_from("!I", message, 4)[0])
            self._is_started = code is None
            self._bare += code in ("SSLRequest", "GSSENCRequest")
        while self._is_started and (message := _take(self._client)):
            self._ask(message[:1], message[5:])

    def hear_server(self, data):
        """The replies that are whole now."""
        self._server += data
        replies = []
        while self._bare and self._server:
            self._bare -= 1
            replies.append(Reply(bytes([self._server.pop(0)])))
        while message := _take(self._server):
            if reply := self._answer(message):
                replies.append(reply)
        return replies

    def _ask(self, kind, body):
        match kind:
            case b"Q":
                self._asked.append(bool(WRITES.search(body)))
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._texts[name] = bool(WRITES.search(text))
            case b"B":
                self._writes |= self._texts.get(body.split(b"\0", 2)[1], False)
            case b"S":
                self._asked.append(self._writes)
                self._writes = False

    def _answer(self, message):
        kind = message[:1]
        if kind == b"C":
            self._tags.append(message[5:-1])
        self._failed |= kind == b"E"
        self._held += message
        if self._tags and kind != b"Z":
            return None
        data, self._held = bytes(self._held), bytearray()
        return self._ready(data, message[5:6]) if kind == b"Z" else Reply(data)

    def _ready(self, data, status):
        """What has been done between two times at which the server was ready."""
        may_have_written = bool(self._asked) and self._asked.popleft()  # it is ready once without being asked
        ends_transaction = b"COMMIT" in self._tags
        alone = self._status == status == IDLE and bool(self._tags) and not self._failed
        self._status, self._tags, self._failed = status, [], False
        return Reply(data, ends_transaction, alone and may_have_written and not ends_transaction)


def _take(buffer, *, typed=True):
    """The first message, off the buffer; None when it is not whole."""
    start = 1 if typed else 0
    if len(buffer) < start + 4:
        return None
    length = start + struct.unpack_from("!I", buffer, start)[0]
    if len(buffer) < length:
        return None
    message = bytes(buffer[:length])
    del buffer[:length]
    return message
