"""The page about deployment is carried out on a real server, from top to bottom; its queries find what they are for."""

import contextlib
import io
import re
import shlex
import threading
from collections import Counter

import pytest

from noonmark import OnceTrigger, Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, from_micros
from tests.docs.test_documents import ROOT
from tests.servers.postgres import QUICK, running

PAGE = ROOT / "docs" / "deployment.md"
BLOCK = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text("utf-8"))
QUERIES = [text for kind, whose, text in BLOCKS if (kind, whose) == ("sql", "reader")]
PATIENCE = 120.0
CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server():
    with running(**QUICK) as server:
        yield server


class Reader:
    """Whoever follows the page: as the role, and in the database, that it says."""

    def __init__(self, server):
        self._server = server
        address = f"127.0.0.1:{server.port}"
        self._here = {
            "db.example:5432": address,
            "--host=db.example": f"--host=127.0.0.1 --port={server.port}",
            "jobs_admin": server.user,
        }
        self._logins = {
            "admin": server.url(),
            "owner": f"postgresql://jobs@{address}/jobs",
            "reader": f"postgresql://jobs_reader@{address}/jobs",
            "restored": f"postgresql://jobs@{address}/jobs_restored",
        }

    def sql(self, text, whose):
        for statement in text.split(";\n"):
            if statement:
                self._server.tool(
                    "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self._logins[whose], "-c", statement
                )

    def console(self, text):
        for line in text.splitlines():
            name, *arguments = shlex.split(self._put(line.removeprefix("$ ")))
            self._server.tool(name, *arguments)

    def py(self, text):
        """What it prints."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(self._put(text), PAGE.name, "exec"), {"__name__": "deployment"})  # noqa: S102 - our own page
        return printed.getvalue()

    def _put(self, text):
        for there, here in self._here.items():
            text = text.replace(there, here)
        return text


def test_the_page_does_what_it_says(server):
    reader, counts = Reader(server), Counter()
    for place, (kind, whose, text) in enumerate(BLOCKS):
        counts[kind] += 1
        if kind == "sql":
            reader.sql(text, whose)
        elif kind == "console":
            reader.console(text)
        elif kind == "py":
            assert reader.py(text) == next(shown for other, _, shown in BLOCKS[place:] if other == "text")
    assert min(counts["sql"], counts["console"], counts["py"]) > 1


def test_the_readme_does_what_it_says(server):
    [text] = [text for kind, _, text in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if kind == "py"]
    scope = {}
    exec(text.replace("postgresql://jobs@db.example/jobs", server.create("readme")), scope)  # noqa: S102 - our own page
    scope["scheduler"].close()
    assert server.sql("SELECT count(*) FROM noonmark.alembic_version", "readme") == "1"


@pytest.fixture(scope="module")
def busy(server):
    """A database in which there is something of everything to see."""
    url = server.create("busy")
    goes_on, scheduler = threading.Event(), Scheduler(url)

    def hold():
        goes_on.wait(PATIENCE)

    def fail():
        raise ValueError("as it was told to")

    scheduler.schedule(fail, function_name="fail", name="fails")
    held = scheduler.schedule(hold, function_name="hold", name="holds", overlap="queue")
    nobody = Scheduler(url)
    due = nobody._store.clock() + SECOND
    soon = OnceTrigger(from_micros(due))
    # As long as the queries are asked, however busy the machine is, nobody may give up the work that no node serves.
    patient = {"type": "catch_up_one", "grace_seconds": 86_400}
    nobody.schedule(hold, function_name="unknown", name="unserved", trigger=soon, misfire=patient)
    nobody.schedule(hold, function_name="lost", name="lost", trigger=soon, misfire=patient)
    scheduler.start()
    _until(lambda: [one.phase for one in scheduler.occurrences(held)] == ["dispatching"])
    scheduler.run_now(held, wait=False)
    _until(lambda: "queued" in {one.waiting_for for one in scheduler.occurrences(held)})
    _until(lambda: server.sql("SELECT 1 FROM noonmark.occurrences WHERE phase = 'failed'", "busy"))
    # A node that took something and died, and one whose run was taken over and has ended.
    server.sql(DEAD, "busy")
    _until(lambda: nobody._store.clock() > due)
    yield server
    goes_on.set()
    scheduler.close()
    nobody.close()


DEAD = """
    SET search_path = noonmark;
    UPDATE occurrences SET phase = 'claimed', node = 'dead', fence = fence + 1, lease_end = 1
    WHERE route = 'function:lost';
    INSERT INTO runs (occurrence, fence, schedule, attempt, node, started, ended, outcome)
    SELECT key, fence - 1, schedule, 1, 'dead', due, due + 1, 'lease_lost' FROM occurrences WHERE phase = 'failed';
    UPDATE schedule_states SET fault = 'damaged' WHERE schedule IN (SELECT schedule FROM occurrences WHERE ended > 0);
"""


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: " ".join(query.split()[1:4]))
def test_a_query_shows_what_it_is_for(busy, query):
    assert busy.sql(query, "busy"), "nothing was found"


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: " ".join(query.split()[1:4]))
def test_a_query_reads_no_history(busy, query):
    shown = busy.sql(f"SET enable_seqscan = off; EXPLAIN {query}", "busy")
    walked = re.findall(r"Seq Scan on (occurrences|runs)\b", shown)
    assert not walked, shown


def _until(holds):
    limit = CLOCK.monotonic() + int(PATIENCE * SECOND)
    while not holds():
        assert CLOCK.monotonic() < limit, "it did not come about"
        threading.Event().wait(0.02)
