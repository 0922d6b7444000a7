"""A client of the stream of changes, over a socket of its own."""

import json
from contextlib import contextmanager
from typing import NamedTuple

import httpx2

from noonmark.core.instants import SECOND
from tests.embedded.waiting import CLOCK, SOON


class Event(NamedTuple):
    kind: str
    counter: int
    topics: set
    schedule_ids: set
    more: bool


class Stream:
    """One open stream."""

    def __init__(self, response):
        self.response, self._lines = response, response.iter_lines()
        self.last = None
        """The number that a browser would send when it comes back."""
        self.comments = 0

    def block(self):
        """The next block of lines, as fields; None at the end of the stream."""
        fields = {}
        for line in self._lines:
            if not line:
                return fields
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        return None

    def next(self):
        """The next event, however many comments come before it; None if the stream ends."""
        deadline = CLOCK.monotonic() + int(SOON * SECOND)
        while (fields := self.block()) is not None:
            assert CLOCK.monotonic() < deadline, "nothing but comments"
            self.comments += "" in fields
            self.last = fields.get("id", self.last)
            if "event" in fields:
                data = json.loads(fields["data"])
                assert str(data["counter"]) == self.last
                more = (set(data.get("topics", ())), set(data.get("schedule_ids", ())), data.get("more", False))
                return Event(fields["event"], data["counter"], *more)
        return None

    def until(self, is_enough):
        """Events until some are enough."""
        events = [self.next()]
        while not is_enough(events):
            events.append(self.next())
            assert events[-1] is not None
        return events

    def about(self, schedule_id, *topics):
        """Events until these topics of a schedule have changed."""
        return self.until(
            lambda events: (
                set(topics) <= {one for each in events if schedule_id in each.schedule_ids for one in each.topics}
            )
        )


@contextmanager
def streaming(url, key=None, last=None, **headers):
    """An open stream; what it begins with has been read."""
    given = {} if key is None else {"Authorization": f"Bearer {key}"}
    given |= {} if last is None else {"Last-Event-ID": str(last)}
    with httpx2.stream("GET", f"{url}/stream", headers=given | headers, timeout=SOON) as response:
        assert response.status_code == 200, response.read()
        stream = Stream(response)
        opening = stream.block()
        assert opening.keys() == {"retry", "id"}
        stream.last = opening["id"]
        yield stream
