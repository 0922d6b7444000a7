"""Log lines: one per record, with ids, without secrets, and safe to display."""

import io
import json
import logging

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from noonmark.core.trace_context import trace_id
from noonmark.telemetry import logs
from noonmark.telemetry.logs import CONTINUED, MAX_TEXT
from noonmark.telemetry.traces import TraceRecorder

HOSTILE = "a\r\nFAKE level=error\x1b[2J\x00\u202etxt.exe\u2028\x85\ud800"
MARK = "hunter2-marked"


@pytest.fixture
def log():
    """Configure the loggers of this process, return their output, and restore them."""
    root = logging.getLogger()
    names = ("uvicorn", "uvicorn.error", "uvicorn.access")
    before = (root.handlers, root.level, logging.raiseExceptions)
    theirs = [(one, one.handlers, one.propagate, one.level) for one in map(logging.getLogger, names)]
    stream = io.StringIO()

    def start(**options):
        logs.configure(stream=stream, **options)
        return lambda: stream.getvalue().split("\n")[:-1]

    yield start
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(capture=False)
    root.handlers, level, logging.raiseExceptions = before
    root.setLevel(level)
    for logger, handlers, propagates, level in theirs:
        logger.handlers, logger.propagate = handlers, propagates
        logger.setLevel(level)


def raises(error):
    raise error


def is_clean(line):
    """Whether a text has only printable characters."""
    return line.isprintable()


def records(lines):
    """The lines that begin a record."""
    return [line for line in lines if not line.startswith(CONTINUED)]


@pytest.mark.parametrize("form", ["json", "text"])
def test_hostile_name_makes_no_record(log, form):
    lines = log(form=form)
    logging.getLogger("noonmark.driver").warning("%s: missed", HOSTILE, extra={"schedule_id": HOSTILE})
    structlog.get_logger("noonmark.rest").info(HOSTILE, label=HOSTILE, labels={HOSTILE: [HOSTILE]})
    output = lines()
    assert len(records(output)) == 2
    assert all(is_clean(line) for line in output), output
    if form == "json":
        assert len(output) == 2
        assert all(line.isascii() for line in output)
        document = json.loads(output[0])
        assert (document["event"], document["schedule_id"]) == (f"{HOSTILE}: missed", HOSTILE)


def test_traceback_in_text_follows_on_lines_of_its_own(log):
    lines = log(form="text")
    try:
        raises(RuntimeError("spilled"))
    except RuntimeError:
        logging.getLogger("noonmark.driver").exception("it failed", extra={"schedule_id": "s-1"})
    logging.getLogger("noonmark.jobs").error("tick failed\nValueError: burnt")
    first, second, *_, last, failed, cause = lines()
    assert first.endswith(" error noonmark.driver it failed schedule_id=s-1")
    assert second == f"{CONTINUED}Traceback (most recent call last):"
    assert last == f"{CONTINUED}RuntimeError: spilled"
    assert (failed.endswith("tick failed"), cause) == (True, f"{CONTINUED}ValueError: burnt")


@pytest.mark.parametrize(("is_terminal", "is_json"), [(True, False), (False, True)])
def test_format_follows_the_stream(log, is_terminal, is_json):
    log()
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    logs.configure(stream=stream)
    logging.getLogger("noonmark.driver").info("hello")
    assert stream.getvalue().startswith("{") == is_json


def test_error_with_traceback_is_one_line_of_json(log):
    lines = log(form="json")
    try:
        raises(RuntimeError(HOSTILE))
    except RuntimeError:
        logging.getLogger("noonmark.driver").exception("it failed")
        structlog.get_logger("noonmark.rest").exception("it failed")
    output = lines()
    assert len(output) == 2
    assert all(is_clean(line) and "RuntimeError" in line and "Traceback" in line for line in output)


def test_record_has_time_level_and_logger(log):
    lines = log()
    logging.getLogger("noonmark.driver").info("%d fires", 3)
    document = json.loads(lines()[0])
    assert list(document) == ["time", "level", "logger", "event"]
    assert document["time"].endswith("Z")
    assert (document["level"], document["logger"], document["event"]) == ("info", "noonmark.driver", "3 fires")


def test_lines_have_ids_of_requests_and_occurrences(log):
    lines = log()
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        structlog.get_logger("noonmark.rest").info("created", schedule_id="s-1")
        logging.getLogger("noonmark.jobs").info("ran", extra={"occurrence_id": "o-1", "payload": "not this"})
    logging.getLogger("noonmark.jobs").info("later")
    first, second, third = map(json.loads, lines())
    assert (first["request_id"], first["schedule_id"]) == ("r-1", "s-1")
    assert (second["request_id"], second["occurrence_id"]) == ("r-1", "o-1")
    assert "payload" not in second
    assert "request_id" not in third


