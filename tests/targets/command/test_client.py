"""The client of the supervisor."""

import signal
from types import SimpleNamespace

from noonmark.targets.command.client import CommandRequest, SupervisorClient


def test_a_supervisor_that_was_just_killed_is_replaced():
    client = SupervisorClient()
    request = CommandRequest(program="/bin/true", argv=("true",), env={}, cwd="/", limits={}, stdin=b"")
    client.start(request).close()
    killed = client._process
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    # Its socket is gone before it can be waited for: for a moment it looks alive.
    client._process = SimpleNamespace(poll=lambda: None, wait=killed.wait)
    try:
        client.start(request).close()
        assert client._process.pid != killed.pid
    finally:
        client.close()
