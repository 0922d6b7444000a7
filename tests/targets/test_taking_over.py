"""Which answers take the work over, to tell its end later."""

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.stores.memory import MemoryStore
from noonmark.targets.unsealing import Unsealer
from tests.targets.receiving import calling, receiving

PUBLIC = "https://Schedules.example.com/noonmark"


@pytest.fixture(scope="module")
def receiver():
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def caller():
    store = MemoryStore(SystemClock().micros)
    with calling(public_url=PUBLIC, unsealer=Unsealer(store, None)) as caller:
        yield caller


def answered(caller, receiver, status, said, **options):
    """What comes of an answer; its callback header may name the occurrence."""
    assignment = caller.made(f"{receiver.url}/next", **options)
    where = f"{PUBLIC}/occurrences/{assignment.occurrence.id}"
    told = {} if said is None else {"Noonmark_Callback": said.format(where=where)}
    receiver.answers.append((status, b"", told))
    caller.target.deliver([assignment])
    return caller.report()[1]


@pytest.mark.parametrize(
    "said", ["accepted", "Accepted", "  ACCEPTED ", "true", "True", "1", "yes", "YES", "{where}", " {where} "]
)
def test_the_receiver_takes_the_work_over_in_one_of_these_words(caller, receiver, said):
    assert isinstance(answered(caller, receiver, 202, said), Accepted)
    assert isinstance(answered(caller, receiver, 202, said, expected_statuses=[200]), Accepted)


@pytest.mark.parametrize("said", [None, "", "no", "false", "0", "yes, please", PUBLIC, "{where}/complete", "accepted!"])
def test_any_other_word_does_not(caller, receiver, said):
    assert answered(caller, receiver, 202, said).outcome is Outcome.COMPLETED
    assert answered(caller, receiver, 202, said, expected_statuses=[200]).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, Outcome.COMPLETED), (201, Outcome.COMPLETED), (503, Outcome.FAILED)]
)
def test_nor_does_any_other_answer(caller, receiver, status, outcome):
    assert answered(caller, receiver, status, "accepted").outcome is outcome


def test_without_a_callback_nobody_can(receiver):
    with calling() as caller:
        assert answered(caller, receiver, 202, "accepted").outcome is Outcome.COMPLETED


def test_the_target_says_how_long_the_receiver_has(caller, receiver):
    taken = answered(caller, receiver, 202, "accepted", completion_timeout_seconds=90)
    assert taken.deadline == taken.accepted + 90 * SECOND
    assert answered(caller, receiver, 202, "accepted").deadline is None


@pytest.mark.parametrize("path", ["mirror", "mirror/Noonmark-Callback-Token"])
def test_what_is_kept_of_an_answer_does_not_repeat_the_token(caller, receiver, path):
    """Whoever reads results may not thereby end the work."""
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
