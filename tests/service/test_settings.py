"""Settings: precedence of sources, errors, and masking."""

import json
from dataclasses import fields

import pytest

from noonmark.cli.commands.server import ServerOptions
from noonmark.core.errors import InvalidSchedule
from noonmark.server.assembly import command_rules, server_option
from noonmark.server.config import SETTINGS, Settings, load
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_pipe

MARK = "hunter2-marked"


def sources(loaded, *names):
    return {name: (getattr(loaded.settings, name), loaded.sources[name]) for name in names}


def problems(flags=None, environment=None, file=None):
    with pytest.raises(InvalidSchedule) as refused:
        load(flags or {}, environment or {}, file)
    return [str(one) for one in refused.value.problems]


def written(folder, text, name="noonmark.toml"):
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def test_defaults_apply_without_any_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = load({}, {})
    assert loaded.settings == Settings()
    assert (loaded.settings.host, loaded.settings.port, loaded.settings.store) == (
        "127.0.0.1",
        8001,
        "sqlite:///noonmark.db",
    )
    assert loaded.settings.worker
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.file is None


def test_flags_beat_variables_and_these_beat_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 'port = 1\nlease = 20\nhost = "localhost"\nlog_level = "debug"\n')
    loaded = load({"port": "3"}, {"NOONMARK_PORT": "2", "NOONMARK_LEASE": "30"})
    assert sources(loaded, "port", "lease", "host", "grace") == {
        "port": (3, "flag --port"),
        "lease": (30.0, "environment NOONMARK_LEASE"),
        "host": ("localhost", "file noonmark.toml"),
        "grace": (10.0, "default"),
    }
    assert loaded.file == "noonmark.toml"


