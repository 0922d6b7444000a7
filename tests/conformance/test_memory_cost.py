"""The cost of the memory store follows due work, not stored rows."""

from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.planner import first_plan
from noonmark.core.schedule import Owner
from noonmark.ports.records import Backlog, Shares
from noonmark.stores.memory import MemoryStore
from noonmark.stores.memory.due_index import SLACK, DueIndex, WaitQueues, take
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE
from noonmark.testing.factories import MINUTE, NOW


class Counted(dict):
    """A dict that counts how often it is asked for a value, and refuses to be walked."""

    asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)

    def values(self):
        raise AssertionError("everything stored was read")

    __iter__ = items = keys = values


def test_claiming_and_planning_read_only_what_is_due():
    store = MemoryStore(HandClock())
    schedules = [factories.schedule(f"uid-{number}") for number in range(2_000)]
    due = factories.schedule("due", created=NOW - MINUTE)
    store.create([first_plan(one, lookahead=LOOKAHEAD) for one in [*schedules, due]])
    uow = store._uow
    uow.rows, uow.entries = Counted(uow.rows), Counted(uow.entries)
    assert store.claim("node", [ROUTE], now=NOW, until=NOW, limit=100, lease=LEASE) == []
    assert store.plannable(NOW, 100) == []
    assert store.next_time([ROUTE]) == NOW + MINUTE - LOOKAHEAD
    assert store.backlog(NOW - 1, 100) == Backlog()
    assert (uow.rows.asked, uow.entries.asked) == (0, 0)
    claims = store.claim("node", [ROUTE], now=NOW, until=NOW + MINUTE, limit=10, lease=LEASE)
    assert len(claims) == 10
    assert uow.rows.asked == 10
    assert store.backlog(NOW + MINUTE, 20) == Backlog(schedules=20, due=20)
    assert uow.rows.asked == 30


def test_a_share_reads_only_what_it_gives():
    store = MemoryStore(HandClock())
    people = [Owner(tenant="acme", user=f"user-{number}") for number in range(2_000)]
    later = [factories.schedule(f"uid-{one.user}", owner=one) for one in people]
    many = [factories.schedule(f"due-{number}", created=NOW - MINUTE, owner=people[0]) for number in range(500)]
    single = factories.schedule("single", created=NOW - MINUTE, owner=people[1])
    store.create([first_plan(one, lookahead=LOOKAHEAD) for one in [*later, *many, single]])
    uow = store._uow
    uow.rows = Counted(uow.rows)
    now = NOW + MINUTE - 1
    assert store.claim("node", [ROUTE], now=now, until=now, limit=9, lease=LEASE, shares=Shares(each=2)) == []
    assert uow.rows.asked == 0
    shares = Shares(each=2, besides=frozenset(people[2:]))
    claims = store.claim("node", [ROUTE], now=now + 1, until=now + 1, limit=9, lease=LEASE, shares=shares)
    assert len(claims) == 4
    assert uow.rows.asked == 4


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9))), st.integers(0, 9))
def test_an_agenda_is_a_sorted_dict(steps, until):
    due_index, expected = DueIndex(), {}
    for key, time in steps:
        if time is None:
            due_index.discard(key)
            expected.pop(key, None)
        else:
            due_index.put(key, time)
            expected[key] = time
        assert due_index.first() == min(((time, 0, key) for key, time in expected.items()), default=None)
    due = sorted((time, key) for key, time in expected.items() if time <= until)
    assert list(take([(due_index, until)], 4)) == [key for _, key in due[:4]]


def test_a_key_that_moves_all_day_takes_no_room():
    due_index = DueIndex()
    for time in range(10_000):
        due_index.put("renewed", time)
    assert len(due_index._heap) <= SLACK + 2
    assert due_index.first() == (9_999, 0, "renewed")


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from("abcdefgh"), st.none() | st.integers(0, 9))),
    st.integers(0, 9),
)
def test_lines_are_agendas_of_owners(steps, until):
    lines, expected, filed = WaitQueues(), {}, {}
    for owner, key, time in steps:
        if (before := filed.pop(key, None)) is not None:
            before.discard(key)
            del expected[key]
        if time is not None:
            filed[key] = lines.put(owner, key, time, 0)
            expected[key] = (time, owner)
        first = lines.first()
        assert (first and first[0]) == min((time for time, _ in expected.values()), default=None)
    due = {key: owner for key, (time, owner) in expected.items() if time <= until}
    assert lines.until(until) == sorted((expected[key][0], 0, key) for key in due)
    assert lines.due(until).keys() == set(due.values())
