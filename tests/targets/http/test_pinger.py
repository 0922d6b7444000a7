"""The pinger: calls that succeed, are repeated or given up, beside the work."""

import json
import threading
from dataclasses import replace

import pytest

from noonmark.core.ids import manual
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.core.targets.ping import Moment, PingUrls
from noonmark.targets.http import pinger as module
from noonmark.targets.http.pinger import HttpPinger
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.testing import factories
from tests.embedded.waiting import SOON, eventually
from tests.targets.http.receiver import arrived, http_receiver


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as server:
        yield server


@pytest.fixture(autouse=True)
def _reset(receiver):
    receiver.reset()


def make_pinger(guard=Guard.LOCAL, pauses=(0.0, 0.0)):
    return HttpPinger(HttpTargetSettings(egress=egress_policy(guard, ())), pauses)


def ping(pinger, moment=Moment.SUCCESS, source="rest", **urls):
    schedule = replace(factories.schedule(ping_urls=PingUrls(**urls) if urls else None), source=source)
    pinger.ping(schedule, factories.occurrence(schedule, manual("one"), attempt=1), moment)
    eventually(lambda: not pinger.pending)


def test_each_moment_has_its_url(receiver):
    pinger = make_pinger()
    urls = {str(moment): f"{receiver.url}/{moment}-of-it" for moment in Moment}
    for moment in Moment:
        ping(pinger, moment, **urls)
    assert [(method, path) for method, path, _, _ in receiver.requests] == [
        ("POST", f"/{moment}-of-it") for moment in Moment
    ]
    body = json.loads(receiver.requests[-1][3])
    assert (body["schedule_id"], body["moment"], body["attempt"]) == ("schedule-of-uid-1", "failure", 1)


def test_without_a_url_nothing_is_called(receiver):
    pinger = make_pinger()
    ping(pinger)
    ping(pinger, Moment.START, success=f"{receiver.url}/ok")
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("statuses", "calls", "warning"),
    [
        ([200], 1, ""),
        ([503, 429, 200], 3, ""),
        ([503, 503, 503], 3, "the server answered 503"),
        ([404], 1, "got 404"),
    ],
)
def test_a_call_is_repeated_within_bounds(receiver, caplog, statuses, calls, warning):
    receiver.answers += [(status, b"", {}) for status in statuses]
    ping(make_pinger(), success=f"{receiver.url}/next/secret-path")
    assert len(receiver.requests) == calls
    assert warning in caplog.text
    assert bool(warning) == bool(caplog.records)
    assert "secret-path" not in caplog.text


@pytest.mark.parametrize(("source", "calls"), [("rest", 0), ("embedded", 1)])
def test_the_rules_for_requests_apply(receiver, caplog, source, calls):
    ping(make_pinger(Guard.STRICT), source=source, success=f"{receiver.url}/ok")
    assert len(receiver.requests) == calls
    assert ("allow_hosts" in caplog.text) == (not calls)


def test_a_slow_receiver_does_not_delay_others(receiver):
    pinger = make_pinger()
    schedule = factories.schedule(ping_urls=PingUrls(success=f"{receiver.url}/wait"))
    caller = threading.Thread(
        target=pinger.ping, args=(schedule, factories.occurrence(schedule, manual("a")), Moment.SUCCESS)
    )
    caller.start()
    caller.join(SOON)
    assert not caller.is_alive()
    arrived(receiver)
    assert pinger.pending == 1
    receiver.opened.set()
    eventually(lambda: not pinger.pending)


def test_calls_beyond_a_limit_are_logged(receiver, caplog, monkeypatch):
    monkeypatch.setattr(module, "MAX_CALLS", 0)
    ping(make_pinger(), success=f"{receiver.url}/ok")
    assert receiver.requests == []
    assert "too many calls wait" in caplog.text


def test_a_receiver_that_does_not_answer_is_given_up(receiver, caplog, monkeypatch):
    monkeypatch.setattr(module, "CALL_SECONDS", 0.05)
    ping(make_pinger(pauses=()), success=f"{receiver.url}/wait")
    assert "no answer within 0.05 s" in caplog.text