def test_a_named_file_must_exist(tmp_path):
    path = written(tmp_path, 'worker = false\n[functions]\nreport = "app.jobs:build"\n', "other.toml")
    for loaded in (load({}, {}, path), load({}, {"NOONMARK_CONFIG": path})):
        assert sources(loaded, "worker", "functions") == {
            "worker": (False, f"file {path}"),
            "functions": ({"report": "app.jobs:build"}, f"file {path}"),
        }
    assert problems(file=str(tmp_path / "none.toml")) == [
        f"config: the file {tmp_path / 'none.toml'} cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("variable", "name", "text", "value"),
    [
        ("SCHEDULER_HOST", "host", "::1", "::1"),
        ("SCHEDULER_PORT", "port", "9000", 9000),
        ("SCHEDULER_RELOAD", "reload", "True", True),
        ("SCHEDULE_MAX_PER_USER", "max_per_user", "7", 7),
        ("SCHEDULE_MIN_INTERVAL_MINS", "min_interval_minutes", "5", 5),
        ("SCHEDULE_MAX_BUDGET_USD", "max_budget_usd", "2.5", 2.5),
    ],
)
def test_variables_of_other_systems_come_after_our_own(variable, name, text, value):
    assert sources(load({}, {variable: text}), name) == {name: (value, f"environment {variable}")}
    ours = f"NOONMARK_{name.upper()}"
    other = {"host": "localhost", "reload": "no"}.get(name, "3")
    assert load({}, {variable: text, ours: other}).sources[name] == f"environment {ours}"
    assert load({}, {variable: text, ours: "  "}).sources[name] == f"environment {variable}"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("worker", "off", False),
        ("worker", "1", True),
        ("migrate", "YES", True),
        ("lease", "1.5", 1.5),
        ("keep_days", "90", 90.0),
        ("max_threads", "8", 8),
        ("store", "memory://", "memory://"),
        ("public_url", "https://cron.example.com/noonmark/", "https://cron.example.com/noonmark"),
        ("allowed_hosts", "a.example.com, B.example.com", ("a.example.com", "b.example.com")),
        ("functions", "a=mod:f, b=pkg.mod:Class.method", {"a": "mod:f", "b": "pkg.mod:Class.method"}),
        ("target_guard", "Strict", "strict"),
        ("allow_hosts", "Hooks.example.com, 10.1.0.0/16,::1", ("hooks.example.com", "10.1.0.0/16", "::1")),
        ("allow_hosts", "a.example:8080,127.0.0.1:80,[::1]:443", ("a.example:8080", "127.0.0.1:80", "[::1]:443")),
        ("allow_hosts", "*.Example.com,*.a.b:8080", ("*.example.com", "*.a.b:8080")),
        ("allow_commands", "*", ("*",)),
        ("allow_commands", "rsync,/usr/bin/env", ("rsync", "/usr/bin/env")),
        ("allow_env", "*", ("*",)),
        ("allow_env", "LEVEL, _x1", ("LEVEL", "_x1")),
        ("allow_cwd", "/srv/jobs,/data/a b", ("/srv/jobs", "/data/a b")),
        ("pin_commands", "Digest", "digest"),
        ("log_level", "WARNING", "warning"),
        ("log_format", "text", "text"),
    ],
)
def test_text_is_parsed_by_setting(name, text, value):
    assert getattr(load({}, {f"NOONMARK_{name.upper()}": text}).settings, name) == value


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("port", "65536", "an integer from 0 to 65,535"),
        ("port", "-1", "an integer from 0 to 65,535"),
        ("port", "٣", "an integer from 0 to 65,535"),
        ("lease", "nan", "a number from 1 to 3,600"),
        ("lease", "0", "a number from 1 to 3,600"),
        ("keep_days", "1e400", "a number from 0.001 to 36,500"),
        ("max_threads", "2.5", "an integer from 1 to 10,000"),
        ("worker", "maybe", "true or false"),
        ("log_level", "loud", "debug, info, warning, error or critical"),
        ("log_format", "xml", "auto, json or text"),
        ("store", "mysql://host/db", "memory://, sqlite:///relative.db"),
        ("allow_env", "LEVEL=9", 'variable names, or "*" for any'),
        ("allow_env", "LC_*", 'variable names, or "*" for any'),
        ("allow_cwd", "jobs", "absolute paths of folders"),
        ("pin_commands", "name", "inode or digest"),
        ("public_url", "ftp://example.com", "a web address"),
        ("public_url", "http://example.com:bad", "a web address"),
        ("public_url", "https://example.com/?q=1", "a web address"),
        ("allowed_hosts", "https://example.com/", "host names"),
        ("allowed_hosts", "example.com:8001", "host names without a port"),
        ("target_guard", "lax", "auto, strict or off"),
        ("allow_hosts", "https://example.com", "host names, addresses or networks"),
        ("allow_hosts", "example.com:0", "host names, addresses or networks"),
        ("allow_hosts", "example.com:65536", "host names, addresses or networks"),
        ("allow_hosts", "10.1.0.0/16:80", "host names, addresses or networks"),
        ("allow_hosts", "10.1.0.0/99", "host names, addresses or networks"),
        ("allow_hosts", "127.1", "host names, addresses or networks"),
        ("allow_hosts", "*.1.2.3", "host names, addresses or networks"),
        ("allow_hosts", "a.*.example.com", "host names, addresses or networks"),
        ("allow_hosts", "a.example,*", ", not '*': use --target-guard off to allow every address"),
        ("functions", "report", "NAME=module:function"),
        ("functions", "report=os.system", "NAME=module:function"),
        ("functions", "=os:system", "NAME=module:function"),
        ("host", "a\x1b[2Jb", "text on one line"),
    ],
)
def test_a_bad_value_names_the_setting_its_source_and_what_is_allowed(name, text, allowed):
    variable = f"NOONMARK_{name.upper()}"
    (problem,) = problems(environment={variable: text})
    assert problem.startswith(f"{name}: must be ")
    assert allowed in problem
    assert problem.endswith(f"(from the variable {variable})")
    assert problem.isprintable()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = true", "port: must be an integer"),
        ("worker = 1", "worker: must be true or false"),
        ("allowed_hosts = [1]", "allowed_hosts: must be host names"),
        ("functions = 5", "functions: must be functions, each"),
        ("functions = {a = 5}", "functions: must be functions, each"),
        ("prot = 8001", "prot: unknown setting"),
        ("port = ", "config: the file"),
        ("host = '\\ud800'", None),
    ],
)
def test_a_file_is_read_strictly(tmp_path, text, said):
    path = written(tmp_path, text)
    if said is None:  # a literal text: nothing in it is an escape
        assert load({}, {}, path).settings.host == "\\ud800"
        return
    (problem,) = problems(file=path)
    assert problem.startswith(said)
    assert path in problem


def test_a_file_of_bytes_or_of_enormous_size_is_refused(tmp_path):
    (tmp_path / "bytes.toml").write_bytes(b"host = '\xff'")
    assert "cannot be read" in problems(file=str(tmp_path / "bytes.toml"))[0]
    (tmp_path / "huge.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    assert "it has more than" in problems(file=str(tmp_path / "huge.toml"))[0]


def test_every_problem_is_reported_at_once(tmp_path):
    path = written(tmp_path, "lease = 0\nworkers = 3\n")
    assert [one.partition(":")[0] for one in problems({"port": "x"}, {"NOONMARK_GRACE": "?"}, path)] == [
        "workers",
        "port",
        "lease",
        "grace",
    ]


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{MARK}@db.example.com/noonmark",
        f"postgresql://ada:p@{MARK}@db.example.com/noonmark",
        f"postgresql://db.example.com/noonmark?user=ada&password={MARK}",
        f"postgresql://db.example.com/noonmark?sslpassword={MARK}&schema=one",
    ],
)
def test_passwords_are_never_shown(url):
    loaded = load({"store": url}, {})
    shown = loaded.to_document()["store"]["value"]
    assert MARK not in shown
    assert "db.example.com/noonmark" in shown
    assert loaded.settings.store == url
    assert MARK not in problems({"store": url.replace("postgresql", "postgersql")})[0]
    assert MARK not in str(loaded.error("store", "cannot be opened"))


