"""Pages are bounded in bytes: every entry appears once, in order, whatever its size."""

import pytest

from noonmark.core.errors import InvalidRequest
from noonmark.operations.models.arguments import ScheduleQuery
from noonmark.operations.serializers import FIRST, MAX_BYTES, fitting, read_page, size_of
from noonmark.server.strict_json import write_json
from tests.operations.harness import Harness

LARGE = "x" * 250_000


@pytest.fixture
def harness():
    return Harness()


def pages(harness, operation, entries, **arguments):
    """Every page of a list, by its cursors."""
    cursor, collected = None, []
    while cursor is not None or not collected:
        page = harness(operation, **arguments, **({} if cursor is None else {"cursor": cursor}))
        collected.append(page[entries])
        cursor = page["next_cursor"]
        assert len(write_json(page)) <= MAX_BYTES + 1_000
    return collected


def emit(harness, count, payload=LARGE):
    for number in range(count):
        harness.clock.advance(1)
        harness("event/emit", event_type="large", event_id=f"e{number}", payload={"text": payload})


def test_events_with_large_payloads(harness):
    emit(harness, 40)
    found = pages(harness, "event/list", "events", limit=1_000)
    assert [one["event_id"] for page in found for one in page] == [f"e{number}" for number in reversed(range(40))]
    assert len(found) == 5
    assert len(pages(harness, "event/list", "events", limit=7)) == 6


def test_small_entries_fill_a_page(harness):
    emit(harness, 3 * FIRST, payload="")
    assert len(harness("event/list", limit=3 * FIRST)["events"]) == 3 * FIRST
    assert harness("event/list", limit=3 * FIRST)["next_cursor"] is None
    assert len(harness("event/list", limit=3 * FIRST - 1)["events"]) == 3 * FIRST - 1
    assert harness("event/list", limit=3 * FIRST - 1)["next_cursor"] is not None


def test_matching_looks_at_as_many_as_can_be_shown(harness):
    emit(harness, 40)
    answer = harness("event/match", event_type="large", limit=1_000)
    assert answer["checked"] == answer["matched"] == len(answer["events"]) == 8
    assert len(write_json(answer)) <= MAX_BYTES + 1_000


def test_schedules_occurrences_and_runs(harness):
    for number in range(20):
        harness.create(
            schedule_id=f"s{number:02}", target={"target_kind": "function", "function": "report", "payload": LARGE}
        )
    found = pages(harness, "schedule/list", "schedules", limit=1_000)
    assert [one["schedule_id"] for page in found for one in page] == [f"s{number:02}" for number in range(20)]
    assert len(found) == 3
    found = pages(harness, "schedule/list", "schedules", limit=1_000, offset=3)
    assert found[0][0]["schedule_id"] == "s03"
    for number in range(20):
        harness.answers.append(LARGE)
        harness("schedule/run", schedule_id="s00", payload={"text": LARGE}, key=f"k{number}", overlap="allow")
        harness.driver.run_due()
    for operation, entries in (("schedule/occurrences", "occurrences"), ("schedule/runs", "runs")):
        found = pages(harness, operation, entries, schedule_id="s00", limit=1_000)
        ids = [one["occurrence_id"] for page in found for one in page]
        assert len(ids) == len(set(ids)) >= 20
    assert len(pages(harness, "schedule/occurrences", "occurrences", schedule_id="s00", limit=1_000)) == 3


def test_the_store_is_asked_for_little_at_a_time():
    rows, collected = list(range(100)), []

    def fetch(count, last):
        collected.append(count)
        start = 0 if last is None else last + 1
        return rows[start : start + count]

    def tell(page):
        return [{"number": one, "text": LARGE} for one in page]

    page = read_page(1_000, fetch, tell)
    assert (len(page.entries), page.end, collected) == (8, 7, [FIRST])
    page = read_page(5, fetch, tell)
    assert (len(page.entries), page.end, collected[1:]) == (5, 4, [6])


def test_an_entry_that_is_larger_than_a_page_comes_alone():
    def fetch(count, last):
        return [] if last == 2 else list(range(0 if last is None else last + 1, 3))[:count]

    def tell(page):
        return [{"number": one, "text": "x" * MAX_BYTES} for one in page]

    page = read_page(10, fetch, tell)
    assert ([one["number"] for one in page.entries], page.end) == ([0], 0)


def test_what_fits_is_reported():
    entry = {"text": LARGE}
    assert fitting([]) == []
    assert len(fitting([entry] * 20)) == MAX_BYTES // size_of(entry)
    assert len(fitting([{"text": "x" * MAX_BYTES}] * 2)) == 1


@pytest.mark.parametrize("limit", [0, -1, 2**31])
def test_a_refused_limit_names_the_largest_page(harness, limit):
    with pytest.raises(InvalidRequest, match=f"^limit: must be an integer from 1 to 1,000, not {limit}$"):
        harness("schedule/list", limit=limit)


def test_a_larger_limit_is_that_of_the_largest_page(harness):
    for limit in (1_000, 1_001, 2**31 - 1):
        assert ScheduleQuery.read({"limit": limit}).limit == 1_000
    for limit in (1_000.5, 0.5, True, "5"):
        with pytest.raises(InvalidRequest, match=r"^limit: must be an integer"):
            harness("schedule/list", limit=limit)
