"""Target documents in place of functions, and reading events and the schedules that wait for them."""

import asyncio

import pytest

from noonmark import AsyncScheduler, Event, EventTrigger, IntervalTrigger, InvalidSchedule, Scheduler
from noonmark.core.schedule import TRUSTED
from noonmark.embedded.declarations import OWNER
from noonmark.ports.bundles import Bundle
from tests.embedded.waiting import NEVER, ended
from tests.targets.http.receiver import http_receiver, sent

CAT = {"target_kind": "command", "argv": ["cat"]}


class TestTargets:
    def test_a_program_runs_when_it_is_due(self, keeper, tmp_path):
        with keeper:
            job = keeper.schedule({**CAT, "argv": ("sh", "-c", "cat; pwd"), "cwd": tmp_path}, payload=[1], name="cat")
            assert ended(keeper, job) == ["completed"]
        assert keeper.runs(job)[0].result == {"exit_code": 0, "output": f"[1]{tmp_path}\n"}
        again = keeper.schedule_command(["sh", "-c", "cat; pwd"], cwd=tmp_path, payload=[1], name="cat")
        assert (again, len(keeper.list_jobs())) == (job, 1)
        assert keeper._declarations.find(job).schedule.source == TRUSTED

    def test_what_its_document_says_is_kept_unless_an_option_says_otherwise(self, keeper):
        own, other = {**CAT, "payload": "own"}, {"payload": "other"}
        jobs = [keeper.schedule(own, trigger=NEVER), keeper.schedule(own, trigger=NEVER, **other)]
        assert [keeper.run_now(job)["output"] for job in jobs] == ['"own"', '"other"']

    def test_a_request_is_sent_wherever_the_process_can_reach(self, keeper):
        with http_receiver() as receiver:
            job = keeper.schedule({"target_kind": "http", "url": receiver.url, "body": {"n": 1}}, trigger=NEVER)
            assert keeper.run_now(job)["status"] == 200
        assert sent(receiver)[3] == {"n": 1}

    def test_an_event_is_emitted_and_a_registered_function_is_called(self, keeper):
        keeper.register_function("double", lambda number: 2 * number)
        job = keeper.schedule({"target_kind": "function", "function": "double", "args": [4]}, trigger=NEVER)
        assert keeper.run_now(job) == 8
        schedule = keeper.schedule({"target_kind": "event", "event_type": "told"}, payload={"n": 2})
        with keeper:
            assert ended(keeper, schedule) == ["completed"]
        [event] = keeper.events("told")
        assert event.payload == {"n": 2}

    def test_a_bundle_goes_to_nodes_that_have_what_it_needs(self, keeper):
        with keeper:
            store, needs = keeper._declarations._store, {"labels": {"gpu": "a100"}, "slots": 1}
            store.add_bundle_chunk(OWNER.tenant, "c", 0, b"x")
            manifest = {"name": "eval", "command": ["true"], "resources": needs}
            pushed = {"created": 0, "pushed": 0, "size": 1, "files": 1, "user": "ada", "source": "rest"}
            named = {"tenant": OWNER.tenant, "bundle_id": "eval", "content_id": "c", "digest": "0f" * 32}
            store.keep_bundle(Bundle(**named, **pushed, manifest=manifest))
            bundle = {"target_kind": "bundle", "bundle_id": "eval"}
            jobs = [keeper.schedule({**bundle, "inputs": {"n": n}}, trigger=NEVER, name="eval") for n in (1, 2)]
            assert jobs[0] == jobs[1]
            target = keeper._declarations.find(jobs[1]).schedule.declaration.target
        assert (target.route, target.inputs) == ("bundle:gpu=a100,slots:1", {"n": 2})

    def test_one_may_wait_for_others_or_be_one_of_many(self, keeper):
        with keeper:
            first = keeper.schedule(lambda: None, function_name="first")
            after = keeper.schedule_with_deps(CAT, [first])
            many = keeper.create_many([{"func": CAT, "payload": n} for n in range(2)])
            assert [ended(keeper, job) for job in (after, *many)] == [["completed"]] * 3
        assert [keeper.runs(job)[0].result["output"] for job in many] == ["0", "1"]

    @pytest.mark.parametrize(
        ("target", "options", "field"),
        [
            ({}, {}, "target.target_kind"),
            ({"target_kind": "magic"}, {}, "target.target_kind"),
            ({"argv": ["ls"]}, {}, "target.target_kind"),
            ({"target_kind": "command"}, {}, "argv"),
            ({"target_kind": "command", "argv": "ls"}, {}, "argv"),
            ({**CAT, "shell": True}, {}, "target.shell"),
            ({**CAT, 1: 2}, {}, "target.1"),
            ({**CAT, "env": {"A": object()}}, {}, "env.A"),
            ({"target_kind": "http", "url": "ftp://x"}, {}, "url"),
            (CAT, {"args": [1]}, "args"),
            (CAT, {"kwargs": {"a": 1}}, "kwargs"),
            (CAT, {"function_name": "cat"}, "function_name"),
            (CAT, {"executor": "process"}, "executor"),
            (CAT, {"name": ""}, "name"),
            (CAT, {"timeout": -1}, "timeout"),
        ],
    )
    def test_what_is_wrong_is_named(self, target, options, field):
        scheduler = Scheduler()
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.schedule(target, **options)
        assert refused.value.field == field
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.create_many([{"func": target, **options}])
        assert refused.value.field.startswith("declarations[0].")
        assert scheduler.list_jobs() == []

    def test_a_request_has_a_body_and_no_payload(self):
        with pytest.raises(TypeError, match="unknown option 'payload'"):
            Scheduler().schedule({"target_kind": "http", "url": "https://example.com"}, payload=1)