def test_every_setting_has_a_flag():
    assert [one.name for one in fields(ServerOptions)] == ["config", *SETTINGS]


def noonmark(*arguments, **environment):
    return in_pipe(*NOONMARK, *arguments, **environment)


@pytest.mark.parametrize("name", ["allow_hosts", "allow_commands", "allow_env", "allowed_hosts"])
def test_a_flag_for_a_list_may_be_repeated(name):
    flag = f"--{name.replace('_', '-')}"
    answer = call("config", flag, "a,b", flag, "c", "--json").json["settings"][name]
    assert answer == {"value": ["a", "b", "c"], "source": f"flag {flag}"}


def test_a_key_for_secrets_may_be_repeated_too_and_is_not_shown():
    first, second = (call("secret", "key").out.strip() for _ in range(2))
    done = call("config", "--secret-key", first, "--secret-key", second, "--json")
    assert done.json["settings"]["secret_key"] == {"value": "***", "source": "flag --secret-key"}
    refused = call("config", "--secret-key", first, "--secret-key", MARK, "--json")
    assert (refused.code, MARK in refused.err, first in refused.err) == (2, False, False)


def test_the_command_shows_values_with_their_sources(tmp_path):
    path = written(tmp_path, "lease = 20\n")
    url = f"postgresql://ada:{MARK}@db.example.com/noonmark"
    options = ("--config", path, "--no-worker", "--function", "a=mod:f", "--function", "b=mod:g", "--port", "0")
    done = noonmark("config", *options, "--json", NOONMARK_STORE=url, SCHEDULER_RELOAD="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert MARK not in done.stdout
    document = json.loads(done.stdout)
    assert document["file"] == path
    assert list(document["settings"]) == list(SETTINGS)
    expected = {
        "worker": {"value": False, "source": "flag --no-worker"},
        "functions": {"value": {"a": "mod:f", "b": "mod:g"}, "source": "flag --function"},
        "port": {"value": 0, "source": "flag --port"},
        "lease": {"value": 20.0, "source": f"file {path}"},
        "reload": {"value": True, "source": "environment SCHEDULER_RELOAD"},
        "store": {"value": "postgresql://ada:***@db.example.com/noonmark", "source": "environment NOONMARK_STORE"},
        "keep_days": {"value": 30.0, "source": "default"},
    }
    assert {name: document["settings"][name] for name in expected} == expected
    table = noonmark("config", "--worker", NOONMARK_STORE=url).stdout
    assert MARK not in table
    lines = [line.split() for line in table.splitlines()]
    assert ["worker", "true", "flag", "--worker"] in lines
    assert ["public_url", "-", "default"] in lines


def test_the_command_refuses_bad_settings():
    done = noonmark("config", "--port", "x", NOONMARK_LEASE="-5")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "noonmark: port: must be an integer from 0 to 65,535, not 'x' (from the flag --port)",
        "noonmark: lease: must be a number from 1 to 3,600, not '-5' (from the variable NOONMARK_LEASE)",
    ]


def test_a_signing_key_is_never_shown_not_even_when_it_is_refused():
    chosen = "sesame, open sesame"
    loaded = load({}, {"NOONMARK_SIGNING_KEY": chosen})
    assert loaded.settings.signing_key == chosen
    assert loaded.to_document()["signing_key"]["value"] == "***"
    refused = "signing_key: must be 16 to 500 printable ASCII characters (from the variable NOONMARK_SIGNING_KEY)"
    assert problems(environment={"NOONMARK_SIGNING_KEY": "sesame"}) == [refused]


@pytest.mark.parametrize(
    ("flags", "programs"),
    [
        ({}, frozenset()),
        ({"allow_commands": ["echo"]}, {"echo"}),
        ({"allow_commands": ["*"]}, None),
        ({"worker": False}, None),
        ({"worker": False, "allow_commands": ["echo"]}, {"echo"}),
        ({"engine": "temporal://localhost:7233/default", "engine_routes": ["command"]}, None),
    ],
)
def test_a_server_knows_which_programs_it_starts_unless_others_start_them(flags, programs):
    assert command_rules(load(flags, {}).settings).programs == programs


@pytest.mark.parametrize(
    ("flags", "option"),
    [
        ({}, ""),
        ({"host": "::1"}, "--server 'http://[::1]:8001'"),
        ({"port": 8002}, "--server http://127.0.0.1:8002"),
        ({"host": "0.0.0.0", "behind_proxy": True}, ""),  # noqa: S104 - nothing is bound to it
        ({"host": "::", "behind_proxy": True}, "--server 'http://[::1]:8001'"),
        ({"port": 8002, "public_url": "https://jobs.example.org/"}, "--server https://jobs.example.org"),
    ],
)
def test_a_command_in_the_log_finds_a_server_that_does_not_listen_where_commands_look_first(flags, option):
    assert server_option(load(flags, {}).settings) == option
