"""The judgement of the doctor, by tables of facts; and facts that are gathered from real faults."""

from dataclasses import replace

import pytest

from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.targets.work import FunctionTarget
from noonmark.operations.diagnosis import Check, Clocks, Conflict, Disk, EngineState, Facts, Targets, judge, overall
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import perform
from noonmark.ports.records import Condition, Damaged, Heartbeat, NodeRecord, OccurrenceGroup, Workload
from noonmark.server.config import Settings, setting_conflicts
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, Bench, HandClock
from noonmark.testing.factories import NOW
from noonmark.wiring import disk_space, zone_data_version

MB = 2**20
SOUND = Facts(condition=Condition(kind="memory"), clocks=Clocks(now=NOW, machine=NOW))
ALIVE = NodeRecord(
    name="node-a", routes=("function:work",), capacity=1, load=0, version="1", started=NOW, seen=NOW, left=None,
    is_alive=True, is_leader=True, zone_data="2026a",
)  # fmt: skip
DEAD = replace(ALIVE, name="node-b", seen=NOW - 60 * SECOND, is_alive=False, is_leader=False)


def late(seconds, **changes):
    due = NOW - seconds * SECOND
    return replace(factories.occurrence(factories.schedule("uid-1"), TRIGGER, nominal=due), due=due, **changes)


def group(*rows):
    return OccurrenceGroup(occurrences=list(rows), count=len(rows))


def due(seconds, *nodes):
    return replace(SOUND, nodes=nodes, workload=Workload(due=group(late(seconds))))


def overdue(seconds):
    row = late(600, phase=Phase.AWAITING_COMPLETION, deadline=NOW - seconds * SECOND)
    return replace(SOUND, workload=Workload(overdue=group(row)))


def stored(**changes):
    return replace(SOUND, condition=Condition(kind="sqlite", **changes))


def clock(**changes):
    return replace(SOUND, clocks=Clocks(**{"now": NOW, "machine": NOW} | changes))


def targets(*unserved):
    return replace(SOUND, targets=Targets(schedules=7, unserved={route: names for route, *names in unserved}))


def disk(megabytes):
    return replace(SOUND, disks=[Disk(what="the store", path="/data", free=megabytes * MB)])


def engine(**state):
    return replace(SOUND, engine=EngineState(server="engine.local:7233", **state))


