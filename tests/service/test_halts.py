"""The off switch, on real servers: what runs is cancelled, what would start is skipped, and it all goes on later."""

from functools import partial

import pytest

from noonmark.client import Client
from noonmark.core.errors import NotAllowed
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import eventually
from tests.servers.openai_server import KEY, OpenAIServer, Reply
from tests.service.server import serving
from tests.service.test_commands import TRAP
from tests.targets.command.harness import is_alive

JOBS = "def tick():\n    return 'ticked'\n"
EVERY_SECOND = {"type": "interval", "every_seconds": 1}
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
MOST = 50
TICK = {"target_kind": "function", "function": "tick"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "trap").write_text(TRAP)
    (tmp_path / "trap").chmod(0o755)
    return tmp_path


def options(folder, store):
    return ("--store", store, "--function", "tick=jobs:tick", "--allow-commands", folder / "trap")


def trapped(folder, name):
    """A command that runs until it is asked to stop, and notes that it was; it ends at once if `name`.go exists."""
    return {"target_kind": "command", "argv": [str(folder / "trap"), str(folder / name)]}


def noonmark(server, key, *words):
    """A command as its users type it."""
    return in_pipe(*NOONMARK, *words, "--server", server.url, NOONMARK_KEY=key)


def newest(client, schedule_id):
    """How its newest occurrence that has ended did."""
    ended = [one for one in client.occurrences(schedule_id) if one.completed_at_utc is not None]
    return (str(ended[0].phase), str(ended[0].reason)) if ended else None


def reaches(client, schedule_id, phase, reason):
    eventually(lambda: newest(client, schedule_id) == (phase, reason))


def test_a_tenant_is_halted_by_a_root_key_and_by_its_own_and_by_no_other(folder):
    store = f"sqlite:///{folder / 'noonmark.db'}"
    make_key = partial(call, "key", "create", "--store", store, "--json")
    root = make_key("--tenant", "*", "--scopes", "admin", "--name", "night shift").json["key"]
    acme, globex = (
        make_key("--tenant", tenant, "--user", "ada", "--scopes", "read,write,run").json["key"]
        for tenant in ("acme", "globex")
    )
    with (
        serving(folder, *options(folder, store)) as server,
        Client(server.url, key=acme) as ours,
        Client(server.url, key=globex) as theirs,
    ):
        for client in (ours, theirs):
            client.create(schedule_id="tick", trigger=EVERY_SECOND, target=TICK)
            reaches(client, "tick", "completed", "succeeded")
        ours.create(schedule_id="work", trigger=NEVER, target=trapped(folder, "work"))
        running = ours.run_now("work").occurrence_id
        pid = int(eventually(lambda: (folder / "work.pid").exists() and (folder / "work.pid").read_text().strip()))

        refused = noonmark(server, globex, "halt", "--tenant", "acme")
        assert refused.returncode != 0
        assert "only one of tenant * acts for others" in refused.stderr
        with Client(server.url, key=globex, tenant="acme") as intruder, pytest.raises(NotAllowed):
            intruder.halt()
        assert ours.halts() == []

        halted = noonmark(server, root, "halt", "--tenant", "acme", "--reason", "a loop")
        assert halted.returncode == 0, halted.stderr
        assert "(a loop)" in halted.stdout
        [halt] = ours.halts()
        eventually(lambda: ours.occurrence(running).phase == "cancelled")
        assert ours.occurrence(running).reason == "halted"
        assert (folder / "work.asked").exists()
        assert not is_alive(pid)
        when = halt.halted_at_utc.isoformat().replace("+00:00", "Z")
        who = f"it was halted by `{halt.halted_by}` at {when} (a loop)."
        explanation = ours.explain(running)
        assert explanation.summary.startswith(f"It was started and then cancelled: {who}"), explanation.summary
        reaches(ours, "tick", "skipped", "halted")
        skipped = next(one for one in ours.occurrences("tick") if one.reason == "halted")
        assert ours.explain(skipped.occurrence_id).summary.startswith(f"It did not run: {who}")
        ours.create(schedule_id="later", trigger=EVERY_SECOND, target=TICK)
        reaches(ours, "later", "skipped", "halted")
        occurrence_id = ours.run_now("work").occurrence_id
        eventually(lambda: ours.occurrence(occurrence_id).reason == "halted")
        count = theirs.get("tick").counters.successful
        eventually(lambda: theirs.get("tick").counters.successful > count)

        assert noonmark(server, globex, "unhalt", halt.halt_id).returncode != 0
        lifted = noonmark(server, acme, "unhalt", halt.halt_id)
        assert lifted.stdout == f"Lifted {halt.halt_id}.\n"
        for name in ("tick", "later"):
            reaches(ours, name, "completed", "succeeded")
        (folder / "work.go").touch()
        again = ours.run_now("work").occurrence_id
        eventually(lambda: ours.occurrence(again).phase == "completed")
        assert theirs.get("tick").counters.skipped == 0