class TestReading:
    def test_events_are_listed_newest_first(self, keeper):
        ids = [keeper.emit(kind, {"n": n}) for n, kind in enumerate(("a", "b", "a"))]
        assert [one.event_id for one in keeper.events()] == ids[::-1]
        assert [one.event_id for one in keeper.events(limit=2)] == ids[:0:-1]
        [only] = keeper.events("b")
        assert (only.event_type, only.source, only.payload) == ("b", "embedded", {"n": 1})
        last, first = keeper.events("a")
        assert isinstance(first, Event)
        assert first.emitted_at < last.emitted_at
        first.payload["n"] = "changed"
        assert keeper.events("a")[1].payload == {"n": 0}
        assert keeper.events("nobody") == []

    def test_triggers_are_the_jobs_that_events_trigger(self, keeper):
        keeper.schedule(CAT, trigger=IntervalTrigger(60))
        schedule = keeper.schedule(CAT, trigger=EventTrigger("a"), name="one")
        two = keeper.schedule(CAT, trigger=EventTrigger(["b", "c"]))
        assert [job.id for job in keeper.triggers()] == [schedule, two]
        assert [(job.id, job.name) for job in keeper.triggers("a")] == [(schedule, "one")]
        assert [job.trigger for job in keeper.triggers("c")] == [EventTrigger(["b", "c"])]
        keeper.cancel(two)
        assert keeper.triggers("c") == []

    @pytest.mark.parametrize(
        ("asked", "field"),
        [({"event_type": "no spaces"}, "event_type"), ({"limit": 0}, "limit"), ({"limit": "many"}, "limit")],
    )
    def test_what_is_wrong_is_named(self, asked, field):
        with pytest.raises(InvalidSchedule) as refused:
            Scheduler().events(**asked)
        assert refused.value.field == field
        with pytest.raises(InvalidSchedule, match="event_type: must be"):
            Scheduler().triggers("no spaces")


def test_the_async_scheduler_has_them_too():
    async def main():
        async with AsyncScheduler() as scheduler:
            job = await scheduler.schedule(CAT, trigger=EventTrigger("go"), payload=1)
            await scheduler.emit("go", 2)
            assert [one.payload for one in await scheduler.events("go", 5)] == [2]
            assert [one.id for one in await scheduler.triggers("go")] == [job]
            await asyncio.to_thread(ended, scheduler.blocking, job)
            [run] = await scheduler.runs(job)
            return run.result["output"]

    assert asyncio.run(main()) == "2"
