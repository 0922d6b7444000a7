"""Two servers on one database server form one cluster: killing one under load loses nothing."""

import threading
from collections import Counter

import pytest

from noonmark import Unreachable
from noonmark.client import Client
from noonmark.core.errors import NoonmarkError
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.soak import SCALE

JOBS = """
def mark(number):
    with open("marks", "a") as marks:
        marks.write(f"{number}\\n")
"""
WRITERS, EACH = 6, 20 * SCALE
LEASE = "2"


class Writer(threading.Thread):
    """Creates schedules one after another, each under a key of its own, at whichever server answers."""

    def __init__(self, urls, number):
        super().__init__()
        self._clients = [Client(url) for url in urls]
        self._numbers = range(number * EACH, (number + 1) * EACH)
        self.acknowledged, self.refused = {}, []

    def run(self):
        for number in self._numbers:
            document = {
                "trigger": {"type": "once", "delay_seconds": 0.5},
                "target": {"target_kind": "function", "function": "mark", "args": [number]},
                "idempotency_key": f"number-{number}",
            }
            self._create(number, document)
        for client in self._clients:
            client.close()

    def _create(self, number, document):
        try:
            self.acknowledged[number] = self._clients[0].create(**document).schedule_id
        except Unreachable:
            # The key shows the other server whether the unanswered request was processed.
            self._clients.pop(0).close()
            self._create(number, document)
        except NoonmarkError as error:
            self.refused.append(error)


@pytest.mark.parametrize("store", ["postgresql", "redis"])
def test_killing_one_of_two_servers_under_load_loses_nothing(store, request, tmp_path, record_property):
    (tmp_path / "jobs.py").write_text(JOBS)
    is_redis = store == "redis"
    url = request.getfixturevalue("redis_url") if is_redis else request.getfixturevalue("database").url
    options = ("--store", url, "--function", "mark=jobs:mark", "--lease", LEASE)
    with (
        serving(tmp_path, *options, *(() if is_redis else ("--migrate",)), name="first") as first,
        serving(tmp_path, *options, name="second") as second,
    ):
        writers = [Writer([first.url, second.url], number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        eventually(lambda: sum(len(writer.acknowledged) for writer in writers) >= WRITERS * EACH // 3)
        first.process.kill()
        for writer in writers:
            writer.join()
        assert [error for writer in writers for error in writer.refused] == []
        acknowledged = {number: one for writer in writers for number, one in writer.acknowledged.items()}
        assert len(acknowledged) == WRITERS * EACH

        def ended():
            with Client(second.url) as client:
                return Counter(str(one.phase) for one in client.list())

        eventually(lambda: ended()["completed"] == len(acknowledged))
        assert ended() == {"completed": len(acknowledged)}  # and no other: not one was created twice
        marks = Counter(int(line) for line in (tmp_path / "marks").read_text().split())
        assert set(marks) == set(acknowledged)
        twice = sum(count > 1 for count in marks.values())
        record_property(
            "figure",
            f"cluster on {store}: {len(acknowledged)} created through two servers, one killed meanwhile; "
            f"lost 0, created twice 0, begun again after the kill {twice}",
        )
