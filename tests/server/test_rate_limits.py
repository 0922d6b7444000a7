"""Rate limits of requests: shared by nodes, told in headers, and bad keys are slowed down."""

import httpx2
import pytest

from noonmark.core.instants import SECOND
from noonmark.core.quotas import Limits, Resource
from noonmark.core.rate_limit import RateLimit, parse_rate
from noonmark.server.rate_limits import RateLimiter, RateLimits
from noonmark.stores.memory import MemoryStore
from noonmark.testing.conformance import HandClock
from tests.server.live_server import Keyed, new_key, serving
from tests.server.test_routes import problem

SECONDS = 10


class Monotonic:
    now = 0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("text", ["10/s", "100/s", "1000/s", "6000/m"])
def test_two_nodes_together_let_as_many_pass_as_one_limit_allows(text):
    clock, monotonic, limit = HandClock(), Monotonic(), parse_rate(text)
    store = MemoryStore(clock)
    nodes = [RateLimiter(store, monotonic) for _ in range(2)]
    wanted = limit.quantity * SECOND // limit.per * SECONDS
    step = SECONDS * SECOND // (10 * wanted)
    passed = 0
    for number in range(10 * wanted):
        passed += nodes[number % 2].take("key a", limit).is_allowed
        clock.now += step
        monotonic.now += step
    assert passed == pytest.approx(wanted, rel=0.05)


def test_a_node_asks_the_store_once_for_a_portion_and_not_while_it_is_empty():
    collected = []

    class Counted(MemoryStore):
        def take_tokens(self, *taken):
            collected.append(taken)
            return super().take_tokens(*taken)

    limiter, limit = RateLimiter(Counted(HandClock()), Monotonic()), parse_rate("1000/s")
    assert sum(limiter.take("key a", limit).is_allowed for _ in range(1_000)) == limit.burst
    assert len(collected) == limit.burst // limit.portion + 1


@pytest.fixture
def served():
    with serving(keyed=True, rates=limits) as server:
        yield server


def limits(store):
    slow = RateLimit(2, 3_600 * SECOND, 2)
    return RateLimits(limiter=RateLimiter(store, Monotonic()), per_key=slow, failures=slow)


def test_too_many_requests_of_a_key_are_refused_with_the_time_to_wait(served):
    first, second, third = (served.client.get("/whoami") for _ in range(3))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.headers["RateLimit-Policy"] == '"key";q=2;w=3600'
    assert first.headers["RateLimit"].startswith('"key";r=1;t=')
    refused = problem(third, 429, "quota_exceeded")
    assert refused["detail"].startswith("too many requests of this key: 2 per 3,600 s are allowed; try again in ")
    assert 1 <= int(third.headers["Retry-After"]) <= 1_800
    assert third.headers["RateLimit"].startswith('"key";r=0;t=')


def test_bad_keys_of_an_address_are_slowed_down_and_good_ones_are_not(served):
    assert served.client.get("/whoami").status_code == 200
    bad = {"Authorization": "Bearer nm_live_000000_" + "x" * 43}
    answers = [served.client.get("/whoami", headers=bad) for _ in range(4)]
    assert [one.status_code for one in answers] == [401, 401, 429, 429]
    assert "Retry-After" in answers[-1].headers
    assert served.client.get("/whoami").status_code == 200


def test_reports_of_receivers_are_limited_by_address():
    """They have no key, so anyone can send them."""

    def limits(store):
        return RateLimits(limiter=RateLimiter(store, Monotonic()), per_address=RateLimit(2, 3_600 * SECOND, 2))

    with serving(keyed=True, rates=limits) as server, httpx2.Client(base_url=server.url) as stranger:
        path, guess = "/occurrences/occ_1/complete", {"token": "a guess"}
        answers = [stranger.post(path, json=guess) for _ in range(4)]
        assert [one.status_code for one in answers] == [401, 401, 429, 429]
        assert "Retry-After" in answers[-1].headers


def test_each_call_of_a_batch_counts(served):
    calls = [{"jsonrpc": "2.0", "id": number, "method": "whoami"} for number in range(3)]
    answers = served.client.post("/rpc", json=[*calls, {"jsonrpc": "2.0", "method": "whoami"}]).json()
    assert ["result" in one for one in answers] == [True, True, False, False]
    refused = answers[2]["error"]["data"]
    assert refused["code"] == "quota_exceeded"
    assert refused["detail"].startswith("too many requests of this key: 2 per 3,600 s are allowed; try again in ")
    assert refused["detail"].endswith(": it was not executed; send another batch")
    assert "1 notifications of this batch were not executed" in answers[3]["error"]["data"]["detail"]
    assert served.client.get("/whoami").status_code == 429


def test_each_call_of_a_batch_counts_for_its_address():
    def limits(store):
        return RateLimits(limiter=RateLimiter(store, Monotonic()), per_address=RateLimit(2, 3_600 * SECOND, 2))

    with serving(keyed=True, rates=limits) as server:
        calls = [{"jsonrpc": "2.0", "id": number, "method": "whoami"} for number in range(3)]
        answers = server.client.post("/rpc", json=calls).json()
        assert "too many requests of this address" in answers[2]["error"]["data"]["detail"]


def test_an_event_beyond_the_rate_of_its_user_is_refused_with_the_time_to_wait():
    with serving(keyed=True, server_limits=Limits(per_user={Resource.EVENTS: {"*": 1}}, per_tenant={})) as server:
        ada = Keyed(server.client, new_key(server.service, opens_store=True, tenant="acme", user="ada"))
        assert ada.post("/events", json={"event_type": "order"}).status_code == 202
        answer = ada.post("/events", json={"event_type": "order"})
        refused = problem(answer, 429, "quota_exceeded")
        assert refused["limit"] == {"name": "events_per_minute", "scope": "user", "value": 1, "used": 1}
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
        assert server.client.post("/events", json={"event_type": "order"}).status_code == 202
