"""An event that was just emitted is matched, also if the clock advances during the call."""

from itertools import count

import pytest

from noonmark.core.event import Event
from noonmark.stores.memory import MemoryStore
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import NOW


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis"])
def test_the_first_event_of_a_tenant_is_not_taken_for_matched(kind, tmp_path, request):
    clock = count(NOW).__next__
    if kind == "redis":
        store = RedisStore(request.getfixturevalue("redis_url"), clock)
    else:
        store = MemoryStore(clock) if kind == "memory" else SqliteStore(tmp_path / "store.db", clock)
    store.open()
    for event_id in ("first", "second"):
        event = Event(event_type="seen", event_id=event_id, source="test", emitted=0, payload=None, behind=None)
        assert store.emit("acme", [event]) == [True]
    assert [one.event.event_id for one in store.unmatched(10)] == ["first", "second"]
    store.close()
