"""Commands for secrets: where a value is read from, and that nobody sees it."""

import io
import os
import select
import subprocess

import pytest

from noonmark.secret_cipher import fresh_key, read_keys
from noonmark.stores.sqlite import SqliteStore
from noonmark.wiring import make_seal
from tests.cli.calling import Desk, call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, PATIENCE, ROOT

MARK = "s3cr3t-mark-0123456789"


class Vault:
    """A store, and who works on it with a key."""

    def __init__(self, folder, key):
        self.path, self.key = folder / "secrets.db", key
        self.url = f"sqlite:///{self.path}"
        self.desk = Desk("--store", self.url)

    def value(self, name):
        """What was sealed under a name."""
        store = SqliteStore(self.path, lambda: 0)
        store.open()
        [one] = store.find_secrets("default", [name])
        store.close()
        return make_seal(self.key).open("default", name, one.sealed)


@pytest.fixture
def vault(tmp_path, monkeypatch):
    key = fresh_key()
    monkeypatch.setenv("NOONMARK_SECRET_KEY", key)
    monkeypatch.chdir(tmp_path)
    return Vault(tmp_path, key)


def pipe(monkeypatch, raw):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_value_comes_by_a_pipe_without_the_end_of_its_line(vault, monkeypatch, end):
    pipe(monkeypatch, MARK.encode() + end)
    told = vault.desk("secret", "set", "token", "--host", "API.example.com", "--host", "*.example.org")
    assert told == "Sealed token for api.example.com, *.example.org.\n"
    assert vault.value("token") == MARK


def test_a_value_comes_from_a_file_or_as_an_option(vault, tmp_path):
    (tmp_path / "value.txt").write_text(f"Bearer {MARK}\n")
    made = vault.desk.json("secret", "set", "token", "--host", "a.example", "--value-file", str(tmp_path / "value.txt"))
    assert set(made) == {"name", "hosts", "created_at_utc", "updated_at_utc"}
    assert vault.value("token") == f"Bearer {MARK}"
    vault.desk("secret", "set", "token", "--host", "a.example", "--value", f"-{MARK}")
    assert vault.value("token") == f"-{MARK}"


def test_what_cannot_be_read_is_refused_without_a_word_of_it(vault, monkeypatch, tmp_path):
    host = ("--host", "a.example")
    for raw in (b"", b"\n", f"{MARK}\n{MARK}".encode(), b"\xff" * 20, MARK.encode() * 9_000):
        pipe(monkeypatch, raw)
        [line] = vault.desk.refused(2, "secret", "set", "token", *host)
        assert line.startswith("value: must be 4 to 8,192 printable ASCII characters")
        assert MARK not in line
    gone, folder = str(tmp_path / "gone.txt"), str(tmp_path)
    assert vault.desk.refused(3, "secret", "set", "token", *host, "--value-file", gone) == [
        "--value-file: there is no such file"
    ]
    assert "cannot be read" in vault.desk.refused(1, "secret", "set", "token", *host, "--value-file", folder)[0]
    both = ("--value", MARK, "--value-file", folder)
    assert vault.desk.refused(2, "secret", "set", "token", *host, *both) == [
        "--value-file: cannot stand beside --value: give one of them"
    ]
    assert "--host" in vault.desk.refused(2, "secret", "set", "token", "--value", MARK)[0]
    [line] = vault.desk.refused(2, "schedule", "create", "--http", "https://a.example", "--secret-header", MARK)
    assert MARK not in line


def test_what_is_in_the_wrong_place_is_not_repeated(vault):
    for words in (
        ("set", f"Bearer {MARK}", "--host", "a.example"),
        (MARK,),
        ("set", "token", f"-{MARK}"),
        ("list", MARK),
    ):
        [line] = vault.desk.refused(2, "secret", *words)
        assert MARK not in line
    [line] = vault.desk.refused(2, "secret", "set", "token", "--valeu", MARK)
    assert "--valeu" in line
    assert MARK not in line
    [line] = vault.desk.refused(3, "secret", "set", "token", "--host", "a.example", "--value-file", MARK)
    assert MARK not in line
    [line] = vault.desk.refused(2, "secret", "set", "token", "--host", f"{MARK}/", "--value", "0123456789")
    assert MARK not in line


