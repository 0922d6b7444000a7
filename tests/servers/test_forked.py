"""Programs from the fork server: each is a process as `python -m` makes one."""

import os
import signal
import subprocess

import pytest

from noonmark import __version__
from tests.embedded.waiting import eventually
from tests.servers import forked

PROGRAM = """
import atexit, os, signal, sys, threading, warnings
print(__name__, sys.argv[1:], os.getcwd(), os.environ["MARK"], sorted(os.environ) == sorted({"MARK", *sys.argv[2:]}))
print(os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL, file=sys.stderr)
atexit.register(print, "at exit")
threading.Timer(0.05, print, ["in a thread"]).start()
try:
    warnings.warn("a warning")
except UserWarning:
    print("raised")
match sys.argv[1]:
    case "wait":
        sys.stdout.flush()
        signal.pause()
    case "raise":
        raise ValueError("why")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def start(tmp_path):
    """Start the program in its folder, with its output in files."""
    (tmp_path / "program.py").write_text(PROGRAM)
    out, err = tmp_path / "out", tmp_path / "err"

    def start(*arguments, **options):
        environment = {"MARK": "set", "PYTHONWARNINGS": "error"}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            return forked.start_forked(
                "program", *arguments, cwd=tmp_path, env=environment, stdout=stdout, stderr=stderr, **options
            )

    start.out, start.err, start.folder = out, err, tmp_path
    return start


def test_a_program_has_its_own_arguments_folder_environment_streams_and_exit_code(start):
    process = start("7", "PYTHONWARNINGS")
    assert process.wait(60) == process.poll() == 7
    first, *others = start.out.read_text().splitlines()
    assert first == f"__main__ ['7', 'PYTHONWARNINGS'] {start.folder} set True"
    assert others == ["raised", "in a thread", "at exit"]
    assert start.err.read_text() == "False True\n"


def test_a_program_may_lead_a_session_and_is_ended_by_signals(start):
    process = start("wait", start_new_session=True)
    eventually(lambda: "raised" in start.out.read_text())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    assert os.getsid(process.pid) == process.pid
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    process.kill()  # does nothing
    assert start.err.read_text() == "True True\n"


def test_an_error_is_shown_and_is_the_exit_code(start):
    assert start("raise").wait(60) == 1
    assert start.err.read_text().endswith("ValueError: why\n")


def test_the_command_of_a_shell_has_the_output_and_the_exit_code():
    shown = subprocess.run(forked.command("--version"), capture_output=True, check=True).stdout
    assert shown == f"{__version__}\n".encode()
    done = subprocess.run(forked.command("nonsense"), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_command_of_a_shell_ends_with_its_program(number, tmp_path):
    command = forked.command("serve", "--port", "0", "--store", "memory://")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path) as process:
        assert b"listens on" in process.stdout.readline()
        process.send_signal(number)
        assert process.stdout.read() == b"", "the program has ended, too: nobody else has the pipe"
    assert process.returncode == (-number if number == signal.SIGKILL else 0)