def test_level_is_respected(log):
    lines = log(level="warning")
    for name in ("noonmark.driver", "uvicorn.error", "someone.else"):
        logging.getLogger(name).info("quiet")
        logging.getLogger(name).warning("loud")
    structlog.get_logger("noonmark.rest").info("quiet")
    assert [json.loads(line)["event"] for line in lines()] == ["loud"] * 3


def test_access_lines_have_level_debug(log):
    lines = log()
    assert not logging.getLogger("uvicorn.access").isEnabledFor(logging.INFO)
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "GET", "/", "1.1", 200)
    assert lines() == []


def test_access_lines_are_split_into_fields(log):
    lines = log(level="debug")
    path = f"/schedules?api_key={MARK}&name=a%0d%0aSet-Cookie"
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "GET", path, "1.1", 200)
    document = json.loads(lines()[0])
    assert document["level"] == "debug"
    assert {name: document[name] for name in ("event", "method", "path", "status", "client")} == {
        "event": "request",
        "method": "GET",
        "path": "/schedules?api_key=***&name=a%0d%0aSet-Cookie",
        "status": 200,
        "client": "127.0.0.1:5",
    }


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (f"/secrets/shop.token?value={MARK}", 400, "/secrets/***?***"),
        (f"/secrets/{MARK}%20", 400, "/secrets/***"),
        ("/secrets/shop.token", 200, "/secrets/shop.token"),
        ("/secrets", 200, "/secrets"),
    ],
)
def test_misplaced_secret_in_a_path_is_masked(log, path, status, told):
    lines = log(level="debug")
    logging.getLogger("uvicorn.access").info('%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "PUT", path, "1.1", status)
    assert json.loads(lines()[0])["path"] == told


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_masked(log, form):
    lines = log(level="debug", form=form)
    stdlib, ours = logging.getLogger("noonmark.stores"), structlog.get_logger("noonmark.rest")
    stdlib.warning("cannot connect to postgresql://ada:%s@db/noonmark?sslpassword=%s", MARK, MARK)
    stdlib.debug("Authorization: Bearer %s", MARK)
    stdlib.error("host=db password=%s", MARK)
    try:
        raises(ConnectionError(f"postgresql://ada:{MARK}@db refused"))
    except ConnectionError:
        stdlib.exception("no store")
    ours.info("called", api_key=MARK, token=MARK, headers={"Authorization": MARK, "X-Secret": [MARK]}, password=MARK)
    ours.info("asked", url=f"https://ada:{MARK}@example.com/?access_token={MARK}", hosts=[f"https://a:{MARK}@b"])
    output = lines()
    assert len(records(output)) == 6
    assert MARK not in "\n".join(output)
    assert sum(line.count("***") for line in output) >= 10


def test_length_and_time_of_a_line_are_bounded(log):
    lines = log()
    ours = structlog.get_logger("noonmark.rest")
    for hostile in ("x" * 10**6, "://a:" * 200_000, " key" * 250_000, "bearer " * 150_000, "=" * 10**6):
        ours.info("big", value=hostile, deep=[[[[[[hostile]]]]]], many=dict.fromkeys(range(10_000), "v"))
    output = lines()
    assert len(output) == 5
    assert max(map(len, output)) < 8 * MAX_TEXT


def test_every_value_becomes_json(log):
    lines = log()
    values = {"nan": float("nan"), "infinite": float("-inf"), "number": 1.5, "set": {1}, "thing": object, "none": None}
    structlog.get_logger("noonmark.rest").info("values", **values, bytes=b"\x00")
    document = json.loads(lines()[0], parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert (document["nan"], document["infinite"], document["number"], document["set"]) == ("nan", "-inf", 1.5, [1])
    assert (document["none"], document["bytes"]) == (None, "b'\\x00'")


def test_closed_stream_does_not_disturb_the_work(log):
    class Gone(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    log()
    logs.configure(stream=Gone())
    logging.getLogger("noonmark.driver").error("nobody reads this")


def test_log_lines_have_the_trace_of_their_occurrence_or_request(log):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    recorder = TraceRecorder(provider, lambda: 0, version="1")
    lines, logger = log(trace_ids=True), logging.getLogger("noonmark.test")
    with recorder.request("GET", "/x", {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}) as set_status:
        logger.info("in a request")
        set_status(503)
    logger.info("of an occurrence", extra={"occurrence_id": "occ_1"})
    logger.info("neither")
    request, occurrence, neither = map(json.loads, lines())
    (span,) = exporter.get_finished_spans()
    assert request["trace_id"] == f"{span.context.trace_id:032x}" == "a" * 32
    assert request["span_id"] == f"{span.context.span_id:016x}" != "b" * 16
    assert f"{span.parent.span_id:016x}" == "b" * 16
    assert span.status.status_code is StatusCode.ERROR
    assert occurrence["trace_id"] == trace_id("occ_1")
    assert "trace_id" not in neither
