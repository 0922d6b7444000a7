"""`noonmark serve` as a real process: startup, requests, runs, startup errors, and shutdown."""

import json
import queue
import signal
import socket
import threading

import pytest

from noonmark import Scheduler, StoreUnavailable
from noonmark.stores.postgres import PostgresStore
from tests.cli.terminal import NOONMARK, PATIENCE, in_pipe
from tests.embedded.waiting import SOON, eventually, phases
from tests.servers.proxy import proxied
from tests.service.server import LINE, launch, serving

HOSTILE = "\r\nFAKE\x1b[2J\x00\u202e"
JOBS = f"""
import logging, pathlib, threading

def touch(context):
    context.logger.info("touched by %s", {HOSTILE!r})
    pathlib.Path("touched").write_text(context.occurrence_id)

def fails():
    raise RuntimeError({HOSTILE!r})

def lasts(context):
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.01)
    return "went"

"""
OFFERS = [option for name in ("touch", "fails", "lasts") for option in ("--function", f"{name}=jobs:{name}")]
STORE = "sqlite:///noonmark.db"


def folder_with_jobs(folder):
    (folder / "jobs.py").write_text(JOBS)
    return folder


def kept(folder):
    """The same store as the server's, in this process; it runs nothing."""
    return Scheduler(f"sqlite:///{folder / 'noonmark.db'}")


