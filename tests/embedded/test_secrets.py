"""Secrets of a program: encrypted in its store, sent with its requests, never shown."""

import asyncio
import logging
import re
import subprocess
import sys
from pathlib import Path

import httpcore2
import httpx2
import pytest

from noonmark import AsyncScheduler, Scheduler
from noonmark.core.errors import Conflict, InvalidSchedule, NotFound
from noonmark.secret_cipher import fresh_key
from noonmark.targets.log_filter import LOGGERS
from tests.embedded.waiting import NEVER
from tests.targets.http.receiver import http_receiver

MARK = "s3cr3t-mark-0123456789"


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


def test_a_secret_reaches_its_host_and_is_kept_from_everybody_else(tmp_path, receiver):
    receiver.reset()
    url, key = f"sqlite:///{tmp_path / 'jobs.db'}", fresh_key()
    first = Scheduler(url, secret_key=key)
    made = first.set_secret("token", f"Bearer {MARK}", hosts=[f"http://127.0.0.1:{receiver.port}"])
    assert (made.name, made.hosts, made.created_at) == (
        "token",
        (f"http://127.0.0.1:{receiver.port}",),
        made.updated_at,
    )
    job_id = first.schedule_http(f"{receiver.url}/echo", secret_headers={"X-Token": "token"}, name="call")
    told = first.run_now(job_id)
    assert receiver.requests[0][2]["X-Token"] == f"Bearer {MARK}"
    assert (told["status"], told["body"]["said"]) == (200, "***")
    assert MARK not in repr([first.secrets(), first.get_job(job_id), first.runs(job_id), first.occurrences(job_id)])
    first.close()
    data = b"".join(one.read_bytes() for one in tmp_path.glob("jobs.db*"))
    assert b"token" in data
    assert MARK.encode() not in data
    again = Scheduler(url, secret_key=f"{fresh_key()},{key}")
    assert [one.name for one in again.secrets()] == ["token"]
    assert again.run_now(job_id)["status"] == 200
    assert again.delete_secret("token") == made
    with pytest.raises(Conflict, match="secret token does not exist any more"):
        again.run_now(job_id)
    again.close()
    assert len(receiver.requests) == 2


def test_a_program_that_logs_everything_logs_no_secret(receiver, caplog):
    """The library that sends requests would tell all of them; it still tells the program of its own."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpcore2")  # a server in this process would have set it to INFO
    with Scheduler(secret_key=fresh_key()) as scheduler:
        scheduler.set_secret("token", f"Bearer {MARK}", hosts=["http://127.0.0.1"])
        job_id = scheduler.schedule_http(f"{receiver.url}/echo", secret_headers={"X-Token": "token"}, trigger=NEVER)
        assert scheduler.run_now(job_id)["status"] == 200
        assert [one for one in caplog.records if one.name.startswith("httpcore2")] == []
        assert httpx2.get(f"{receiver.url}/echo", headers={"X-Token": "of my own"}).status_code == 200
    told = {one.name for one in caplog.records if "own" in one.getMessage()}
    assert "httpcore2.http11" in told
    assert MARK not in caplog.text


def test_every_logger_of_the_library_is_hushed():
    """Its requests are told by loggers that it names itself; a new one must not tell of ours."""
    code = "".join(one.read_text() for one in Path(httpcore2.__file__).parent.rglob("*.py"))
    assert set(re.findall(r'getLogger\("httpcore2\.(\w+)"\)', code)) == set(LOGGERS)
    assert len(re.findall(r"getLogger\(", code)) == len(re.findall(r'getLogger\("httpcore2\.', code))


def test_what_cannot_be_is_refused_without_a_word_of_it():
    scheduler = Scheduler(secret_key=fresh_key())
    for wrong in (
        {"hosts": "a.example"},
        {"hosts": None},
        {"hosts": []},
        {"hosts": ["a.example"], "value": f"{MARK}\n"},
    ):
        with pytest.raises(InvalidSchedule) as refused:
            scheduler.set_secret("token", **{"value": MARK, **wrong})
        assert MARK not in str(refused.value.problems)
    for headers in ({"X-Token": "gone"}, {"X-Token": MARK}, {"X-Token": f"Bearer {MARK}"}):
        with pytest.raises(InvalidSchedule, match=r"^secret_headers\.X-Token: ") as refused:
            scheduler.schedule_http("https://api.example.com", secret_headers=headers)
        assert MARK not in str(refused.value.problems)
    with pytest.raises(NotFound, match="no secret of that name"):
        scheduler.delete_secret("token")
    with pytest.raises(InvalidSchedule, match="must be the name"):
        scheduler.delete_secret(MARK + "!")
    assert scheduler.secrets() == []
    scheduler.close()
    with pytest.raises(Conflict, match="closed"):
        scheduler.secrets()


def test_a_scheduler_without_a_key_seals_nothing():
    scheduler = Scheduler()
    with pytest.raises(Conflict, match="`noonmark secret key`"):
        scheduler.set_secret("token", MARK, hosts=["a.example"])
    scheduler.close()
    with pytest.raises(InvalidSchedule, match="secret_key: must be 1 to 10 keys of 32 bytes in Base64") as refused:
        Scheduler(secret_key=MARK)
    assert MARK not in str(refused.value)


async def _awaited():
    scheduler = AsyncScheduler(secret_key=fresh_key())
    made = await scheduler.set_secret("token", MARK, hosts=("a.example",))
    assert await scheduler.secrets() == [made]
    assert await scheduler.delete_secret("token") == made
    assert await scheduler.secrets() == []
    assert await scheduler.signing_key() == scheduler.blocking.signing_key()
    await scheduler.close()


def test_the_same_awaited():
    asyncio.run(_awaited())


def test_a_program_without_secrets_does_not_load_what_seals_them():
    script = (
        "import sys; from noonmark import Scheduler; one = Scheduler(secret_key=sys.argv[1])\n"
        "one.schedule(print, trigger=None); one.close()\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'cryptography'))"
    )
    done = subprocess.run([sys.executable, "-c", script, fresh_key()], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
