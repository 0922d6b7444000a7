"""Commands that start, list, cancel and explain runs, on a store with a running scheduler."""

import json
import re
import subprocess

import pytest

from noonmark.cli.commands.run import _outcome, _wait_for_occurrence, _written_before, print_output
from noonmark.cli.options import Connection
from noonmark.cli.remote import connect
from tests.cli.runner import NEVER, Cli, call, create_report
from tests.cli.terminal import NOONMARK, in_pipe, in_terminal
from tests.embedded.waiting import eventually

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e\r\nnext"
"""Sets a title, a colour and a direction, and begins a new line."""


def run(cli, schedule_id, payload, phase="completed"):
    """Run a schedule now, and wait for an occurrence in that phase."""
    answer = cli.json("schedule", "run-now", schedule_id, "--payload-json", json.dumps(payload), "--overlap", "queue")
    eventually(lambda: cli.json("schedule", "occurrences", schedule_id, "--phase", phase)["occurrences"])
    return answer["occurrence_id"]


def test_a_run_in_every_command(cli, node):
    schedule = create_report(cli, "--name", "seen")
    occurrence = run(cli, schedule, {"rows": 3})
    [ran] = cli.json("schedule", "runs", schedule)["runs"]
    assert (ran["outcome"], ran["result"], ran["occurrence_id"]) == ("completed", {"rows": 3}, occurrence)
    shown = cli("schedule", "runs", schedule).splitlines()
    assert [shown[0].split()[0], *shown[2:]] == ["Run", "", "1 run"]
    assert shown[1].split()[0] == ran["run_id"]
    assert shown[1].endswith('{"rows": 3}')
    status = cli.json("schedule", "status", schedule)
    assert [one["occurrence_id"] for one in status["occurrences"]][-1:] == [occurrence]
    assert (status["last_phase"], status["counters"]["successful"]) == ("completed", 1)
    people = cli("schedule", "status", schedule)
    assert people.splitlines()[0] == f"seen ({schedule})"
    assert "So far 1 total, 1 successful" in " ".join(people.split())
    assert occurrence in people
    assert occurrence in cli("schedule", "occurrences", schedule)
    explained = cli.json("schedule", "explain", occurrence)
    assert (explained["occurrence_id"], explained["phase"]) == (occurrence, "completed")
    lines = cli("schedule", "explain", occurrence).splitlines()
    assert lines[0] == explained["summary"]
    assert [line.split()[0] for line in lines if line.startswith(("trigger ", "runs "))] == ["trigger", "runs"]


def test_output_of_a_run(cli, node):
    schedule = create_report(cli)
    occurrence = run(cli, schedule, {"output": "one\ntwo\n", "output_dropped": 5})
    [ran] = cli.json("schedule", "runs", schedule)["runs"]
    printed = call("run", "output", ran["run_id"], *cli.connection)
    assert (printed.code, printed.out) == (0, "one\ntwo\n")
    assert printed.err == "noonmark: warning: 5 bytes before this are not stored\n"
    assert call("run", "output", occurrence, "--follow", *cli.connection).out == "one\ntwo\n"
    assert cli.json("run", "output", occurrence) == ran
    failed = run(cli, schedule, {"raise": "no rows"}, "failed")
    assert "ValueError: no rows" in cli("run", "output", failed)
    assert cli.refused(3, "run", "output", "run_0")[0].startswith("run_id: ")


def test_follow_prints_what_is_added(capsys):
    written = [("", 0), ("ab", 0), ("abc", 0), ("xyz", 5)]
    runs = [
        {"result": {"output": text, "output_dropped": n}, "error": None, "ended_at_utc": None} for text, n in written
    ]
    printed = 0
    for run in runs:
        printed = print_output(run, printed)
    out = capsys.readouterr()
    assert (out.out, printed) == ("abcxyz", 8)
    assert "2 bytes" in out.err


class Impatient:
    """A connection that cancels an occurrence once its state was read."""

    def __init__(self, remote):
        self._remote = remote

    def call(self, name, arguments):
        answer = self._remote.call(name, arguments)
        if name == "occurrence/get" and answer["phase"] == "pending":
            self._remote.call("occurrence/cancel", arguments)
        return answer


def test_run_now_says_that_no_node_takes_it_up(tmp_path):
    cli = Cli("--store", f"sqlite:///{tmp_path / 'alone.db'}")
    command = (*NOONMARK, "schedule", "run-now", create_report(cli), "--wait", *cli.connection)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as waiting:
        try:
            assert "waits: no node has claimed it; start one" in waiting.stderr.readline()
        finally:
            waiting.kill()


