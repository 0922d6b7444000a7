"""`noonmark secret`: values are read from several sources, and never shown."""

import io
import os
import select
import subprocess

import pytest

from noonmark.secret_cipher import fresh_key, read_keys
from noonmark.stores.sqlite import SqliteStore
from noonmark.wiring import make_seal
from tests.cli.runner import Cli, call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, PATIENCE, ROOT

MARK = "s3cr3t-mark-0123456789"


class SecretStore:
    """A store with a key for its secrets."""

    def __init__(self, folder, key):
        self.path, self.key = folder / "secrets.db", key
        self.url = f"sqlite:///{self.path}"
        self.cli = Cli("--store", self.url)

    def value(self, name):
        """The value of a secret."""
        store = SqliteStore(self.path, lambda: 0)
        store.open()
        [one] = store.find_secrets("default", [name])
        store.close()
        return make_seal(self.key).open("default", name, one.sealed)


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    key = fresh_key()
    monkeypatch.setenv("NOONMARK_SECRET_KEY", key)
    monkeypatch.chdir(tmp_path)
    return SecretStore(tmp_path, key)


def pipe(monkeypatch, raw):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_value_from_a_pipe(secrets, monkeypatch, end):
    pipe(monkeypatch, MARK.encode() + end)
    answer = secrets.cli("secret", "set", "token", "--host", "API.example.com", "--host", "*.example.org")
    assert answer == "Stored secret token for api.example.com, *.example.org.\n"
    assert secrets.value("token") == MARK


def test_value_from_a_file_or_an_option(secrets, tmp_path):
    (tmp_path / "value.txt").write_text(f"Bearer {MARK}\n")
    answer = secrets.cli.json(
        "secret", "set", "token", "--host", "a.example", "--value-file", str(tmp_path / "value.txt")
    )
    assert set(answer) == {"name", "hosts", "programs", "created_at_utc", "updated_at_utc"}
    assert secrets.value("token") == f"Bearer {MARK}"
    secrets.cli("secret", "set", "token", "--host", "a.example", "--value", f"-{MARK}")
    assert secrets.value("token") == f"-{MARK}"


def test_refused_values_are_not_repeated(secrets, monkeypatch, tmp_path):
    host = ("--host", "a.example")
    for raw in (b"", b"\n", f"{MARK}\n{MARK}".encode(), b"\xff" * 20, MARK.encode() * 9_000):
        pipe(monkeypatch, raw)
        [line] = secrets.cli.refused(2, "secret", "set", "token", *host)
        assert line.startswith("value: must be 4 to 8,192 printable ASCII characters")
        assert MARK not in line
    gone, folder = str(tmp_path / "gone.txt"), str(tmp_path)
    assert secrets.cli.refused(3, "secret", "set", "token", *host, "--value-file", gone) == [
        "--value-file: no such file"
    ]
    assert "cannot be read" in secrets.cli.refused(1, "secret", "set", "token", *host, "--value-file", folder)[0]
    both = ("--value", MARK, "--value-file", folder)
    assert secrets.cli.refused(2, "secret", "set", "token", *host, *both) == [
        "--value-file: conflicts with --value: give one of them"
    ]
    assert "--host" in secrets.cli.refused(2, "secret", "set", "token", "--value", MARK)[0]
    [line] = secrets.cli.refused(2, "schedule", "create", "--http", "https://a.example", "--secret-header", MARK)
    assert MARK not in line


def test_misplaced_secrets_are_not_repeated(secrets):
    for words in (
        ("set", f"Bearer {MARK}", "--host", "a.example"),
        (MARK,),
        ("set", "token", f"-{MARK}"),
        ("list", MARK),
    ):
        [line] = secrets.cli.refused(2, "secret", *words)
        assert MARK not in line
    [line] = secrets.cli.refused(2, "secret", "set", "token", "--valeu", MARK)
    assert "--valeu" in line
    assert MARK not in line
    [line] = secrets.cli.refused(3, "secret", "set", "token", "--host", "a.example", "--value-file", MARK)
    assert MARK not in line
    [line] = secrets.cli.refused(2, "secret", "set", "token", "--host", f"{MARK}/", "--value", "0123456789")
    assert MARK not in line


def test_without_a_key_the_error_has_advice(secrets, monkeypatch):
    asked = ("secret", "set", "token", "--host", "a.example", "--value", MARK)
    monkeypatch.delenv("NOONMARK_SECRET_KEY")
    [line] = secrets.cli.refused(4, *asked)
    assert "`noonmark secret key`" in line
    monkeypatch.setenv("NOONMARK_SECRET_KEY", MARK)
    [line] = secrets.cli.refused(2, *asked)
    assert line.startswith("secret_key: must be 1 to 10 keys of 32 bytes in Base64")
    assert MARK not in line
    monkeypatch.delenv("NOONMARK_SECRET_KEY")
    (secrets.path.parent / "noonmark.toml").write_text(f'secret_key = ["{fresh_key()}", "{secrets.key}"]\n')
    secrets.cli(*asked)


def test_list_and_delete(secrets):
    for name in ("b", "a"):
        secrets.cli("secret", "set", name, "--host", f"{name}.example", "--value", MARK)
    shown = secrets.cli("secret", "list").splitlines()
    assert [line.split()[:2] for line in shown[1:3]] == [["a", "a.example"], ["b", "b.example"]]
    assert shown[-1] == "2 secrets"
    answer = secrets.cli("secret", "delete", "a")
    assert answer == "Deleted secret a; requests that need it are no longer sent.\n"
    assert [one["name"] for one in secrets.cli.json("secret", "list")["secrets"]] == ["b"]
    assert secrets.cli.refused(3, "secret", "delete", "a") == ["name: there is no secret of that name"]


def test_generated_keys_differ():
    made = [call("secret", "key").out.strip(), call("secret", "key", "--json").json["secret_key"]]
    assert [len(read_keys(key)[0]) for key in made] == [32, 32]
    assert made[0] != made[1]


def read_until(terminal, words):
    shown = b""
    while words not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], shown
        shown += os.read(terminal, 1_024)
    return shown


def test_typed_values_are_not_shown(secrets):
    ours, theirs = os.openpty()
    words = [*NOONMARK, "secret", "set", "token", "--host", "a.example", "--store", secrets.url]
    # A shell that begins a session of its own, and opens the terminal: so it is that of the command.
    at_terminal = ["sh", "-c", 'exec "$@" < "$0" > "$0" 2>&1', os.ttyname(theirs), *words]
    key = {"NOONMARK_SECRET_KEY": secrets.key}
    with subprocess.Popen(at_terminal, cwd=ROOT, env=ENVIRONMENT | key, start_new_session=True) as process:
        shown = read_until(ours, b"Value of token: ")
        os.write(ours, f"{MARK}\n".encode())
        shown += read_until(ours, b"Stored")
        assert process.wait(PATIENCE) == 0
    os.close(theirs)
    os.close(ours)
    assert MARK not in shown.decode()
    assert secrets.value("token") == MARK


def test_signing_key_of_a_store(secrets, monkeypatch):
    lost = call("secret", "signing-key", "--store", secrets.url)
    assert (lost.code, lost.out) == (3, "")
    secrets.cli("secret", "set", "token", "--host", "a.example", "--value", MARK)
    drawn = secrets.cli("secret", "signing-key")
    assert secrets.cli.json("secret", "signing-key") == {"signing_key": drawn.strip()}
    monkeypatch.setenv("NOONMARK_SIGNING_KEY", "a key that was chosen")
    assert secrets.cli("secret", "signing-key") == "a key that was chosen\n"
