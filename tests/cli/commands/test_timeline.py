"""`noonmark timeline` and `noonmark overview`: the marks of each state on one axis, and the numbers of the day."""

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, to_text
from noonmark.operations.service import LOCAL
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance.bench import Bench, HandClock
from tests.cli.runner import call


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in which one completed, one failed, one runs, one is due and one comes next, an hour apart."""
    path = tmp_path_factory.mktemp("timeline") / "noonmark.db"
    opened = SqliteStore(path, SystemClock().micros)
    opened.open()
    now = SystemClock().micros()
    clock = HandClock(now)
    bench = Bench(opened, clock)
    schedule, other = (bench.create_quiet(f"uid-{n}", schedule_id=f"s{n}", owner=LOCAL.owner) for n in (1, 2))
    late = now - factories.NOW
    assert bench.settle(bench.run(schedule, "done", late - 5 * 3_600 * SECOND))
    assert bench.fail(bench.run(schedule, "fails", late - 3 * 3_600 * SECOND))
    bench.run(other, "runs", late - 60 * SECOND)
    bench.add(schedule, "due", late - 2 * 3_600 * SECOND)
    bench.add(schedule, "later", late + 3 * 3_600 * SECOND)
    opened.close()
    return f"sqlite:///{path}"


def test_each_row_has_the_marks_of_its_states(store):
    done = call("timeline", "--store", store)
    assert (done.code, done.err) == (0, "")
    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines() if line.split()[0] in ("s1", "s2")}
    assert "".join(sorted(rows["s1"].strip("·").replace("·", ""))) == "".join(sorted("▲✕◌│○"))
    assert list(rows["s1"].replace("·", "")) == ["▲", "✕", "◌", "│", "○"]
    assert "▶" in rows["s2"]
    assert "✕ failed  ▶ running" in done.out
    together = call("timeline", "--all", "--store", store)
    assert [sign for sign in together.out.splitlines()[1].split()[2].replace("·", "") if sign != "│"] == list("▲✕◌▶○")


def test_one_schedule_and_a_span(store):
    now = SystemClock().micros()
    answer = call("timeline", "s1", "--since", to_text(now - 4 * 3_600 * SECOND), "--json", "--store", store).json
    [row] = answer["rows"]
    assert [mark["state"] for mark in row["marks"]] == ["failed", "queued", "planned"]
    refused = call("timeline", "--since", "500d", "--store", store)
    assert refused.code == 2
    assert "400 days" in refused.err


def test_the_overview_names_what_needs_a_look(store):
    done = call("overview", "--timezone", "UTC", "--store", store)
    assert (done.code, done.err) == (0, "")
    assert "1 running, 1 queued, 1 failed in 24 hours" in done.out
    assert "2 schedules: 2 active" in done.out
    kinds = [line.split()[0] for line in done.out.splitlines() if line.startswith(("no_node", "failed", "late"))]
    assert kinds == ["no_node", "failed", "late", "late"]