def test_run_now_says_at_once_that_no_live_node_serves_the_target(cli, node, capsys):
    eventually(lambda: any("function:report" in one.routes for one in node.nodes()))
    schedule_id = cli.json("schedule", "create", "--function", "repotr", *NEVER)["schedule_id"]
    occurrence_id = cli.json("schedule", "run-now", schedule_id)["occurrence_id"]
    with connect(Connection(store=cli.connection[1])) as remote:
        ended = _wait_for_occurrence(Impatient(remote), occurrence_id)
    assert ended["phase"] == "cancelled"
    assert "waits: No live node serves `function:repotr`; did you mean `function:report`?" in capsys.readouterr().err
    status = " ".join(cli("schedule", "status", schedule_id).split())
    assert "no live node serves `function:repotr`" in status


def test_run_now_waits(cli, node):
    schedule = create_report(cli)
    assert cli("schedule", "run-now", schedule, "--wait", "--payload-json", '{"rows": 3}').endswith(
        ' completed: {"rows": 3}\n'
    )
    answer = cli.json("schedule", "run-now", schedule, "--wait", "--payload-json", "7")
    assert (answer["phase"], [(one["outcome"], one["result"]) for one in answer["runs"]]) == (
        "completed",
        [("completed", 7)],
    )
    assert cli("schedule", "run-now", schedule, "--wait").endswith(" completed.\n")
    failed = call("schedule", "run-now", schedule, "--wait", "--payload-json", '{"raise": "no rows"}', *cli.connection)
    assert (failed.code, failed.out.split(" ", 1)[1]) == (1, "failed: ValueError: no rows\n")


def test_what_a_failed_program_wrote_is_on_lines_of_its_own():
    error = "first\nsecond\nexited with code 3"
    ended = {"phase": "failed", "why": None, "runs": [{"attempt": 1, "error": error, "result": None}]}
    assert _outcome(ended) == "failed: exited with code 3"
    assert _written_before(ended) == ["first", "second"]
    ended["runs"].append({"attempt": 2, "error": "Traceback ..\nValueError: no", "result": None})
    assert (_outcome(ended), _written_before(ended)) == ("failed: ValueError: no", [])
    assert _written_before({"runs": []}) == []


def test_cancel(cli, node):
    schedule_id = cli.json("schedule", "create", "--function", "served_by_nobody", *NEVER)["schedule_id"]
    occurrence_id = cli.json("schedule", "run-now", schedule_id, "--key", "once")["occurrence_id"]
    assert cli("run", "cancel", occurrence_id, "--reason", "never mind") == f"Cancelled {occurrence_id}.\n"
    assert cli.json("audit", "list", "--schedule", schedule_id)["entries"][0]["reason"] == "never mind"
    ended = call("schedule", "run-now", schedule_id, "--key", "once", "--wait", *cli.connection)
    assert (ended.code, ended.out.startswith(f"{occurrence_id} cancelled: ")) == (1, True), ended
    for again in (occurrence_id, f"{occurrence_id}-1"):
        assert cli.refused(4, "run", "cancel", again) == ["it has ended already, as cancelled"]
    assert cli.refused(2, "run", "cancel", occurrence_id, "two", "more") == [
        "2 arguments too many; see noonmark run cancel --help"
    ]
    assert cli.refused(3, "run", "cancel", "occ_0") == ["occurrence_id: there is no occurrence 'occ_0'"]


def test_status_shows_the_last_run(cli, node):
    schedule = create_report(cli, "--name", "ran once")
    assert "Last run" not in cli("schedule", "status", schedule)
    run(cli, schedule, 1)
    cli("schedule", "update", schedule, "--function", "served_by_nobody")
    cli("schedule", "run-now", schedule)
    cli("schedule", "delete", schedule)
    assert cli.json("schedule", "status", schedule)["last_phase"] == "cancelled"
    [last] = [line for line in cli("schedule", "status", schedule).splitlines() if line.startswith("Last run")]
    assert last.endswith(": completed")


def test_explain_an_instant(cli):
    schedule = create_report(cli)
    answer = cli.json("schedule", "explain", schedule, "--at", "2036-06-01T00:00:00+02:00")
    assert (answer["at"], answer["schedule_id"]) == ("2036-05-31T22:00:00Z", schedule)
    assert answer["summary"] in " ".join(cli("schedule", "explain", schedule, "--at", "2036-05-31T22:00:00Z").split())


def test_an_explanation_has_one_line_per_rule_in_a_pipe(cli, node):
    schedule = create_report(cli, "--start-at", "2036-05-25T02:00:00Z", "--end-at", "2046-05-26T02:00:00Z")
    occurrence = run(cli, schedule, {"raise": "p" * 150}, phase="failed")
    explained = cli.json("schedule", "explain", occurrence)
    told = [run["told"] for step in explained["steps"] for run in step["facts"].get("runs", [])]
    lines = cli("schedule", "explain", occurrence).splitlines()
    assert lines[0] == explained["summary"]
    assert len(lines) == 1 + 2 + len(explained["steps"]) + 1 + len(told)
    assert lines[-len(told) :] == told
    for step, line in zip(explained["steps"], lines[3:], strict=False):
        assert line.startswith(step["rule"])
        assert "…" not in line
        assert all(name in line for name, value in step["facts"].items() if value and name != "runs")


