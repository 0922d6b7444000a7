"""The egress rules at delivery time, whatever a name resolves to."""

import itertools

import pytest

from noonmark.core.run import Outcome
from noonmark.core.targets.egress import Guard
from noonmark.core.targets.http import HttpTarget
from tests.targets.http.internal_hosts import INSIDE, NEVER
from tests.targets.http.receiver import http_receiver, http_sender


@pytest.fixture(scope="module")
def server():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def inside(server):
    server.reset()
    return server


def resolver(*answers):
    """A resolver that returns each answer once, and the last one from then on."""
    left = list(answers)

    def resolve(_host, _port):
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def refused(delivered, words):
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert words in delivered.error
    assert delivered.own_words == delivered.error  # a log may say it
    return True


@pytest.mark.parametrize("guard", [Guard.STRICT, Guard.LOCAL])
def test_internal_hosts_are_refused_in_every_spelling(inside, guard):
    hosts = INSIDE + NEVER if guard is Guard.STRICT else NEVER
    refused_by = {}
    with http_sender(guard=guard) as caller:
        for number, host in enumerate(hosts):
            caller.deliver(HttpTarget(url=f"http://{host}:{inside.port}/"), key=f"{number}")
            _, delivered = caller.report()
            refused_by[host] = delivered.outcome, delivered.is_final
    assert set(refused_by.values()) == {(Outcome.DELIVERY_FAILED, True)}
    assert len(refused_by) == len(hosts)
    assert inside.requests == []


def test_trusted_schedules_reach_internal_hosts(inside):
    with http_sender(guard=Guard.STRICT) as caller:
        assert caller.call(f"{inside.url}/", source="embedded").outcome is Outcome.COMPLETED
        # The open connection is not shared with guarded requests.
        assert refused(caller.call(f"{inside.url}/"), "127.0.0.1 is a loopback address")
    assert len(inside.requests) == 1


def test_every_address_of_a_host_is_checked(inside):
    with http_sender(guard=Guard.STRICT, resolve=resolver(["8.8.8.8", "127.0.0.1"])) as caller:
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "a.example (127.0.0.1) is a loopback address")
    assert inside.requests == []


def test_host_is_resolved_once_per_connection_and_checked_again(inside):
    collected = []

    def resolve(host, _port):
        collected.append(host)
        return ["127.0.0.1"] if len(collected) == 1 else ["169.254.169.254"]

    with http_sender(guard=Guard.LOCAL, resolve=resolve) as caller:
        assert caller.call(f"http://a.example:{inside.port}/next").outcome is Outcome.FAILED  # it hangs up
        assert collected == ["a.example"]
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "a.example (169.254.169.254) is a metadata")
    assert len(inside.requests) == 1


def test_dns_rebinding_reaches_only_checked_addresses(inside):
    answers = itertools.cycle([["127.0.0.2"], ["127.0.0.1"]])
    collected = []

    def resolve(host, _port):
        collected.append(host)
        return next(answers)

    # Another machine, which is open, and this one, which is not. One port, so only the address tells them apart.
    with http_receiver("127.0.0.2", inside.port) as outside:
        with http_sender(guard=Guard.STRICT, allow_hosts=["127.0.0.2"], resolve=resolve) as caller:
            outcomes = [
                caller.call(f"http://a{number}.example:{inside.port}/", key=f"{number}").outcome for number in range(50)
            ]
        assert outcomes == [Outcome.COMPLETED, Outcome.DELIVERY_FAILED] * 25
        assert collected == [
            f"a{number}.example" for number in range(50)
        ]  # once each: what was judged is what is dialled
        assert (len(outside.requests), len(inside.requests)) == (25, 0)


@pytest.mark.parametrize("also", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1%1"])
def test_one_internal_address_is_enough_to_refuse(inside, also):
    with http_sender(guard=Guard.STRICT, allow_hosts=["127.0.0.2"], resolve=resolver(["127.0.0.2", also])) as caller:
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "a.example (")
    assert inside.requests == []


def test_checked_addresses_are_tried_in_order(inside):
    with http_sender(guard=Guard.LOCAL, resolve=resolver(["127.0.0.2", "127.0.0.1"])) as caller:
        assert caller.call(f"http://a.example:{inside.port}/").outcome is Outcome.COMPLETED
    ((_, _, headers, _),) = inside.requests
    assert headers["Host"] == f"a.example:{inside.port}"


def test_allowed_hosts_are_reached(inside):
    with http_sender(guard=Guard.STRICT, allow_hosts=["inside.example"], resolve=resolver(["127.0.0.1"])) as caller:
        assert caller.call(f"http://inside.example:{inside.port}/").outcome is Outcome.COMPLETED
        assert refused(caller.call(f"http://other.example:{inside.port}/"), "other.example (127.0.0.1)")
    with http_sender(guard=Guard.STRICT, allow_hosts=["127.0.0.0/8"]) as caller:
        assert caller.call(f"{inside.url}/").outcome is Outcome.COMPLETED
    with http_sender(
        guard=Guard.STRICT, allow_hosts=[f"127.0.0.1:{inside.port}"], resolve=resolver(["127.0.0.1"])
    ) as caller:
        assert caller.call(f"{inside.url}/").outcome is Outcome.COMPLETED
        assert caller.call(f"http://a.example:{inside.port}/").outcome is Outcome.COMPLETED
        assert refused(caller.call(f"http://a.example:{inside.port + 1}/"), "a.example (127.0.0.1)")
    with http_sender(guard=Guard.OFF) as caller:
        assert caller.call(f"{inside.url}/").outcome is Outcome.COMPLETED


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_redirects_are_not_followed(inside, status):
    with http_sender(guard=Guard.LOCAL) as caller:
        once = caller.call(f"{inside.url}/redirect/{status}")
        chain = caller.call(f"{inside.url}/redirect/{status}/50", method="GET", expected_statuses=["3xx"])
    assert (once.outcome, once.is_final, chain.outcome) == (Outcome.FAILED, True, Outcome.COMPLETED)
    assert f"answered {status}" in once.error
    assert once.error.endswith('/inside"; redirects are not followed')
    assert [path for _, path, _, _ in inside.requests] == [f"/redirect/{status}", f"/redirect/{status}/50"]


@pytest.mark.parametrize("url", ["http://[::1/{{payload}}", "ftp://a.example/{{payload}}", "http://a..b/{{payload}}"])
def test_url_errors_do_not_repeat_the_url(url):
    with http_sender() as caller:
        delivered = caller.call(HttpTarget(url=url), payload="MARK")
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert delivered.error == delivered.own_words
    assert delivered.error.startswith("the filled-in URL ")
    assert not any(part in delivered.error for part in ("MARK", "a.example", "a..b", "[::1/"))