TABLE = [
    (stored(journal_bytes=MB), "store", "ok", "1 MB in its journal, sound as a whole"),
    (stored(journal_bytes=300 * MB), "store", "warning", "a reader has been open"),
    (stored(problems=("page 7 is wrong",)), "store", "problem", "page 7 is wrong"),
    (stored(is_complete=False), "store", "ok", "too large to be checked"),
    (stored(promise="nothing is lost"), "store", "ok", "sqlite: nothing is lost"),
    (stored(promise="a second is lost", is_lossy=True), "store", "warning", "a second is lost"),
    (stored(promise="p", problems=("its last snapshot failed",)), "store", "problem", "its last snapshot failed"),
    (stored(schema="0003", expected_schema="0004"), "schema", "problem", "0003, which is older than 0004"),
    (stored(schema="", expected_schema="0004"), "schema", "problem", "there is none yet, and this Noonmark needs"),
    (stored(schema="0005", expected_schema="0004"), "schema", "problem", "0005, which is newer than 0004"),
    (replace(SOUND, rows=7), "rows", "ok", "all 7 are sound"),
    (replace(SOUND, rows=7, is_complete=False), "rows", "ok", "the first 7 are sound"),
    (
        replace(SOUND, rows=7, damaged=[Damaged(table="runs", key="1", column="x", problem="p", schedule_id="tidy")]),
        "rows", "problem", "1 damaged among all 7, of the schedules tidy",
    ),
    (clock(), "clock", "ok", "agree"),
    (clock(machine=NOW - 61 * SECOND), "clock", "problem", "61 s ahead of the machine"),
    (clock(machine=NOW + 61 * SECOND), "clock", "problem", "61 s behind the machine"),
    (clock(unconfirmed=7_200 * SECOND), "clock", "problem", "leapt ahead by 7,200 s"),
    (clock(remembered=NOW + 7_200 * SECOND), "clock", "problem", "remembers a time 7,200 s ahead"),
    (clock(remembered=NOW - 40 * 86_400 * SECOND), "clock", "problem", "was not used for"),
    (clock(ahead=tuple("abcdef")), "clock", "problem", "6 (a, b, c, d, e, ..)"),
    (replace(SOUND, nodes=[replace(ALIVE, seen=NOW + 90 * SECOND)]), "clock", "problem", "90 s in the future"),
    (replace(SOUND, nodes=[ALIVE], zone_data="2026a"), "zones", "ok", "time zone data 2026a"),
    (replace(SOUND, nodes=[replace(ALIVE, zone_data="")]), "zones", "ok", "no version is known"),
    (
        replace(SOUND, nodes=[ALIVE, replace(ALIVE, name="node-c", zone_data="2025b")]),
        "zones", "warning", "2025b on node-c; 2026a on node-a",
    ),
    (replace(SOUND, nodes=[ALIVE], zone_data="2025b"), "zones", "warning", "2025b on the machine that looks"),
    (replace(SOUND, nodes=[ALIVE]), "leader", "ok", "node-a leads"),
    (SOUND, "leader", "ok", "no node is alive"),
    (replace(SOUND, nodes=[replace(ALIVE, is_leader=False)]), "leader", "problem", "none of them leads"),
    (replace(SOUND, nodes=[ALIVE]), "nodes", "ok", "1 alive"),
    (replace(SOUND, nodes=[ALIVE, replace(DEAD, left=NOW)]), "nodes", "ok", "1 alive"),
    (replace(SOUND, nodes=[ALIVE, DEAD]), "nodes", "warning", "1 alive; silent without having stopped: node-b for 60"),
    (replace(SOUND, nodes=[DEAD]), "nodes", "problem", "0 alive; silent"),
    (
        replace(SOUND, nodes=[ALIVE, replace(DEAD, name="node-c", gone=NOW), DEAD]),
        "nodes",
        "warning",
        "1 alive; the process is gone without having stopped: node-c; silent without having stopped: node-b for 60",
    ),
    (replace(SOUND, nodes=[ALIVE, replace(ALIVE, version="2")]), "nodes", "warning", "different versions: 1, 2"),
    (SOUND, "targets", "ok", "no node is alive"),
    (targets(), "targets", "ok", "live nodes serve those of the next schedules to run (7)"),
    (
        targets(("function:a", "x"), ("http", *"stuvwx")), "targets", "warning",
        "no live node serves function:a (x), http (s, t, u, v, w, ..)",
    ),
    (targets(*((f"function:{n}", "x") for n in range(7))), "targets", "warning", "function:4 (x) and 2 more"),
    (SOUND, "lag", "ok", "nothing is due"),
    (due(10), "lag", "ok", "1 due and unclaimed, the oldest for 10 s"),
    (due(11, ALIVE), "lag", "warning", "the oldest for 11 s"),
    (due(61), "lag", "problem", "the oldest for 61 s"),
    (overdue(60), "overdue", "ok", "no run is past its deadline"),
    (overdue(61), "overdue", "problem", "1 past their deadline"),
    (disk(1_024), "disk", "ok", "1,024 MB free for the store (/data)"),
    (disk(1_023), "disk", "warning", "1,023 MB free"),
    (disk(127), "disk", "problem", "127 MB free"),
    (engine(), "engine", "ok", "engine.local:7233 has answered, and no route lacks a worker"),
    (engine(problem="it did not answer", unserved=["http"]), "engine", "problem", "it did not answer"),
    (engine(unserved=["http", "mob"], orphans=1), "engine", "problem", "no worker delivers http, mob"),
    (engine(orphans=2), "engine", "warning", "workflows and occurrences without their counterpart: 2"),
    (replace(SOUND, conflicts=[]), "settings", "ok", "none contradicts another"),
    (replace(SOUND, conflicts=[Conflict(sentence="a and b", advice="Drop a")]), "settings", "warning", "a and b"),
    (replace(SOUND, conflicts=[Conflict(sentence="x", advice="y", status="problem")]), "settings", "problem", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "name", "status", "words"), TABLE)
def test_each_check(facts, name, status, words):
    [check] = [check for check in judge(facts) if check.name == name]
    assert (check.status, words in check.sentence) == (status, True), check
    assert (check.advice is None) == (status == "ok")


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        (due(99), "Start a node: `noonmark serve`"),
        (due(99, replace(ALIVE, routes=())), "Start a node that serves function:work"),
        (due(99, ALIVE), "Add nodes, or look into the log of the nodes for what keeps them from claiming"),
    ],
)
def test_the_advice_on_lag_depends_on_the_nodes(facts, advice):
    assert [check.advice for check in judge(facts) if check.name == "lag"] == [advice]


def test_the_advice_on_an_engine_names_all_routes_without_a_worker():
    [check] = [check for check in judge(engine(unserved=["http", "mob"])) if check.name == "engine"]
    assert check.advice == "Start one: noonmark temporal-worker --routes http --routes mob"


