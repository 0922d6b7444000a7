import asyncio
import json

import pytest

from bench.service import bare, jobs
from bench.service.callers import ask, request
from bench.service.tables import server_on

CREATES = [request("POST", "/schedules", jobs.body(number)) for number in range(12)]


@pytest.fixture(scope="module")
def port():
    with server_on() as server:
        yield server.port


def test_all_requests_are_sent_and_each_answer_is_timed(port):
    run = asyncio.run(ask(port, CREATES, connections=4, status=201))
    assert len(run.took) == len(run.begun) == len(CREATES)
    assert min(run.took) > 0
    names = [one["name"] for one in listed(port)]
    assert sorted(names) == sorted(jobs.document(number)["name"] for number in range(12))
    assert json.loads(run.answer)["name"] in names


def listed(port):
    return json.loads(asyncio.run(ask(port, [request("GET", "/schedules")])).answer)["schedules"]


def test_an_answer_that_was_not_expected_ends_the_measurement(port):
    with pytest.raises(AssertionError, match="404"):
        asyncio.run(ask(port, [request("GET", "/schedules/nobody")]))


def test_a_server_that_goes_away_ends_the_measurement():
    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def meet():
        async with await asyncio.start_server(hang_up, jobs.LOOPBACK, 0) as server:
            await ask(server.sockets[0].getsockname()[1], CREATES)

    with pytest.raises(AssertionError, match="the server has closed a connection"):
        asyncio.run(meet())


def test_the_bare_server_reads_the_body_and_answers_as_ours_does():
    with bare.serving() as port:
        run = asyncio.run(ask(port, CREATES, connections=2, status=201))
        assert run.answer == bare.ANSWER
        with pytest.raises(AssertionError, match="500"):
            asyncio.run(ask(port, [request("POST", "/schedules", b"{")], status=201))
