"""The guard of requests: what may not be reached is not, whatever its name stands for by then."""

import pytest

from noonmark.core.run import Outcome
from noonmark.core.targets.reach import Guard
from tests.targets.receiving import calling, receiving


@pytest.fixture(scope="module")
def server():
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def inside(server):
    server.reset()
    return server


def resolver(*answers):
    """One that gives each answer once, and the last one from then on."""
    left = list(answers)

    async def resolve(_host, _port):
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def refused(delivered, words):
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert words in delivered.error
    return True


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "127.0.0.1."],
)
def test_what_came_by_the_network_does_not_reach_this_machine_in_whatever_form(inside, host):
    with calling(guard=Guard.STRICT) as caller:
        delivered = caller.call(f"http://{host}:{inside.port}/")
    assert delivered.outcome is Outcome.DELIVERY_FAILED
    assert inside.requests == []


def test_what_the_program_itself_declared_reaches_it(inside):
    with calling(guard=Guard.STRICT) as caller:
        assert caller.call(f"{inside.url}/", source="embedded").outcome is Outcome.COMPLETED
        # The connection is open, but not for everybody.
        assert refused(caller.call(f"{inside.url}/"), "127.0.0.1 is a loopback address")
    assert len(inside.requests) == 1


def test_every_address_of_a_name_is_judged(inside):
    with calling(guard=Guard.STRICT, resolve=resolver(["8.8.8.8", "127.0.0.1"])) as caller:
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "a.example (127.0.0.1) is a loopback address")
    assert inside.requests == []


def test_a_name_that_changes_its_mind_is_judged_anew_and_asked_once(inside):
    asked = []

    async def resolve(host, _port):
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with calling(guard=Guard.LOCAL, resolve=resolve) as caller:
        assert caller.call(f"http://a.example:{inside.port}/next").outcome is Outcome.FAILED  # it hangs up
        assert asked == ["a.example"]
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "a.example (169.254.169.254) is a metadata")
    assert len(inside.requests) == 1


def test_a_public_name_that_turns_private_is_not_followed_inside(inside):
    with calling(guard=Guard.STRICT, resolve=resolver(["127.0.0.1"])) as caller:
        assert refused(caller.call(f"http://a.example:{inside.port}/"), "loopback")
    assert inside.requests == []


def test_the_address_that_was_judged_is_dialled_and_the_next_one_if_nobody_answers(inside):
    with calling(guard=Guard.LOCAL, resolve=resolver(["127.0.0.2", "127.0.0.1"])) as caller:
        assert caller.call(f"http://a.example:{inside.port}/").outcome is Outcome.COMPLETED
    ((_, _, headers, _),) = inside.requests
    assert headers["Host"] == f"a.example:{inside.port}"


def test_what_was_opened_is_reached(inside):
    with calling(guard=Guard.STRICT, allow_hosts=["inside.example"], resolve=resolver(["127.0.0.1"])) as caller:
        assert caller.call(f"http://inside.example:{inside.port}/").outcome is Outcome.COMPLETED
        assert refused(caller.call(f"http://other.example:{inside.port}/"), "other.example (127.0.0.1)")
    with calling(guard=Guard.STRICT, allow_hosts=["127.0.0.0/8"]) as caller:
        assert caller.call(f"{inside.url}/").outcome is Outcome.COMPLETED
    with calling(guard=Guard.OFF) as caller:
        assert caller.call(f"{inside.url}/").outcome is Outcome.COMPLETED


def test_a_redirect_leads_nowhere(inside):
    with calling(guard=Guard.LOCAL) as caller:
        assert caller.call(f"{inside.url}/redirect").outcome is Outcome.FAILED
    assert [path for _, path, _, _ in inside.requests] == ["/redirect"]