def nothing():
    """Stands for a function that only the server has."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(folder_with_jobs(tmp_path_factory.mktemp("server")), *OFFERS, "--log-level", "debug") as one:
        yield one


def test_startup_prints_only_the_address(server):
    url, store, worker = LINE.fullmatch(server.printed).groups()
    assert (store, worker) == (STORE, "on")
    assert url.startswith("http://127.0.0.1:")
    assert (server.folder / "noonmark.db").stat().st_mode & 0o777 == 0o600


def test_health_is_reported(server):
    response = server.get("/health").json
    assert (response["status"], response["service"], response["worker"]) == ("healthy", "noonmark", "running")
    assert server.get("/health/live").status == 200
    ready = eventually(lambda: (answer := server.get("/health/ready")).status == 200 and answer.json)
    assert set(ready["checks"].values()) == {"ok"}
    assert ready["node"] == response["node"] == ready["leader"]


def test_metrics_are_served(server):
    answer = server.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = server.samples()
    for name in ("schedules_due", "runs_emitted", "runs_skipped_overlap", "runs_failed_launch"):
        assert f"noonmark_{name}" in samples


def test_due_schedules_run_and_are_logged(server):
    before = server.samples()["noonmark_runs_emitted"]
    with kept(server.folder) as scheduler:
        scheduler.stop()
        touch = scheduler.schedule(nothing, function_name="touch")
        fails = scheduler.schedule(nothing, function_name="fails")
        eventually(lambda: phases(scheduler, touch) == ["completed"] and phases(scheduler, fails) == ["failed"])
        (occurrence,) = scheduler.occurrences(touch)
        scheduler.close()
    assert (server.folder / "touched").read_text() == occurrence.id
    eventually(lambda: server.samples()["noonmark_runs_emitted"] == before + 2)
    samples = server.samples()
    assert samples['noonmark_runs_total{outcome="completed",target="function"}'] >= 1
    assert samples["noonmark_start_lateness_seconds_count"] >= 2
    about = eventually(lambda: [one for one in server.records if one.get("occurrence_id") == occurrence.id][1:])
    assert {one["schedule_id"] for one in about} == {touch}
    assert all(line.isprintable() for line in server.log.split("\n")), "a raw control character"
    told = [one for one in server.records if one["logger"] == "noonmark.jobs" and "FAKE" in one["event"]]
    [failure] = [one for one in told if "`noonmark schedule explain " in one["event"]]
    assert failure["level"] == "error"
    assert f" --server {server.url}` says more" in failure["event"]


def test_a_schedule_with_the_label_has_metrics_of_its_own(server):
    with kept(server.folder) as scheduler:
        scheduler.stop()
        touch = scheduler.schedule(nothing, function_name="touch", name="watched", labels={"metrics": "true"})
        eventually(lambda: phases(scheduler, touch) == ["completed"])
        (occurrence,) = scheduler.occurrences(touch)
        scheduler.close()
    series = (
        f'noonmark_schedule_last_success_timestamp_seconds{{name="watched",schedule_id="{touch}",tenant="default"}}'
    )
    result = eventually(lambda: server.samples().get(series))
    assert result == pytest.approx(occurrence.ended_at.timestamp())


def test_a_request_cannot_inject_log_lines(server):
    server.get("/%0d%0aFAKE%1b%00?token=hunter2-marked")
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(b"GET /a\x1b[2J HTTP/1.1\r\nHost: x\x00\r\n\r\n")
        while line.recv(4_096):
            pass
    eventually(
        lambda: any("/%0d%0aFAKE" in str(one.get("path", "")).lower().replace("fake", "FAKE") for one in server.records)
    )
    assert all(line.isprintable() for line in server.log.split("\n"))
    assert "hunter2-marked" not in server.log


def test_log_lines_have_the_request_id(server):
    ids = {server.get("/health/live").headers["X-Request-Id"] for _ in range(3)}
    assert len(ids) == 3
    eventually(lambda: ids <= {one.get("request_id") for one in server.records if one.get("path") == "/health/live"})


def test_the_worker_can_be_stopped_and_started(server):
    def worker():
        return server.get("/health").json["worker"]

    assert server.ask("POST", "/worker/stop").status == 200
    assert worker() == "stopped"
    assert server.samples()["noonmark_worker_running"] == 0
    assert server.get("/health/ready").status == 200
    assert server.ask("POST", "/worker/stop").status == 200
    assert server.ask("POST", "/worker/start").status == 200
    assert server.ask("POST", "/worker/start").status == 200
    assert worker() == "running"
    status = server.get("/worker/status").json
    assert status["status"] == "running"
    assert status["worker_status"]["functions"] == ["fails", "lasts", "touch"]


def test_repeated_stops_do_not_hold_routes(tmp_path):
    with serving(folder_with_jobs(tmp_path), *OFFERS, "--grace", "3600") as server, kept(tmp_path) as scheduler:
        scheduler.stop()
        job = scheduler.schedule(nothing, function_name="lasts")
        eventually((tmp_path / "begun").exists)
        told = queue.SimpleQueue()

        def stop():
            told.put(server.ask("POST", "/worker/stop").json["worker_status"])

        threads = [threading.Thread(target=stop, daemon=True) for _ in range(60)]  # more than there are threads
        for thread in threads:
            thread.start()
        states = {told.get(timeout=SOON)["state"] for _ in range(59)}
        assert states == {"stopping"}
        assert server.get("/schedules").status == 200
        batch = [{"jsonrpc": "2.0", "id": number, "method": "worker/stop"} for number in range(20)]
        assert len(server.ask("POST", "/rpc", batch).json) == 20
        assert (told.empty(), sum(one.is_alive() for one in threads)) == (True, 1)
        (tmp_path / "go").touch()
        assert told.get(timeout=SOON)["state"] == "stopped"
        assert phases(scheduler, job) == ["completed"]
        assert server.ask("POST", "/worker/stop").json["worker_status"]["state"] == "stopped"
        for thread in threads:
            thread.join(SOON)
        scheduler.close()


def test_due_schedules_are_visible_without_a_worker(server):
    assert server.ask("POST", "/worker/stop").status == 200
    with kept(server.folder) as scheduler:
        scheduler.stop()
        jobs = [scheduler.schedule(nothing, function_name="touch") for _ in range(7)]
        result = eventually(lambda: (now := server.samples())["noonmark_schedules_due"] == 7 and now)
        assert result['noonmark_queue_depth{state="due"}'] == 7
        assert result["noonmark_worker_running"] == 0
        assert server.ask("POST", "/worker/start").status == 200
        eventually(lambda: all(phases(scheduler, job) == ["completed"] for job in jobs))
        eventually(lambda: server.samples()["noonmark_schedules_due"] == 0)
        scheduler.close()


def test_a_second_server_on_the_same_file_is_another_node(server):
    eventually(lambda: server.get("/health/ready").status == 200)
    with serving(server.folder, "--no-worker", "--log-format", "text", "--log-level", "debug", name="second") as second:
        assert LINE.fullmatch(second.printed)[3] == "off"
        assert second.get("/health").json["worker"] == "stopped"
        ready = second.get("/health/ready")
        assert (ready.status, ready.json["leader"]) == (200, server.get("/health").json["node"])
        assert second.ask("POST", "/worker/start").status == 200
        both = {one.get("/health").json["node"] for one in (server, second)}
        with kept(server.folder) as scheduler:
            scheduler.stop()
            eventually(lambda: both <= {one.name for one in scheduler.nodes() if one.is_alive})
            scheduler.close()
        assert second.stop(signal.SIGINT) == 0
        assert all(line.isprintable() for line in second.log.split("\n"))
        assert " debug uvicorn.access request " in second.log
    assert server.get("/health").status == 200


def test_a_stop_waits_for_runs_until_a_second_signal(tmp_path):
    folder = folder_with_jobs(tmp_path)
    with serving(folder, *OFFERS, "--grace", "600", name="first") as first, kept(folder) as scheduler:
        scheduler.stop()
        job = scheduler.schedule(nothing, function_name="lasts")
        asked_to_stop_while_it_runs(first)
        assert first.process.poll() is None
        assert first.stop() == 0
        assert phases(scheduler, job) == ["pending"]
        (node,) = [one for one in scheduler.nodes() if one.name in first.log]
        assert node.left is not None
        # The next server runs what was released, and is not stopped early.
        (folder / "begun").unlink()
        with serving(folder, *OFFERS, "--grace", "600", name="next") as following:
            asked_to_stop_while_it_runs(following)
            assert following.process.poll() is None
            (folder / "go").touch()
            assert following.process.wait(PATIENCE) == 0
        assert phases(scheduler, job) == ["completed"]
        assert scheduler.runs(job)[0].result == "went"
        assert "Traceback" not in first.log + following.log
        scheduler.close()


def asked_to_stop_while_it_runs(server, times=1):
    """It finishes open requests, accepts no new ones, and waits for runs unless it is stopped twice."""
    eventually((server.folder / "begun").exists)
    body = json.dumps({"trigger": {"type": "cron", "expression": "0 9 * * *"}}).encode()
    head = f"POST /schedules/preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOON) as asking:
        asking.sendall(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n".encode())
        assert asking.recv(4_096).startswith(b"HTTP/1.1 100 ")  # so it waits for the body
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: "Waiting for connections to close" in server.log)
        for _ in range(1, times):
            server.process.send_signal(signal.SIGTERM)
        asking.sendall(body)
        assert asking.recv(4_096).startswith(b"HTTP/1.1 200 ")
    eventually(lambda: "Finished server process" in server.log)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_two_signals_at_once_stop_immediately(tmp_path):
    folder = folder_with_jobs(tmp_path)
    with serving(folder, *OFFERS, "--grace", "600") as server, kept(folder) as scheduler:
        scheduler.stop()
        job = scheduler.schedule(nothing, function_name="lasts")
        asked_to_stop_while_it_runs(server, times=2)
        assert server.process.wait(PATIENCE) == 0
        assert phases(scheduler, job) == ["pending"]
        scheduler.close()


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("0.0.0.0", "keys would travel in plain text"),  # noqa: S104 - it is refused
        ("::", "keys would travel in plain text"),
        ("192.0.2.1", "keys would travel in plain text"),
        ("no-such-host.invalid", "cannot resolve"),
    ],
)
def test_it_listens_on_loopback_only(tmp_path, host, said):
    done = in_pipe(*NOONMARK, "serve", "--store", f"sqlite:///{tmp_path}/x.db", SCHEDULER_HOST=host)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("noonmark: host: ")
    assert said in line
    assert line.endswith("(from the variable SCHEDULER_HOST)")
    assert not (tmp_path / "x.db").exists()


def refused(folder, *arguments, code, **options):
    """What a server that does not come far says, without a traceback."""
    server = launch(folder, *arguments, **options)
    assert server.process.wait(PATIENCE) == code, server.log
    assert server.printed == ""
    (line,) = [line for line in server.log.splitlines() if line.startswith("noonmark: ")]
    assert "Traceback" not in server.log
    return line.removeprefix("noonmark: ")


def test_a_port_in_use_is_reported(server):
    error = refused(server.folder, name="late", port=str(server.port), code=1)
    assert error.startswith(f"port: another program listens on port {server.port} of 127.0.0.1; ")


def test_a_function_that_cannot_be_imported_is_reported(tmp_path):
    (tmp_path / "broken.py").write_text("raise SystemExit('never mind')")
    error = refused(tmp_path, "--function", "x=broken:f", code=2)
    assert error == "functions: x=broken:f cannot be used: never mind (from the flag --function)"
    assert not (tmp_path / "noonmark.db").exists()


def test_a_working_folder_inside_the_upload_folder_is_rejected(tmp_path):
    (tmp_path / "link").symlink_to("noonmark.db.uploads")
    folder = tmp_path / "link" / "default"
    error = refused(tmp_path, "--allow-commands", "cat", "--allow-cwd", str(folder), code=2)
    assert error.startswith(f"allow_cwd: {folder} is the upload folder or inside it")
    assert not (tmp_path / "noonmark.db").exists()


def test_postgresql_is_migrated_on_request_and_a_lost_schema_is_unhealthy(database, tmp_path):
    error = refused(tmp_path, "--store", database.url, code=6)
    assert "does not exist yet" in error
    assert "noonmark migrate" in error
    assert "--migrate" in error
    done = in_pipe(*NOONMARK, "migrate", "--store", database.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"The schema of {database.url} has version ")
    database.sql("UPDATE noonmark.alembic_version SET version_num = '0001'")
    with pytest.raises(StoreUnavailable, match="has version 0001"):
        PostgresStore(database.url, migrates=False).open()
    database.sql("DROP SCHEMA noonmark CASCADE")
    with (
        proxied(database.server) as proxy,
        serving(tmp_path, "--store", f"{database.through(proxy)}?timeout=3", "--migrate") as server,
    ):

        def is_ready():
            answer = server.get("/health/ready")
            return answer.status == 200 if answer.json["checks"]["store"] == "ok" else None

        eventually(is_ready)
        proxy.black_hole()
        eventually(lambda: is_ready() is None)
        assert server.get("/health/ready").status == 503
        assert server.get("/health").status == server.get("/metrics").status == 200
        proxy.heal()
        eventually(is_ready)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: is_ready() is None)
        proxy.heal()
        eventually(is_ready)
        assert server.stop() == 0
        assert "Traceback" not in server.log


def test_a_memory_store_has_nothing_to_migrate():
    done = in_pipe(*NOONMARK, "migrate", "--store", "memory://")
    assert done.returncode == 2
    assert "has no schema" in done.stderr


def test_reload_restarts_when_a_file_changes(tmp_path):
    folder = folder_with_jobs(tmp_path)
    with serving(folder, *OFFERS, SCHEDULER_RELOAD="true") as server:
        before = server.get("/health").json["node"]
        eventually(lambda: (folder / "jobs.py").touch() or "Reloading" in server.log)
        eventually(lambda: node_of(server) not in (None, before))
        assert server.stop() == 0


def node_of(server):
    """The node that answers; None while there is none."""
    try:
        return server.get("/health").json["node"]
    except OSError:
        return None
