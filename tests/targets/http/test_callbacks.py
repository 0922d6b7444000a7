"""Responses that accept the work, to report its end later."""

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.stores.memory import MemoryStore
from noonmark.targets.secrets import SecretResolver
from tests.targets.http.receiver import http_receiver, http_sender

PUBLIC = "https://Schedules.example.com/noonmark"


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def caller():
    store = MemoryStore(SystemClock().micros)
    with http_sender(public_url=PUBLIC, secrets=SecretResolver(store, None)) as caller:
        yield caller


def answered(caller, receiver, status, said, **options):
    """Return the outcome of a response; its callback header may name the occurrence."""
    assignment = caller.made(f"{receiver.url}/next", **options)
    where = f"{PUBLIC}/occurrences/{assignment.occurrence.id}"
    told = {} if said is None else {"Noonmark_Callback": said.format(where=where)}
    receiver.answers.append((status, b"", told))
    caller.target.deliver([assignment])
    return caller.report()[1]


@pytest.mark.parametrize(
    "said", ["accepted", "Accepted", "  ACCEPTED ", "true", "True", "1", "yes", "YES", "{where}", " {where} "]
)
def test_receiver_accepts_work_with_known_header_values(caller, receiver, said):
    assert isinstance(answered(caller, receiver, 202, said), Accepted)
    assert isinstance(answered(caller, receiver, 202, said, expected_statuses=[200]), Accepted)


@pytest.mark.parametrize("said", [None, "", "no", "false", "0", "yes, please", PUBLIC, "{where}/complete", "accepted!"])
def test_unknown_header_value_does_not_accept(caller, receiver, said):
    assert answered(caller, receiver, 202, said).outcome is Outcome.COMPLETED
    assert answered(caller, receiver, 202, said, expected_statuses=[200]).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, Outcome.COMPLETED), (201, Outcome.COMPLETED), (503, Outcome.FAILED)]
)
def test_other_statuses_do_not_accept(caller, receiver, status, outcome):
    assert answered(caller, receiver, status, "accepted").outcome is outcome


def test_nothing_is_accepted_without_a_callback(receiver):
    with http_sender() as caller:
        assert answered(caller, receiver, 202, "accepted").outcome is Outcome.COMPLETED


def test_completion_timeout_sets_the_deadline(caller, receiver):
    taken = answered(caller, receiver, 202, "accepted", completion_timeout_seconds=90)
    assert taken.deadline == taken.accepted + 90 * SECOND
    assert answered(caller, receiver, 202, "accepted").deadline is None


@pytest.mark.parametrize("path", ["mirror", "mirror/Noonmark-Callback-Token"])
def test_stored_response_does_not_contain_the_token(caller, receiver, path):
    """Readers of results must not be able to end the work."""
    receiver.reset()
    assignment = caller.deliver(f"{receiver.url}/{path}")
    _, delivered = caller.report()
    token = receiver.requests[0][2]["Noonmark-Callback-Token"]
    assert delivered.result["body"]["Noonmark-Callback-Token"] == "***"
    assert delivered.result["body"]["Idempotency-Key"] == assignment.occurrence.id
    assert token not in f"{delivered!r} {delivered.result!r} {assignment.result!r}"
    if path != "mirror":
        assert delivered.result["headers"]["x-request-id"] == "***"
        assert "which leads to" in delivered.error