def test_the_worst_check_decides():
    ok, warning, problem = (Check(name="x", status=status, sentence="") for status in ("ok", "warning", "problem"))
    assert [overall(checks) for checks in ([ok], [ok, warning], [warning, problem])] == ["ok", "warnings", "problems"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_upload_bytes": 2, "upload_quota_bytes": 1}, "no file of that size fits"),
        ({"max_connections": 600}, "may open only 500"),
        ({"max_connections_per_address": 501}, "one client can use all"),
        ({"public_url": "https://x.example", "max_connections_per_address": 5}, "limits the proxy itself"),
        ({"allow_env": ("A",)}, "allows no program"),
        ({"allow_hosts": ("a.example",), "target_guard": "off"}, "has no effect"),
        ({"functions": {"f": "m:f"}, "worker": False}, "the worker is off"),
        ({"public_url": "https://x.example", "reload": True}, "reload is on"),
    ],
)
def test_settings_that_contradict_each_other(changes, words):
    settings = Settings(**{"max_connections": 500} | changes)
    [conflict] = setting_conflicts(settings, max_connections=500)
    assert words in conflict.sentence
    assert setting_conflicts(Settings(), max_connections=1_000) == []


def checks(bench, **parts):
    service = Service(store=bench.store, lookahead=LOOKAHEAD, fresh_id=lambda: "x", **parts)
    answer = perform(service, LOCAL, "doctor", {})
    return answer["status"], {check["check"]: check for check in answer["checks"]}


def test_a_dead_node_with_other_zone_data_and_a_fast_clock_are_found():
    clock = HandClock()
    bench = Bench(MemoryStore(clock), clock)
    bench.store.beat(Heartbeat(node="node-a", lease=LEASE, zone_data="2025b"), now=bench.now)
    bench.store.lead("node-a", now=bench.now, lease=LEASE)
    status, found = checks(bench, zone_data="2026a")
    assert (status, found["zones"]["status"], found["leader"]["detail"]) == ("warnings", "warning", "node-a leads")
    bench.add(bench.create_quiet(), "one")
    bench.advance(120 * SECOND)
    status, found = checks(bench, machine_clock=lambda: NOW)
    assert status == "problems"
    assert "node-a for 120 s" in found["nodes"]["detail"]
    assert "the store is 120 s ahead of the machine" in found["clock"]["detail"]
    assert "the oldest for 120 s" in found["lag"]["detail"]
    assert found["lag"]["advice"] == "Start a node: `noonmark serve`"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_targets_that_no_live_node_serves_are_found_before_their_fires_are_missed(store, tmp_path):
    clock = HandClock()
    bench = Bench(MemoryStore(clock) if store == "memory" else SqliteStore(tmp_path / "noonmark.db", clock), clock)
    bench.store.open()
    upcoming, due, served = (
        bench.create_quiet(f"uid-{name}", schedule_id=name, target=FunctionTarget(function=function))
        for name, function in (("upcoming", "gone"), ("due", "gone"), ("served", "work"))
    )
    bench.add(upcoming, "later", 60 * SECOND)
    for one in (due, served):
        bench.add(one, "now")
    assert checks(bench)[1]["targets"]["detail"] == "not checked, because no node is alive"
    bench.store.beat(Heartbeat(node="node-a", routes=("function:work",), lease=LEASE), now=bench.now)
    status, found = checks(bench)
    assert (status, found["lag"]["status"]) == ("problems", "ok")  # nobody leads
    assert (found["targets"]["status"], found["targets"]["detail"], found["targets"]["advice"]) == (
        "warning",
        "no live node serves function:gone (due, upcoming)",
        "Start a node that serves function:gone, or correct the target: noonmark schedule update",
    )
    bench.store.beat(Heartbeat(node="node-a", routes=("function:gone", "function:work"), lease=LEASE), now=bench.now)
    assert checks(bench)[1]["targets"]["detail"] == "live nodes serve those of the next schedules to run (3)"
    bench.store.close()


def test_zone_data_and_disk_space_of_this_machine(tmp_path):
    assert zone_data_version([str(tmp_path)])[:2] == "20"
    (tmp_path / "UTC").touch()
    assert zone_data_version([str(tmp_path)]) == ""
    (tmp_path / "tzdata.zi").write_text("# version 2031c\n")
    assert zone_data_version([str(tmp_path)]) == "2031c"
    [space] = disk_space(f"sqlite:///{tmp_path}/sub/noonmark.db", None)
    assert (space.path, space.free > 0) == (str(tmp_path), True)
    assert disk_space("postgresql://host/name", None) == []
