"""Schedules of a program with other targets than functions: programs, requests and events."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from noonmark import AsyncScheduler, Conflict, EventTrigger, IntervalTrigger, InvalidSchedule, RunFailed, Scheduler
from noonmark.client import verify
from noonmark.core.instants import SECOND
from noonmark.targets import process_control
from tests.embedded.waiting import NEVER, ended, eventually, phases
from tests.targets.command.harness import PROCESS_TREE, is_alive, is_stopped
from tests.targets.http.receiver import http_receiver, sent

KEY = "a key of the tests"


class TestCommands:
    def test_it_runs_when_it_is_due(self, keeper, tmp_path):
        job = keeper.schedule_command(["sh", "-c", "cat > got"], cwd=tmp_path, payload={"n": 1}, name="save")
        with keeper:
            assert ended(keeper, job) == ["completed"]
        assert (tmp_path / "got").read_text() == '{"n": 1}'
        [run] = keeper.runs(job)
        assert run.result == {"exit_code": 0, "output": ""}

    def test_it_runs_on_request(self, keeper):
        job = keeper.schedule_command(
            [Path("/bin/sh"), "-c", 'cat; echo " $LEVEL"'], trigger=NEVER, env={"LEVEL": "9"}, stdin="word", name="it"
        )
        assert keeper.run_now(job)["output"] == "word 9\n"
        assert keeper.schedule_command(["false"], trigger=NEVER, name="it") == job
        with pytest.raises(subprocess.CalledProcessError):
            keeper.run_now(job)

    def test_it_is_retried_and_limited(self, keeper, tmp_path):
        script = "echo >> tries; test $NOONMARK_ATTEMPT = 2 && nice"
        retries = {"max_attempts": 3, "backoff_seconds": 0.01}
        job = keeper.schedule_command(["sh", "-c", script], cwd=tmp_path, retries=retries, limits={"nice": 3})
        with keeper:
            assert ended(keeper, job) == ["completed"]
        assert len((tmp_path / "tries").read_text()) == 2
        assert keeper.runs(job)[0].result["output"] == f"{min(19, os.nice(0) + 3)}\n"

    def test_what_it_writes_is_seen_while_it_runs(self, keeper, tmp_path):
        script = "echo one; while ! test -e go; do sleep 0.02; done; echo two"
        job = keeper.schedule_command(["sh", "-c", script], cwd=tmp_path)
        with keeper:
            eventually(lambda: [run.result for run in keeper.runs(job)] == [{"output": "one\n"}])
            [run] = keeper.runs(job)
            assert (run.outcome, run.ended_at) == (None, None)
            (tmp_path / "go").touch()
            assert ended(keeper, job) == ["completed"]
        [ran] = keeper.runs(job)
        assert (ran.id, ran.started, ran.result) == (run.id, run.started, {"exit_code": 0, "output": "one\ntwo\n"})

    def test_it_ends_when_it_is_cancelled(self, keeper, tmp_path):
        job = keeper.schedule_command(["sh", "-c", "echo $$ > pid; sleep 600"], cwd=tmp_path)
        with keeper:
            pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
            assert keeper.cancel(job)
            assert ended(keeper, job) == ["cancelled"]
        assert not is_alive(pid)

    def test_it_ends_when_the_program_stops_and_runs_again(self, keeper, tmp_path):
        script = "echo $$ > pid; test -e again || sleep 600"
        job = keeper.schedule_command(["sh", "-c", script], cwd=tmp_path)
        keeper.start()
        pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
        keeper.stop(timeout=0)
        eventually(lambda: not is_alive(pid))
        assert phases(keeper, job) == ["pending"]
        (tmp_path / "again").touch()
        with keeper:
            assert ended(keeper, job) == ["completed"]

    def test_it_is_suspended_between_two_windows(self, keeper, tmp_path):
        script = "echo $$ > pid; while ! test -e go; do sleep 0.02; done"
        window = {"duration_seconds": 0.4, "end_action": "pause"}
        job = keeper.schedule_command(["sh", "-c", script], cwd=tmp_path, trigger=IntervalTrigger(1), window=window)
        with keeper:
            pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
            eventually(lambda: is_stopped(pid))
            (tmp_path / "go").touch()
            eventually(lambda: "completed" in phases(keeper, job))
            keeper.cancel(job)
        first = min(keeper.runs(job), key=lambda run: run.started)
        assert str(first.outcome) == "completed"
        assert (first.ended_at - first.started_at).total_seconds() > 0.4

    def test_its_whole_family_ends_when_another_node_has_it(self, tmp_path, monkeypatch):
        monkeypatch.setattr(process_control, "STOP_GRACE", SECOND // 10)
        scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", lease=1)
        job = scheduler.schedule_command(["sh", "-c", f"echo begun; {PROCESS_TREE}"], cwd=tmp_path)
        with scheduler:
            eventually(lambda: [run.result for run in scheduler.runs(job)] == [{"output": "begun\n"}])
            pids = [int((tmp_path / name).read_text()) for name in ("parent", "child", "grandchild", "apart")]
            store = scheduler._store

            def steal():
                """Claim it as after the end of its lease; its node may renew the lease in between."""
                with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=30)) as file, file:
                    file.execute("UPDATE occurrences SET lease_end = 1")
                now = store.clock()
                return store.claim("thief", ["command"], now=now, until=now, limit=1, lease=60 * SECOND)

            [claim] = eventually(steal)
            eventually(lambda: not any(map(is_alive, pids)))
            [lost] = scheduler.runs(job)
            assert (str(lost.outcome), lost.result) == ("lease_lost", {"output": "begun\n"})
            assert store.occurrence(claim.occurrence.id) == claim.occurrence
        scheduler.close()

    def test_one_that_was_made_before_is_taken_up_again(self, open_on_file):
        job = open_on_file().schedule_command(["true"], name="it")
        with open_on_file() as again:
            assert ended(again, job) == ["completed"]

    def test_a_program_without_commands_leaves_them_to_others(self, open_on_file):
        scheduler = open_on_file()
        with scheduler:
            [node] = eventually(scheduler.nodes)
            assert "command" not in node.routes
            scheduler.schedule_command(["true"], trigger=NEVER)
            assert "command" in scheduler._with_runner(lambda runner: runner.loop._runtime.target.routes())

    @pytest.mark.parametrize(
        ("argv", "options", "field"),
        [
            ("ls -l", {}, "argv"),
            ([], {}, "argv"),
            (["ls", 1], {}, "argv[1]"),
            (["ls"], {"env": {"A=B": "c"}}, "env.A=B"),
            (["ls"], {"env": 1}, "env"),
            (["ls"], {"cwd": ""}, "cwd"),
            (["ls"], {"stdin": 1}, "stdin"),
            (["ls"], {"limits": {"nice": 20}}, "limits.nice"),
            (["ls"], {"name": ""}, "name"),
        ],
    )
    def test_what_is_wrong_is_named_as_it_was_written(self, argv, options, field):
        with pytest.raises(InvalidSchedule) as caught:
            Scheduler().schedule_command(argv, **options)
        assert caught.value.field == field

    def test_an_option_of_functions_is_none(self):
        with pytest.raises(TypeError, match="unknown option 'args'"):
            Scheduler().schedule_command(["ls"], args=[1])

    def test_the_async_scheduler_has_it_too(self):
        async def story():
            scheduler = AsyncScheduler()
            job = await scheduler.schedule_command(["echo", "hello"], trigger=NEVER)
            event = await scheduler.schedule_event("done", trigger=NEVER, payload={"a": 1})
            answers = await scheduler.run_now(job), await scheduler.run_now(event)
            await scheduler.close()
            return answers

        said, emitted = asyncio.run(story())
        assert said == {"exit_code": 0, "output": "hello\n"}
        assert list(emitted) == ["event_id"]


@pytest.fixture(scope="module")
def server():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture
def receiver(server):
    server.reset()
    return server


class TestRequests:
    def test_it_is_sent_when_it_is_due(self, keeper, receiver):
        keeper.start()
        job = keeper.schedule_http(
            f"{receiver.url}/orders",
            method="put",
            headers={"X-Job": "{{schedule_name}}"},
            body={"attempt": "{{attempt}}"},
            name="orders",
        )
        assert ended(keeper, job) == ["completed"]
        keeper.stop()
        method, path, headers, body = sent(receiver)
        assert (method, path, headers["X-Job"], body) == ("PUT", "/orders", "orders", {"attempt": 1})
        [run] = keeper.runs(job)
        assert headers["Idempotency-Key"] == run.occurrence_id
        assert (run.result["status"], run.result["body"]) == (200, {"done": True})

    def test_it_is_sent_on_request(self, keeper, receiver):
        job = keeper.schedule_http(f"{receiver.url}/ping?who={{{{payload}}}}", trigger=NEVER, name="it")
        assert keeper.run_now(job, payload="me")["status"] == 200
        assert keeper.schedule_http(f"{receiver.url}/next", trigger=NEVER, expected_statuses=(404,), name="it") == job
        receiver.answers += [(404, b"", {}), (200, b"", {})]
        assert keeper.run_now(job)["status"] == 404
        with pytest.raises(RunFailed, match="answered 200 OK"):
            keeper.run_now(job)
        assert [path for _, path, _, _ in receiver.requests] == ["/ping?who=me", "/next", "/next"]

    def test_it_is_tried_again_after_the_answers_that_say_so(self, keeper, receiver):
        receiver.answers += [(418, b"", {}), (418, b"", {}), (200, b"", {})]
        terms = {"retry_statuses": [418], "retries": {"max_attempts": 3, "backoff_seconds": 0.01}}
        job = keeper.schedule_http(f"{receiver.url}/next", **terms)
        with keeper:
            assert ended(keeper, job) == ["completed"]
        told = [(headers["Idempotency-Key"], headers["Noonmark-Attempt"]) for _, _, headers, _ in receiver.requests]
        assert [attempt for _, attempt in told] == ["1", "2", "3"]
        assert len({key for key, _ in told}) == 1

    def test_it_hangs_up_at_its_timeout(self, keeper, receiver):
        job = keeper.schedule_http(f"{receiver.url}/silent", timeout=0.2)
        with keeper:
            assert ended(keeper, job) == ["timed_out"]

    def test_an_error_is_raised_for_the_waiting_caller(self, receiver):
        with closing(Scheduler()) as program:
            job = program.schedule_http(f"{receiver.url}/next", body="{{payload.who}}", trigger=NEVER)
            receiver.answers += [(400, b'{"error": "no such order"}', {"Content-Type": "application/json"})]
            with pytest.raises(RunFailed) as caught:
                program.run_now(job, payload={"who": "me"})
            assert "the server answered 400 Bad Request" in str(caught.value)
            assert str(caught.value).endswith('; the answer was: {"error": "no such order"}')
            assert (caught.value.result["status"], caught.value.code) == (400, "run_failed")
            receiver.answers += [(500, b"\x1b[2J" + b"x" * 999, {}), (503, b"", {})]
            with pytest.raises(RunFailed) as caught:
                program.run_now(job, payload={"who": "me"})
            assert str(caught.value).endswith("; the answer was: \\u001b[2J" + "x" * 291 + "…")
            with pytest.raises(RunFailed, match=r"answered 503 Service Unavailable\)\Z"):
                program.run_now(job, payload={"who": "me"})
            with pytest.raises(RunFailed, match=r"ended as delivery_failed: .* there is no \"who\"") as caught:
                program.run_now(job, payload={})
            assert caught.value.result is None
            assert issubclass(RunFailed, RuntimeError)

    def test_all_problems_are_reported_at_once(self):
        with pytest.raises(InvalidSchedule) as caught:
            Scheduler().schedule_http("http://host", retries=-1, expected_statuses=["ok"], timeout=-1)
        told = {one.field: one.message for one in caught.value.problems}
        assert sorted(told) == ["expected_statuses[0]", "retries", "timeout"]
        assert told["retries"] == "must be an integer from 0 to 99, a Retry or a mapping, not -1"

    def test_it_is_signed_with_the_key_of_the_program_or_of_its_store(self, receiver, tmp_path):
        with closing(Scheduler(signing_key=KEY)) as program:
            assert "http" not in program._runtime.target.routes()
            program.run_now(program.schedule_http(f"{receiver.url}/a", body="text", trigger=NEVER))
            assert program.signing_key() == KEY
        store = f"sqlite:///{tmp_path / 'program.db'}"
        with closing(Scheduler(store)) as other, closing(Scheduler(store)) as beside, closing(Scheduler()) as elsewhere:
            other.run_now(other.schedule_http(f"{receiver.url}/a", trigger=NEVER))
            own = beside.signing_key()
            assert (other.signing_key(), elsewhere.signing_key() == own) == (own, False)
        with pytest.raises(Conflict, match="closed"):
            other.signing_key()
        for (_, _, headers, body), key in zip(receiver.requests, (KEY, own), strict=True):
            assert verify(headers, body, key) == headers["Idempotency-Key"]
            assert "Noonmark-Callback" not in headers

    @pytest.mark.parametrize("key", ["a short key", "ä" * 20, 12345, b"k" * 20])
    def test_a_key_that_is_none_is_refused_and_not_repeated(self, key):
        with pytest.raises(InvalidSchedule, match="must be 16 to 500 printable ASCII characters") as caught:
            Scheduler(signing_key=key)
        assert caught.value.field == "signing_key"
        assert repr(key) not in str(caught.value)

    def test_one_that_was_made_before_is_taken_up_again(self, open_on_file, receiver):
        job = open_on_file().schedule_http(f"{receiver.url}/a", name="it")
        with open_on_file() as again:
            assert ended(again, job) == ["completed"]

    @pytest.mark.parametrize(
        ("url", "options", "field"),
        [
            ("/orders", {}, "url"),
            (1, {}, "url"),
            ("http://{{payload.host}}/", {}, "url"),
            ("http://host", {"method": "FETCH"}, "method"),
            ("http://host", {"headers": {"Host": "other"}}, "headers.Host"),
            ("http://host", {"headers": 1}, "headers"),
            ("http://host", {"secret_headers": {"X-Key": ""}}, "secret_headers.X-Key"),
            ("http://host", {"secret_headers": {"X-Key": "nobody-knows-it"}}, "secret_headers.X-Key"),
            ("http://host", {"body": "{{secret}}"}, "body"),
            ("http://host", {"body": object()}, "body"),
            ("http://host", {"expected_statuses": []}, "expected_statuses"),
            ("http://host", {"retry_statuses": ["5x"]}, "retry_statuses[0]"),
            ("http://host", {"completion_timeout_seconds": 0}, "completion_timeout_seconds"),
        ],
    )
    def test_what_is_wrong_is_named_as_it_was_written(self, url, options, field):
        with pytest.raises(InvalidSchedule) as caught:
            Scheduler().schedule_http(url, **options)
        assert caught.value.field == field

    def test_a_request_has_a_body_and_no_payload(self):
        with pytest.raises(TypeError, match="unknown option 'payload'"):
            Scheduler().schedule_http("http://host", payload=1)

    def test_the_async_scheduler_has_it_too(self, receiver):
        async def story():
            scheduler = AsyncScheduler()
            job = await scheduler.schedule_http(f"{receiver.url}/a", method="GET", trigger=NEVER)
            answer = await scheduler.run_now(job)
            await scheduler.close()
            return answer

        assert asyncio.run(story())["status"] == 200
        assert receiver.requests[0][:2] == ("GET", "/a")


class TestEvents:
    def test_a_schedule_triggers_another(self, keeper):
        heard = []
        keeper.register_function("hear", lambda context: heard.append((context.event["source"], context.payload)))
        keeper.schedule(
            lambda context: heard.append((context.event["source"], context.payload)),
            trigger=EventTrigger("report.made"),
            function_name="listen",
        )
        job = keeper.schedule_event("report.made", payload={"rows": 3})
        with keeper:
            eventually(lambda: heard)
        assert heard == [(f"schedule:{job}", {"rows": 3})]

    def test_no_schedule_sets_itself_off(self, keeper):
        turn = keeper.schedule_event("turned", trigger=EventTrigger("turned"))
        with keeper:
            given = keeper.emit("turned", source=f"schedule:{turn}")
            assert ended(keeper, turn) == ["completed"]
            eventually(lambda: not keeper._store.unmatched(1))
        [run] = keeper.runs(turn)
        assert [(one["event_id"], one["why"]) for one in keeper.match_events(turn)["events"]] == [
            (run.result["event_id"], "source: a run of this schedule has emitted it itself"),
            (given, None),
        ]
        assert len(keeper.occurrences(turn)) == 1


def test_a_program_that_is_killed_leaves_nothing_running(tmp_path):
    script = """
import time
from noonmark import Scheduler
with Scheduler("sqlite:///jobs.db") as scheduler:
    scheduler.schedule_command(["sh", "-c", "sh -c 'echo $$ > child; sleep 600' & echo $$ > pid; wait"], name="it")
    time.sleep(600)
"""
    program = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path)
    try:
        files = [tmp_path / "pid", tmp_path / "child"]
        pids = [int(eventually(lambda one=one: one.exists() and one.read_text().strip())) for one in files]
    finally:
        program.kill()
        program.wait()
    eventually(lambda: not any(map(is_alive, pids)))