def test_without_a_key_it_says_what_to_do(vault, monkeypatch):
    asked = ("secret", "set", "token", "--host", "a.example", "--value", MARK)
    monkeypatch.delenv("NOONMARK_SECRET_KEY")
    [line] = vault.desk.refused(4, *asked)
    assert "`noonmark secret key`" in line
    monkeypatch.setenv("NOONMARK_SECRET_KEY", MARK)
    [line] = vault.desk.refused(2, *asked)
    assert line.startswith("secret_key: must be 1 to 10 keys of 32 bytes in Base64")
    assert MARK not in line
    monkeypatch.delenv("NOONMARK_SECRET_KEY")
    (vault.path.parent / "noonmark.toml").write_text(f'secret_key = ["{fresh_key()}", "{vault.key}"]\n')
    vault.desk(*asked)


def test_secrets_are_listed_and_deleted(vault):
    for name in ("b", "a"):
        vault.desk("secret", "set", name, "--host", f"{name}.example", "--value", MARK)
    shown = vault.desk("secret", "list").splitlines()
    assert [line.split()[:2] for line in shown[1:3]] == [["a", "a.example"], ["b", "b.example"]]
    assert shown[-1] == "2 secrets"
    told = vault.desk("secret", "delete", "a")
    assert told == "Deleted a; requests that need it are not sent any more.\n"
    assert [one["name"] for one in vault.desk.json("secret", "list")["secrets"]] == ["b"]
    assert vault.desk.refused(3, "secret", "delete", "a") == ["name: there is no secret of that name"]


def test_every_key_is_fresh():
    made = [call("secret", "key").out.strip(), call("secret", "key", "--json").json["secret_key"]]
    assert [len(read_keys(key)[0]) for key in made] == [32, 32]
    assert made[0] != made[1]


def read_until(terminal, words):
    shown = b""
    while words not in shown:
        assert select.select([terminal], [], [], PATIENCE)[0], shown
        shown += os.read(terminal, 1_024)
    return shown


def test_on_a_terminal_nobody_sees_what_is_typed(vault):
    ours, theirs = os.openpty()
    words = [*NOONMARK, "secret", "set", "token", "--host", "a.example", "--store", vault.url]
    # A shell that begins a session of its own, and opens the terminal: so it is that of the command.
    at_terminal = ["sh", "-c", 'exec "$@" < "$0" > "$0" 2>&1', os.ttyname(theirs), *words]
    key = {"NOONMARK_SECRET_KEY": vault.key}
    with subprocess.Popen(at_terminal, cwd=ROOT, env=ENVIRONMENT | key, start_new_session=True) as process:
        shown = read_until(ours, b"Value of token: ")
        os.write(ours, f"{MARK}\n".encode())
        shown += read_until(ours, b"Sealed")
        assert process.wait(PATIENCE) == 0
    os.close(theirs)
    os.close(ours)
    assert MARK not in shown.decode()
    assert vault.value("token") == MARK


def test_the_signing_key_of_a_store_is_that_of_a_server_with_the_settings_of_this_place(vault, monkeypatch):
    lost = call("secret", "signing-key", "--store", vault.url)
    assert (lost.code, lost.out) == (3, "")
    vault.desk("secret", "set", "token", "--host", "a.example", "--value", MARK)
    drawn = vault.desk("secret", "signing-key")
    assert vault.desk.json("secret", "signing-key") == {"signing_key": drawn.strip()}
    monkeypatch.setenv("NOONMARK_SIGNING_KEY", "a key that was chosen")
    assert vault.desk("secret", "signing-key") == "a key that was chosen\n"
