"""Parses a Redis connection on the wire, to find commits."""

from collections import deque

from tests.servers.conversation import Reply

SCRIPTS = {b"EVAL", b"EVALSHA"}
LINE_END = b"\r\n"


class Replication:
    """The conversation of a server with its replica, of which nothing is understood."""

    def hear_client(self, data):
        """Take note of nothing."""

    def hear_server(self, data):
        """What was said."""
        return [Reply(data)]


class RedisConversation:
    """One connection. Each command has one answer, in order; a subscriber gets more, and commits nothing."""

    def __init__(self):
        self._client, self._server = bytearray(), bytearray()
        self._asked = deque()

    def hear_client(self, data):
        """Take note of which commands run a script."""
        self._client += data
        while (end := _end(self._client, 0)) is not None:
            command = bytes(self._client[:end]).split(LINE_END, 3)
            self._asked.append(command[2].upper() in SCRIPTS)
            del self._client[:end]

    def hear_server(self, data):
        """The answers that are whole now."""
        self._server += data
        replies = []
        while (end := _end(self._server, 0)) is not None:
            answer = bytes(self._server[:end])
            del self._server[:end]
            is_script = bool(self._asked) and self._asked.popleft()
            replies.append(Reply(answer, ends_transaction=is_script and _is_commit(answer)))
        return replies


def _is_commit(answer):
    """Whether a script says that it has written: it answers with the number of its commit."""
    return answer[:1] == b":" and int(answer[1:-2]) > 0


def _end(buffer, start):
    """Where a value of the protocol ends; None when it is not whole."""
    line = buffer.find(LINE_END, start)
    if line < 0:
        return None
    end, kind = line + len(LINE_END), buffer[start : start + 1]
    if kind in (b"+", b"-", b":"):
        return end
    count = int(buffer[start + 1 : line])
    if kind == b"$":
        end += count + len(LINE_END) if count >= 0 else 0
        return end if end <= len(buffer) else None
    for _ in range(count):
        if end is not None:
            end = _end(buffer, end)
    return end
