"""`noonmark apply`, `diff` and `export`, on a store and on a server."""

import json
from dataclasses import replace

import pytest

from noonmark.core.targets.command import CommandRules
from noonmark.core.targets.egress import Guard, egress_policy
from tests.cli.runner import Cli, call
from tests.embedded.waiting import eventually
from tests.server.live_server import hosting, serving

FILE = """
managed_by: billing
defaults:
  labels: {team: billing}
  retry_policy: {max_attempts: 3}
  trigger: {type: cron, timezone: Europe/Berlin}
schedules:
  - name: nightly
    trigger: {expression: 0 2 * * *}
    target: {target_kind: function, function: invoice, kwargs: {text: "$${HOME} at 12:30", flag: on}}
  - name: Every so often
    trigger: {type: interval, every_seconds: 30}
    target: {target_kind: http, url: "https://${HOST:-api.example}/x", headers: {X-Note: "${MY_TOKEN}"}}
  - name: after
    trigger:
    depends_on: [{schedule_id: nightly}]
    target: {target_kind: event, event_type: done}
    labels: {team: null}
"""
MARK = "s3cr3t-mark-0123456789"


class Files:
    """A store, and files beside it."""

    def __init__(self, folder):
        self.folder = folder
        self.cli = Cli("--store", f"sqlite:///{folder}/files.db")

    def write(self, text, name="a.yaml"):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def call(self, *arguments, stdin=None):
        return call(*arguments, *self.cli.connection, stdin=stdin)

    def counts(self, *arguments):
        return self.call(*arguments, "--json").json["counts"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", MARK)
    return Files(tmp_path)


def counts(create=0, change=0, delete=0, unchanged=0):
    return {"create": create, "change": change, "delete": delete, "unchanged": unchanged}


def test_apply_creates_once_changes_what_differs_and_prunes(files):
    path = files.write(FILE)
    shown = files.call("diff", "-f", path)
    assert shown.code == 0
    assert "+ nightly\n" in shown.out
    assert "Plan: 3 to create, 0 to change, 0 to delete, 0 unchanged.\n" in shown.out
    assert not (files.folder / "files.db").exists()
    assert MARK not in shown.out
    made = files.call("apply", "-f", path)
    assert made.out == shown.out + "".join(f"Created {one}.\n" for one in ids(files))
    again = files.call("apply", "-f", path, "--prune")
    assert (again.code, again.out) == (0, "No changes: 3 unchanged.\n")
    nightly = files.cli.json("schedule", "status", "nightly")
    assert nightly["labels"] == {"team": "billing", "managed_by": "billing"}
    assert nightly["target"]["kwargs"] == {"text": "${HOME} at 12:30", "flag": "on"}
    assert (nightly["trigger"]["timezone"], nightly["retry_policy"]["max_attempts"]) == ("Europe/Berlin", 3)
    assert files.cli.json("schedule", "status", "after")["labels"] == {"managed_by": "billing"}

    files.cli("schedule", "create", "--function", "f", "--cron", "0 0 1 1 *", "--id", "foreign")
    changed = files.write(FILE.replace("0 2 *", "0 3 *").partition("  - name: after")[0])
    shown = files.call("diff", "-f", changed, "--prune", "--exit-code")
    assert shown.code == 1
    assert '~ nightly\n    trigger.expression: "0 2 * * *" -> "0 3 * * *"\n- after\n' in shown.out
    assert files.counts("apply", "-f", changed, "--dry-run") == counts(change=1, unchanged=1)
    assert files.counts("apply", "-f", changed, "--prune") == counts(change=1, delete=1, unchanged=1)
    assert files.cli.json("schedule", "status", "nightly")["revision"] == 2
    assert set(ids(files)) == {"nightly", "every-so-often-2d391b58", "foreign"}


def ids(files):
    return [one["schedule_id"] for one in files.cli.json("schedule", "list")["schedules"]]


@pytest.mark.parametrize("file_format", ["yaml", "json"])
def test_what_is_exported_changes_nothing_when_it_is_applied(files, file_format):
    files.call("apply", "-f", files.write(FILE))
    own = files.call("export", "--format", file_format)
    assert "managed_by" in own.out.split("schedules")[0]
    assert files.call("apply", "-f", "-", "--prune", stdin=own.out.encode()).out == "No changes: 3 unchanged.\n"
    files.cli("schedule", "create", "--function", "f", "--every", "10s", "--id", "foreign", "--name", "1e3")
    files.cli("schedule", "pause", "foreign")
    everything = files.call("export", "--format", file_format).out
    assert files.call("apply", "-f", "-", stdin=everything.encode()).out == "No changes: 4 unchanged.\n"
    copied = Files(files.folder / "copy")
    copied.folder.mkdir()
    assert copied.call("apply", "-f", "-", "--json", stdin=everything.encode()).json["counts"] == counts(create=4)
    assert copied.call("apply", "-f", "-", stdin=everything.encode()).out == "No changes: 4 unchanged.\n"
    assert copied.cli.json("schedule", "status", "foreign")["phase"] == "paused"
    refused = files.call("apply", "-f", "-", "--prune", stdin=everything.encode())
    assert (refused.code, refused.errors) == (2, ["--prune: needs a name in managed_by: null owns no schedules"])
    assert files.call("export", "--managed-by", "billing", "--format", file_format).out == own.out


def test_json_toml_folders_and_several_documents_of_yaml(files):
    trigger, target = {"type": "cron", "expression": "0 0 1 1 *"}, {"target_kind": "function", "function": "f"}
    files.write(json.dumps({"schedules": [{"name": "j", "trigger": trigger, "target": target}]}), "all/j.json")
    files.write(
        '[[schedules]]\nname = "t"\ntrigger = {type = "once", due_at_utc = 2036-01-01T00:00:00Z}\n'
        'target = {target_kind = "function", function = "f"}\n',
        "all/t.toml",
    )
    one = "schedules: [{name: %s, trigger: {type: cron, expression: 0 0 1 1 *}, target: %s}]\n"
    files.write("---\n".join(one % (name, json.dumps(target)) for name in ("y", "z")), "all/y.yml")
    files.write("not read", "all/notes.txt")
    assert files.counts("apply", "-f", files.folder / "all") == counts(create=4)
    assert files.counts("apply", "-f", files.folder / "all", "--prune") == counts(unchanged=4)
    assert sorted(ids(files)) == ["j", "t", "y", "z"]
    labels = files.cli.json("schedule", "status", "t")["labels"]
    assert labels == {"managed_by": "apply"}


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("schedules: [", ["{file}: is not YAML: while parsing a flow node did not find expected node content"]),
        ("schedules: []\nschedules: []", ['{file}: gives the key "schedules" twice in one object (line 2, column 1)']),
        ("- a", ["{file}: must be an object with workflows, schedules, defaults, managed_by, not"]),
        ("schedule: []", ["{file}:1: schedule: unknown field; allowed are", "{file}:1: schedules: must be an array"]),
        ("schedules: [5]", ["{file}:1: schedules[0]: must be an object, not 5"]),
        ("schedules: []\ndefaults: 5\nmanaged_by: 7", ["{file}:2: defaults: must be", "{file}:3: managed_by: must be"]),
        (
            FILE.replace("0 2 *", "61 2 *").replace("every_seconds: 30", "every_seconds: soon"),
            ["{file}:9: schedules[0].trigger.expression: ", "{file}:12: schedules[1].trigger.every_seconds: must be"],
        ),
        (FILE.replace("MY_TOKEN", "NOT_SET"), ["{file}:13: schedules[1].target.headers.X-Note: the variable NOT_SET"]),
        (FILE.replace("${HOST:", "${?"), ["{file}:13: schedules[1].target.url: has ${ without a variable"]),
        (FILE.replace("Every so often", "nightly"), ["{file}:11: schedules[1].name: is that of schedules[0] in"]),
        (
            FILE.replace("max_attempts: 3", "max_attempts: '${MY_TOKEN}'").partition("  - name: Every")[0],
            ["{file}:8: schedules[0].retry_policy.max_attempts: is not allowed; the value comes from a variable"],
        ),
    ],
)
def test_a_bad_file_is_refused_as_a_whole(files, text, errors):
    path = files.write(text)
    good = files.write("schedules: [{name: good, trigger: {type: cron, expression: '@daily'}, target: {}}]", "b.yaml")
    good.write_text(good.read_text().replace("{}", "{target_kind: function, function: f}"))
    result = files.call("apply", "-f", good, "-f", path)
    assert result.code == 2
    assert len(result.errors) == len(errors)
    for found, expected in zip(result.errors, errors, strict=True):
        assert found.startswith(expected.replace("{file}", str(path))), found
    assert MARK not in result.err
    assert not (files.folder / "files.db").exists()