def test_backfill_waits(cli, node):
    schedule_id = cli.json(
        *("schedule", "create", "--function", "report", "--every", "1h", "--start-at", "2026-01-01T00:00:00Z")
    )["schedule_id"]
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T02:00:00Z")
    dry = cli.json("schedule", "backfill", schedule_id, *span, "--dry-run")
    assert (dry["backfill_id"], dry["count"]) == (None, 3)
    assert cli("schedule", "backfill", schedule_id, *span, "--dry-run").splitlines()[-1] == "3 occurrences would run"
    done = cli("schedule", "backfill", schedule_id, *span, "--key", "again", "--wait", "--concurrency", "3")
    assert done == "Backfill again: 3 occurrences: 3 completed.\n"
    assert cli.json("schedule", "backfill", schedule_id, *span, "--key", "again", "--wait")["phases"] == {
        "completed": 3
    }
    code, shown = in_terminal(*NOONMARK, "schedule", "backfill", schedule_id, *span, "--wait", *cli.connection)
    assert code == 0
    assert "Running" in shown
    assert cli.problem(2, "schedule", "backfill", schedule_id, *span, "--limit", "2")["field"] == "limit"
    assert cli.problem(2, "schedule", "backfill", schedule_id, "--from", "now", "--to", "later")["field"] == "--to"


def test_a_backfill_with_failures_exits_with_1(cli, node):
    schedule_id = cli.json(
        *("schedule", "create", "--function", "report", "--every", "1h", "--start-at", "2026-01-01T00:00:00Z"),
        *("--payload-json", '{"raise": "no luck"}'),
    )["schedule_id"]
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z")
    done = in_pipe(*NOONMARK, "schedule", "backfill", schedule_id, *span, "--key", "b", "--wait", *cli.connection)
    assert (done.returncode, done.stdout) == (1, "Backfill b: 1 occurrence: 1 failed.\n")


@pytest.mark.parametrize(("command", "before"), [("runs", "-1: "), ("explain", "seconds: ")])
def test_errors_are_on_one_line_on_a_terminal(cli, node, command, before):
    schedule = create_report(cli)
    run(cli, schedule, {"raise": "no \x1b[31mpaper\u202e"}, phase="failed")
    code, shown = in_terminal(*NOONMARK, "schedule", command, schedule, *cli.connection)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert code == 0
    assert f"{before}ValueError: no ?[31mpaper?" in " ".join(plain.split())
    assert "\u202e" not in plain
    assert "…" not in plain


def test_control_characters_in_documents_are_not_printed(cli, node):
    schedule = create_report(cli, "--description", HOSTILE, "--name", "left\u202eright", "--label", "a\u202e=b\u202e")
    run(cli, schedule, {"raise": HOSTILE}, phase="failed")
    cli.json("event", "emit", "hostile", "--payload-json", json.dumps({"text": HOSTILE}), "--source", "x\u202e")
    for command in (
        ("schedule", "status", schedule),
        ("schedule", "list", "--text", schedule),
        ("schedule", "runs", schedule),
        ("schedule", "occurrences", schedule),
        ("schedule", "explain", cli.json("schedule", "occurrences", schedule)["occurrences"][-1]["occurrence_id"]),
        ("schedule", "pause", schedule, "--reason", "r\u202e"),
        ("event", "list", "--event", "hostile"),
        ("audit", "list", "--schedule", schedule),
    ):
        assert cli(*command).replace("\n", "").isprintable(), command
        assert cli.json(*command)
    code, shown = in_terminal(*NOONMARK, "schedule", "delete", schedule, "--confirm", *cli.connection, typed="n\n")
    assert (code, "Delete left?right" in shown) == (1, True)
    [line] = cli.refused(2, "schedule", "status", HOSTILE)
    assert line.isprintable()


def test_an_event_triggers_a_schedule(cli, node):
    answer = cli.json("trigger", "create", "--function", "report", "--event", "paid", "--filter-json", '{"sum": 7}')
    cli.json("event", "emit", "paid", "--payload-json", '{"sum": 8}')
    emitted = cli.json("event", "emit", "paid", "--payload-json", '{"sum": 7}', "--event-id", "one", "--source", "till")
    assert emitted == {"event_id": "one"}
    [done] = eventually(
        lambda: cli.json("schedule", "occurrences", answer["schedule_id"], "--phase", "completed")["occurrences"]
    )
    assert done["origin"] == "event:one"
    assert cli("event", "list", "--event", "paid").splitlines()[1].split()[:2] == ["one", "paid"]
    assert cli.json("event", "list", "--event", "other")["events"] == []
