"""Requests beside concurrent deletes: an upsert always succeeds, and no answer is wrong."""

from collections import Counter

import pytest

from tests.embedded.waiting import together
from tests.server.live_server import GREET, NOON, serving

TIMES = 8
DOCUMENT = {"schedule_id": "shared", "trigger": NOON, "target": GREET}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def served(request, tmp_path):
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/noonmark.db"}
    url = urls.get(request.param) or request.getfixturevalue("database").url
    with serving(url) as server:
        yield server


def beside_deletes(served, act, callers=3):
    """The answers to requests for a schedule that others upsert and delete meanwhile."""

    def call(number):
        if number == 0:
            acts = [lambda _: served.client.delete("/schedules/shared")]
        elif number == 1:
            acts = [lambda turn: served.client.post("/schedules/upsert", json={**DOCUMENT, "labels": {"n": str(turn)}})]
        else:
            acts = [act]
        return number, [one(turn) for turn in range(TIMES) for one in acts]

    answers = dict(together(2 + callers, call))
    assert {one.status_code for one in answers[0]} <= {200, 404}, [one.text for one in answers[0]]
    deleted = [one.json() for one in answers[0] if one.status_code == 200]
    assert {one["phase"] for one in deleted} <= {"deleted"}, "it answers with what it deleted, not with what came after"
    assert {one.status_code for one in answers[1]} == {200}, [one.text for one in answers[1]]
    return [one for number in range(2, 2 + callers) for one in answers[number]]


def test_an_upsert_succeeds(served):
    def upsert(turn):
        body = {**DOCUMENT, "trigger": {**NOON, "expression": f"{turn} 12 * * *"}}
        return served.client.post("/schedules/upsert", json=body)

    answers = beside_deletes(served, upsert)
    assert Counter(one.status_code for one in answers) == {200: len(answers)}, [one.text for one in answers]


def test_running_or_changing_a_deleted_schedule_is_not_found(served):
    def act(turn):
        change = {"labels": {"turn": str(turn)}}
        asked = [
            served.client.patch("/schedules/shared", json=change),
            served.client.post("/schedules/shared/pause"),
            served.client.post("/schedules/shared/resume"),
            served.client.post("/schedules/shared/run", json={"overlap": "allow"}),
        ]
        assert {one.status_code for one in asked} <= {200, 201, 202, 404}, [one.text for one in asked]
        return asked[-1]

    runs = [one.json() for one in beside_deletes(served, act, 2) if one.is_success]
    for run in runs:
        assert served.client.get(f"/occurrences/{run['occurrence_id']}").status_code == 200, "it was promised"


def test_an_event_is_stored(served):
    answers = beside_deletes(served, lambda _: served.client.post("/events", json={"event_type": "seen"}), 1)
    assert {one.status_code for one in answers} == {202}