def test_a_file_of_something_else_is_refused_in_plain_words(files):
    path = files.write("schedule: []")
    names = "defaults, managed_by, schedules, workflows; did you mean schedules?"
    assert files.call("apply", "-f", path).errors == [
        f"{path}:1: schedule: unknown field; allowed are {names}",
        f"{path}:1: schedules: must be an array of schedule documents",
    ]


def test_files_that_cannot_be_read_are_named(files):
    assert files.call("apply", "-f", "nowhere.yaml").errors == ["nowhere.yaml: no such file"]
    assert files.call("diff", "-f", files.write("x", "a.txt")).code == 2
    empty = files.folder / "empty"
    empty.mkdir()
    assert files.call("diff", "-f", empty).code == 3
    broken = files.write("a = ", "b.toml")
    assert files.call("diff", "-f", broken).errors[0].startswith(f"{broken}: is not TOML: ")
    assert files.call("export", "--format", "xml").code == 2


def test_schedules_of_others_are_left_alone_unless_adopted(files):
    files.cli("schedule", "create", "--function", "g", "--cron", "0 0 1 1 *", "--id", "nightly")
    path = files.write(FILE)
    refused = files.call("apply", "-f", path)
    assert (refused.code, len(refused.errors)) == (2, 1)
    assert 'the schedule "nightly" exists and is not managed by files' in refused.err
    assert ids(files) == ["nightly"]
    assert files.counts("apply", "-f", path, "--adopt") == counts(create=2, change=1)
    assert files.cli.json("schedule", "status", "nightly")["target"]["function"] == "invoice"


