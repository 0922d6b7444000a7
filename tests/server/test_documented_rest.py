"""Every documented request of other schedulers' clients is answered as documented."""

import json
from pathlib import Path

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.quotas import Limits, Resource
from noonmark.telemetry.metrics import Metrics
from noonmark.testing import FakeClock
from tests.operations.harness import START
from tests.server.live_server import serving
from tests.server.test_documented_jsonrpc import has

TABLES = Path(__file__).parent / "documented"
LIMITS = Limits(per_user={Resource.TASKS: {"*": 3}}, per_tenant={}, min_interval=3_600 * SECOND, max_budget_usd=10)


def table(name):
    return json.loads((TABLES / f"{name}.json").read_text("utf-8"))["calls"]


def put(document, kept):
    """The document with what earlier answers said where it belongs."""
    text = json.dumps(document)
    for name, value in kept.items():
        text = text.replace("{%s}" % name, value)  # noqa: UP031 - braces are what is looked for
    return json.loads(text)


def check(row, answer):
    """That an answer says all that the row says of it."""
    assert answer.status_code == row["status"], (row["title"], answer.text)
    for words in row.get("contains", ()):
        assert words in answer.text, row["title"]
    if "contains" in row:
        return
    said = answer.json()
    assert has(said, row.get("answer", {})), (row["title"], said)
    for name in row.get("has", ()):
        assert said[name], (row["title"], said)
    for name, length in row.get("lengths", {}).items():
        assert len(said[name]) == length, (row["title"], said)


@pytest.mark.parametrize("name", ["cron_service", "events", "tasks"])
def test_every_documented_call_is_answered_as_it_says(name):
    collected = {}
    with serving(limits=LIMITS, metrics=Metrics()) as server:
        for told in table(name):
            row = put(told, collected)
            answer = server.client.request(row["verb"], row["path"], json=row.get("body"))
            check(row, answer)
            if "keep" in row:
                collected[row["keep"]] = answer.json()["schedule_id"]


def test_schedules_of_sessions_and_mobs_are_served_alike():
    collected = {}
    with serving(clock=FakeClock(START)) as server:
        for row in table("sessions"):
            if "rest" not in row:
                continue
            asked = put(row["rest"], collected)
            answer = server.client.request(asked["verb"], asked["path"], json=asked.get("body"))
            if "error" in row:
                assert answer.json()["code"] == row["error"]["code"], (row["title"], answer.text)
            else:
                assert has(answer.json(), put(row["answer"], collected)), (row["title"], answer.text)
            collected.setdefault("schedule_id", answer.json().get("schedule_id"))


@pytest.mark.parametrize("name", ["cron_service", "events", "tasks"])
def test_the_table_can_fail(name):
    row = {**table(name)[0], "answer": {"surprise": 1}}

    class Answer:
        status_code, text = row["status"], "{}"

        @staticmethod
        def json():
            return {}

    with pytest.raises(AssertionError):
        check(row, Answer)
