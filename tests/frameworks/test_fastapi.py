"""FastAPI under uvicorn: the scheduler shares the event loop of the server, and ends with it."""

import signal

import pytest

from tests.frameworks.site import ask

ENDS = (0, -signal.SIGINT, -signal.SIGTERM)
"""How uvicorn ends after a signal that it has handled: some versions pass it on at the end."""


@pytest.fixture
def server(site):
    return site.run("-m", "uvicorn", "tests.frameworks.sites.api:app", "--port", "0")


def test_endpoints_create_run_list_and_cancel_jobs(site, server):
    url = site.address(server)
    job = ask(f"{url}/jobs", "POST", {"name": "double"})
    assert ask(f"{url}/jobs", "POST", {"name": "double"}) == job, "a name is declared once"
    assert ask(f"{url}/jobs/{job}/run", "POST", {"payload": 21}) == 42
    assert ask(f"{url}/jobs")[job] == {"name": "double", "status": "pending", "result": 42}
    assert ask(f"{url}/jobs/{job}", "DELETE") == "cancelled"
    assert job not in ask(f"{url}/jobs")
    assert ask(f"{url}/jobs/{job}", "DELETE") == 404
    [poll] = ask(f"{url}/jobs")
    site.until(lambda: len(site.journal.begins(poll)) >= 3)
    seen = ask(f"{url}/seen")
    assert seen["job"] == seen["server"], "an async job runs on the loop of the server"
    assert seen["thread"]
    site.end(server, signal.SIGTERM, codes=ENDS)
    site.assert_nothing_is_held()
    begun = [line["occurrence"] for line in site.journal.begins(poll)]
    assert len(begun) == len(set(begun))


@pytest.mark.parametrize("key", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_ends_hands_back_what_it_holds(site, server, key):
    held = ask(f"{site.address(server)}/hold", "POST")
    site.until(lambda: all(site.journal.begins(one) for one in held))
    site.end(server, key, codes=ENDS)
    site.assert_nothing_is_held()
    for one in held[:2]:
        [left] = site.scheduler.occurrences(one)
        assert (str(left.phase), str(left.reason)) == ("pending", "lease_lost")
    site.node(15.0)
    site.until(lambda: len(site.journal.begins(held[0])) == 2)