def test_a_halt_by_one_node_stops_the_runs_of_two(folder, database):
    flags = options(folder, database.url)
    names, runs, nodes = [], [], set()
    with (
        serving(folder, *flags, "--migrate", name="first") as first,
        serving(folder, *flags, name="second") as second,
        Client(first.url) as client,
        Client(second.url) as other,
    ):
        eventually(lambda: sum(node.is_alive for node in client.nodes()) == 2)
        client.create(schedule_id="tick", trigger=EVERY_SECOND, target=TICK, labels={"team": "blue"})
        client.create(schedule_id="free", trigger=EVERY_SECOND, target=TICK)
        while len(nodes) < 2 and len(names) < MOST:  # until each node runs something
            names.append(f"work{len(names)}")
            asked, target = (client, other)[len(names) % 2], trapped(folder, names[-1])
            asked.create(schedule_id=names[-1], trigger=NEVER, target=target, labels={"team": "blue"})
            runs.append(asked.run_now(names[-1]).occurrence_id)
            eventually((folder / f"{names[-1]}.pid").exists)
            nodes.add(client.occurrence(runs[-1]).node)
        assert nodes == {node.node for node in client.nodes()}
        reaches(client, "tick", "completed", "succeeded")

        halt = client.halt(labels={"team": "blue"}, reason="a loop")
        assert halt.stopped >= len(names)
        eventually(lambda: {str(other.occurrence(one).phase) for one in runs} == {"cancelled"})
        assert {str(other.occurrence(one).reason) for one in runs} == {"halted"}
        assert all((folder / f"{name}.asked").exists() for name in names)
        reaches(other, "tick", "skipped", "halted")
        assert newest(other, "free") == ("completed", "succeeded")
        again = [one.run_now(name, overlap="queue").occurrence_id for one in (client, other) for name in names]
        eventually(lambda: {str(other.occurrence(one).reason) for one in again} == {"halted"})

        assert [one.halt_id for one in other.unhalt(labels={"team": "blue"})] == [halt.halt_id]
        reaches(client, "tick", "completed", "succeeded")
        for name in names:
            (folder / f"{name}.go").touch()
        again = [one.run_now(name, overlap="queue").occurrence_id for one in (client, other) for name in names]
        eventually(lambda: {str(client.occurrence(one).phase) for one in again} == {"completed"})


def test_the_lineage_of_an_agent_is_halted_with_what_it_has_made(folder):
    child = {"schedule_id": "child", "trigger": EVERY_SECOND, "target": {"target_kind": "event", "event_type": "made"}}
    script = [Reply(tool_calls=[("noonmark_schedule_create", child)]), Reply("done"), Reply("back")]
    with OpenAIServer(*script) as provider:
        environment = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY}
        with (
            serving(folder, *options(folder, "sqlite:///noonmark.db"), **environment) as server,
            Client(server.url) as us,
        ):
            us.create_session(session_id="desk", model="openai:mine", enable_schedule=True)
            talk = {"target_kind": "session", "type": "exact_session", "session_id": "desk"}
            talk["action"] = {"type": "prompt", "prompt": "Make a schedule."}
            us.create(schedule_id="boss", trigger=NEVER, target=talk)
            us.create(schedule_id="tick", trigger=EVERY_SECOND, target=TICK)
            first = us.run_now("boss").occurrence_id
            eventually(lambda: us.occurrence(first).phase == "completed")
            assert us.get("child").lineage.chain == ["schedule:boss", "session:desk"]
            receipt = noonmark(server, "", "audit", "list", "--schedule", "child").stdout
            assert "session desk" in receipt, receipt
            reaches(us, "child", "completed", "succeeded")

            halted = noonmark(server, "", "halt", "--lineage", "boss")
            assert "The lineage of boss is halted since" in halted.stdout, halted.stderr
            reaches(us, "child", "skipped", "halted")
            second = us.run_now("boss").occurrence_id
            eventually(lambda: us.occurrence(second).reason == "halted")
            reaches(us, "tick", "completed", "succeeded")

            assert noonmark(server, "", "unhalt", "--lineage", "boss").returncode == 0
            reaches(us, "child", "completed", "succeeded")
            us.halt(lineage="desk")
            third = us.run_now("boss").occurrence_id
            eventually(lambda: us.occurrence(third).reason == "halted")
            reaches(us, "child", "skipped", "halted")
            us.unhalt(lineage="desk")
            fourth = us.run_now("boss").occurrence_id
            eventually(lambda: us.occurrence(fourth).phase == "completed")
            assert len(provider.keys) == 3  # what was halted did not reach the model