def test_an_error_on_the_way_says_what_was_made(files):
    # Only a program can name a function by its module, which the store finds out.
    path = files.write(FILE.replace("function: invoice", "function: 'a:b'").replace("nightly", "zzz"))
    result = files.call("apply", "-f", path)
    assert result.code == 2
    assert "schedules[0].target.function: must be the name under which" in result.err
    assert "of 3 changes were made; apply again to make the others)" in result.err


@pytest.fixture(scope="module")
def server():
    """A server with rules for requests and commands."""
    with serving(begins=True) as served:
        rules = {"egress": egress_policy(Guard.STRICT, ()), "commands": CommandRules(programs=frozenset({"true"}))}
        service = replace(served.service, **rules)
        eventually(lambda: any(node.is_alive for node in service.store.nodes()))
        with hosting(service) as strict:
            yield strict


@pytest.fixture(autouse=True)
def _nothing_left(request):
    """Delete what a test has applied to the server that others share."""
    yield
    if "server" in request.fixturenames:
        client = request.getfixturevalue("server").client
        for schedule in client.get("/schedules").json()["schedules"]:
            client.delete(f"/schedules/{schedule['schedule_id']}")


class TestOnAServer:
    """What only the server knows is in the plan, before anything changes."""

    TASKS = """
schedules:
  - name: internal
    trigger: {type: cron, expression: "@daily"}
    target: {target_kind: http, url: "http://10.0.0.1/x"}
  - name: cleanup
    trigger: {type: cron, expression: "@daily"}
    target: {target_kind: command, argv: [backup], cwd: /etc}
  - name: typo
    trigger: {type: cron, expression: "@daily"}
    target: {target_kind: function, function: gret}
"""

    @pytest.mark.parametrize("command", [("diff",), ("apply", "--dry-run"), ("apply",)])
    def test_refusals_come_with_the_plan_and_change_nothing(self, server, tmp_path, command):
        path = tmp_path / "tasks.yaml"
        path.write_text(self.TASKS)
        result = call(*command, "-f", path, "--server", server.url)
        assert result.code == 2
        assert "Plan: 3 to create, 0 to change, 0 to delete, 0 unchanged." in result.out
        assert f"{path}:5: schedules[0].target.url: " in result.err
        assert f"{path}:8: schedules[1].target.cwd: " in result.err
        assert "warning: typo: no live node serves" in result.err
        assert server.client.get("/schedules").json()["schedules"] == []

    def test_warnings_come_with_the_plan_and_once(self, server, tmp_path):
        path = tmp_path / "typo.yaml"
        path.write_text("schedules:\n" + self.TASKS[self.TASKS.index("  - name: typo") :])
        planned = call("diff", "-f", path, "--server", server.url, "--json")
        [change] = planned.json["changes"]
        assert change["warnings"][0].startswith("no live node serves")
        applied = call("apply", "-f", path, "--server", server.url)
        assert (applied.code, applied.err.count("warning: typo: ")) == (0, 1)
        path.write_text(path.read_text().replace("gret", "greet"))
        assert call("diff", "-f", path, "--server", server.url).err == ""
        path.write_text(path.read_text() + "    ping_urls: {start: 'http://10.0.0.1/'}\n")
        assert "schedules[0].ping_urls.start: " in call("diff", "-f", path, "--server", server.url).err
