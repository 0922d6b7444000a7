"""Group commit: writes of many threads share a transaction, and each has its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, QuotaExceeded, StoreUnavailable
from noonmark.core.planner import first_plan
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.stores import group_commit
from noonmark.stores.group_commit import GroupCommit
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.rules import plan_writes
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LOOKAHEAD
from tests.embedded.waiting import SOON, eventually


class Ledger:
    """What is committed, transaction by transaction; the first of each key waits for `open`."""

    def __init__(self, fail=None):
        self.committed, self.begun, self.open = [], threading.Semaphore(0), threading.Event()
        self.fail = fail or (lambda values: None)
        self.groups = GroupCommit(self._commit)

    def _commit(self, key, take):
        self.begun.release()
        assert self.open.wait(SOON)
        values = take()
        self.fail(values)
        self.committed.append((key, list(values)))
        return [Conflict(f"no {value}") if value < 0 else value * 10 for value in values]

    def write_all(self, *values, key="a"):
        """Write from a thread each, all while the first commit waits; what each got, in their order.

        What comes as a list is written by one thread.
        """

        def write(value):
            return self.groups.write_each(key, value) if isinstance(value, list) else self.groups.write(key, value)

        with ThreadPoolExecutor(len(values)) as threads:
            first = threads.submit(write, values[0])
            assert self.begun.acquire(timeout=SOON)
            others = [threads.submit(write, value) for value in values[1:]]
            eventually(lambda: len(self.groups._queues[key]) == len(values))
            self.open.set()
            return [one.exception(SOON) or one.result() for one in (first, *others)]


def test_one_that_comes_alone_is_committed_at_once():
    ledger = Ledger()
    ledger.open.set()
    assert [ledger.groups.write("a", number) for number in (1, 2)] == [10, 20]
    assert ledger.committed == [("a", [1]), ("a", [2])]
    assert ledger.groups._queues == {}


def test_those_that_come_before_the_transaction_has_its_locks_share_it():
    ledger = Ledger()
    assert ledger.write_all(1, 2, 3) == [10, 20, 30]
    [(_, values)] = ledger.committed
    assert sorted(values) == [1, 2, 3]
    assert ledger.groups._queues == {}


def test_those_of_another_key_do_not_wait():
    ledger = Ledger()
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(ledger.groups.write, key, number) for key, number in (("a", 1), ("b", 2))]
        for _ in both:
            assert ledger.begun.acquire(timeout=SOON)
        ledger.open.set()
        assert [one.result(SOON) for one in both] == [10, 20]
    assert sorted(ledger.committed) == [("a", [1]), ("b", [2])]


def test_the_next_in_the_queue_commits_what_a_group_has_no_room_for(monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_GROUP", 2)
    ledger = Ledger()
    assert ledger.write_all(1, 2, 3, 4, 5) == [10, 20, 30, 40, 50]
    assert [len(values) for _, values in ledger.committed] == [2, 2, 1]


def test_values_that_one_thread_writes_share_a_transaction_with_those_of_others():
    ledger = Ledger()
    first, (second, refused), third = ledger.write_all(1, [2, -3], 4)
    assert (first, second, str(refused), third) == (10, 20, "no -3", 40)
    [(_, values)] = ledger.committed
    assert sorted(values) == [-3, 1, 2, 4]


def test_values_that_come_together_stay_together(monkeypatch):
    monkeypatch.setattr(group_commit, "MAX_GROUP", 3)
    ledger = Ledger()
    assert ledger.write_all([1, 2], [3, 4], [5, 6, 7, 8]) == [[10, 20], [30, 40], [50, 60, 70, 80]]
    assert sorted(len(values) for _, values in ledger.committed) == [2, 2, 4]


def test_one_that_is_refused_is_refused_alone():
    answers = Ledger().write_all(1, -2, 3)
    assert (answers[0], str(answers[1]), answers[2]) == (10, "no -2", 30)


def test_a_store_that_fails_does_so_for_all_that_wait():
    def fail(values):
        raise StoreUnavailable("gone")

    ledger = Ledger(fail)
    assert [str(one) for one in ledger.write_all(1, 2, 3)] == ["gone"] * 3
    assert ledger.groups._queues == {}


def test_those_that_come_while_the_store_fails_fail_with_it():
    """Otherwise each of them would wait for the same store, one after another."""
    failing, come, tries = threading.Event(), threading.Event(), []

    def commit(key, take):
        tries.append(list(take()))
        failing.set()
        assert come.wait(SOON)
        raise StoreUnavailable("gone")

    groups = GroupCommit(commit)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(groups.write, "a", 1)
        assert failing.wait(SOON)
        second = threads.submit(groups.write, "a", 2)
        eventually(lambda: len(groups._queues["a"]) == 1)
        come.set()
        assert [str(one.exception(SOON)) for one in (first, second)] == ["gone"] * 2
    assert tries == [[1]]


@pytest.mark.parametrize("others", [[2], [2, 3]])
def test_one_that_cannot_be_written_does_not_keep_the_others_from_it(others):
    def fail(values):
        if 2 in values:
            raise ZeroDivisionError

    ledger = Ledger(fail)
    first, failed, *last = ledger.write_all(1, *others)
    assert (first, type(failed), last) == (10, ZeroDivisionError, [30] * len(last))
    assert sorted(ledger.committed) == [("a", [1]), ("a", [3])][: len(others)]


def test_of_values_of_one_thread_the_one_that_cannot_be_written_fails_alone():
    def fail(values):
        if 2 in values:
            raise ZeroDivisionError

    ledger = Ledger(fail)
    ledger.open.set()
    first, failed, last = ledger.groups.write_each("a", [1, 2, 3])
    assert (first, type(failed), last) == (10, ZeroDivisionError, 30)
    assert ledger.committed == [("a", [1]), ("a", [3])]


def test_one_that_comes_alone_and_fails_is_not_tried_again():
    tried = []

    def fail(values):
        tried.append(values)
        raise ZeroDivisionError

    ledger = Ledger(fail)
    ledger.open.set()
    with pytest.raises(ZeroDivisionError):
        ledger.groups.write("a", 1)
    assert tried == [[1]]


def test_an_interrupt_of_the_thread_that_commits_concerns_that_alone():
    interrupts = iter([KeyboardInterrupt])

    def fail(values):
        for interrupt in interrupts:
            raise interrupt

    answers = Ledger(fail).write_all(1, 2, 3)
    assert (type(answers[0]), *answers[1:]) == (KeyboardInterrupt, 20, 30)


class Interrupted:
    """The lock of a write whose thread is interrupted while it waits."""

    def acquire(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("leads", [False, True])
def test_a_thread_that_is_interrupted_while_it_waits_passes_on_its_turn(leads):
    groups, left, other = Ledger().groups, group_commit._Write([1]), group_commit._Write([2])
    left.wakeup, left.leads = Interrupted(), leads
    groups._queues["a"] = [left, other]
    with pytest.raises(KeyboardInterrupt):
        groups._wait("a", left)
    assert groups._queues["a"] == [other]
    assert other.leads is leads


COUNT = 24
QUOTA = Quota(Resource.SCHEDULES, Scope.USER, 1)
FULL = Owner(tenant="acme", user="full")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "sqlite":
        made = SqliteStore(str(tmp_path / "noonmark.db"), HandClock())
    else:
        made = PostgresStore(request.getfixturevalue("database").url, HandClock())
    made.open()
    yield made
    made.close()


def planned(number, **fields):
    """The plan of a schedule, with its audit entry."""
    schedule = factories.schedule(f"uid-{number}", **fields)
    note = AuditEntry(at=schedule.created, caller=f"caller {number}", operation="schedule/create", uid=schedule.uid)
    return replace(first_plan(schedule, lookahead=LOOKAHEAD), note=note)


def test_racing_creates_share_transactions_and_each_has_its_own_answer(store, monkeypatch):
    assert store.create([planned("taken", schedule_id="taken")]) == [True]
    assert store.create([planned("first", owner=FULL)]) == [True]
    plans = {number: planned(number) for number in range(COUNT)}
    plans[3] = planned(3, schedule_id="taken")
    plans[7] = replace(planned(7, owner=FULL), quotas=(QUOTA,))
    plans[11] = planned(11, schedule_id="twice")
    plans[13] = planned(13, schedule_id="twice", owner=Owner(tenant="acme", user="other"))
    sizes, write, begun, opened = [], plan_writes.create_each, threading.Event(), threading.Event()

    def count(uow, plans, *more):
        sizes.append(len(plans))
        return write(uow, plans, *more)

    monkeypatch.setattr(plan_writes, "create_each", count)

    def occupy(uow):
        begun.set()
        assert opened.wait(SOON)

    with ThreadPoolExecutor(COUNT + 1) as threads:
        other = threads.submit(store._write_locked, {"acme"}, occupy)
        assert begun.wait(SOON)
        racing = {number: threads.submit(store.create, [plan]) for number, plan in plans.items()}
        eventually(lambda: sum(map(len, store._grouped_creates._queues.values())) == COUNT)
        opened.set()
        other.result(SOON)
        answers = {number: one.exception(SOON) or one.result() for number, one in racing.items()}
    assert sizes == [COUNT], "they wait for one lock, and then share one transaction"
    assert isinstance(answers.pop(7), QuotaExceeded)
    assert answers.pop(3) == [False]
    assert sorted([answers.pop(11), answers.pop(13)]) == [[False], [True]], "the id is free for one of them"
    assert list(answers.values()) == [[True]] * len(answers)
    for number in answers:
        assert store.find_uid(f"uid-{number}").schedule == plans[number].snapshot.schedule
        assert len(store.occurrences(f"uid-{number}")) == 1
    assert store.find_uid("uid-7") is store.find_uid("uid-3") is None
    noted = {entry.uid: entry.caller for entry in store.audit_entries("acme", 100)}
    created = {"uid-taken", "uid-first", *(f"uid-{number}" for number in answers)}
    assert {uid for uid in noted if uid not in {"uid-11", "uid-13"}} == created
    assert all(caller == f"caller {uid.removeprefix('uid-')}" for uid, caller in noted.items())


def test_creates_of_several_callers_share_a_transaction(store, monkeypatch):
    sizes, write = [], plan_writes.create_each

    def count(uow, plans, *more):
        sizes.append(len(plans))
        return write(uow, plans, *more)

    monkeypatch.setattr(plan_writes, "create_each", count)
    plans = [planned(number) for number in range(3)]
    assert store.create_each([*plans, replace(planned(4), graph=0)]) == [True] * 4
    assert sizes == [3]


def test_creates_of_several_tenants_wait_for_the_lock_of_each(store, monkeypatch):
    groups, locked = store._grouped_creates, []
    commit = groups._commit

    def note(lock, take):
        plans = take()
        locked.append((lock, {store._lock_name(plan.snapshot.schedule.owner.tenant) for plan in plans}))
        return commit(lock, lambda: plans)

    monkeypatch.setattr(groups, "_commit", note)
    owners = [Owner(tenant=f"tenant-{number % 2}", user="ada") for number in range(4)]
    assert store.create_each([planned(number, owner=owner) for number, owner in enumerate(owners)]) == [True] * 4
    assert [locks for _, locks in locked] == [{lock} for lock, _ in locked]


def test_plans_with_transactions_of_their_own_are_not_tried_one_by_one_while_the_store_is_down(store, monkeypatch):
    tries = []

    def fail(*_, **__):
        tries.append(1)
        raise StoreUnavailable("gone")

    monkeypatch.setattr(store, "_write_locked", fail)
    answers = store.create_each([replace(planned(number), graph=0) for number in range(3)])
    assert [str(one) for one in answers] == ["gone"] * 3
    assert tries == [1]


def test_what_others_decide_about_has_a_transaction_of_its_own(store, monkeypatch):
    monkeypatch.setattr(plan_writes, "create_each", None)
    assert store.create([replace(planned(1), graph=0)]) == [True]
    assert store.create([planned(2), planned(3)]) == [True, True]
