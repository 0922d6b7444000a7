"""Traces of real servers, sent to a receiver of OTLP: requests, operations and occurrences across two nodes."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from noonmark.core.trace_context import event_key, span_id, trace_id
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.targets.http.receiver import http_receiver

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
CALLER = ("a" * 32, "b" * 16)
PRIVATE = "nobody may see this"


class Collector:
    """The spans that were received."""

    def __init__(self, url):
        self.url, self.spans, self.raw = url, [], b""

    def take(self, body):
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]

    def named(self, name, of_trace=None):
        return [one for _, one in self.spans if one.name == name and of_trace in (None, one.trace_id.hex())]


@contextmanager
def collecting():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as receiver:
        collector = Collector(f"http://127.0.0.1:{receiver.server_port}")
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        yield collector
        receiver.shutdown()


def _completed(occurrences):
    return [one for one in occurrences if one["phase"] == "completed"]


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """What two nodes on one store sent until they had stopped, and the ids of what they ran."""
    folder = tmp_path_factory.mktemp("traces")
    with collecting() as collector, http_receiver() as receiver:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        options = ("--store", f"sqlite:///{folder}/jobs.db", "--traces", "otlp")
        with (
            serving(folder, *options, name="door", **{**environment, "NOONMARK_WORKER": "false"}) as door,
            serving(folder, *options, name="worker", **environment) as worker,
        ):
            target = {"target_kind": "http", "url": f"{receiver.url}/hook"}
            hook = {"name": "hook", "trigger": NEVER, "target": target}
            made = door.ask("POST", "/schedules", hook).json
            listen = {"name": "listen", "trigger": {"type": "event", "event_type": "paid"}, "target": target}
            listener = door.ask("POST", "/schedules", listen).json
            caller = {"traceparent": f"00-{CALLER[0]}-{CALLER[1]}-01"}
            run = door.ask("POST", f"/schedules/{made['schedule_id']}/run", {"payload": PRIVATE}, **caller).json
            door.ask("POST", "/events", {"event_type": "paid", "event_id": "one", "payload": {"x": PRIVATE}}, **caller)
            path = f"/schedules/{listener['schedule_id']}/occurrences"
            heard = eventually(
                lambda: [one for one in door.get(path).json["occurrences"] if one["phase"] == "completed"]
            )
            eventually(lambda: door.get(f"/occurrences/{run['occurrence_id']}").json["phase"] == "completed")
            assert (door.stop(), worker.stop()) == (0, 0)
            lines = worker.records + door.records
        yield collector, run["occurrence_id"], heard[0]["occurrence_id"], receiver.requests, lines


def test_a_request_continues_the_trace_of_its_caller_and_leads_to_the_occurrence(collected):
    collector, occurrence, *_ = collected
    (request,) = collector.named("POST /schedules/{schedule_id}/run")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == CALLER
    (operation,) = collector.named("schedule/run")
    assert operation.parent_span_id == request.span_id
    assert [(one.trace_id.hex(), one.span_id.hex()) for one in operation.links] == [
        (trace_id(occurrence), span_id(occurrence))
    ]


def test_an_occurrence_is_recorded_by_the_node_that_ran_it(collected):
    collector, occurrence, *_ = collected
    (root,) = collector.named("occurrence", trace_id(occurrence))
    assert root.span_id.hex() == span_id(occurrence)
    steps = [one for _, one in collector.spans if one.parent_span_id == root.span_id]
    assert {one.name for one in steps} == {"claim", "start", "call http", "settle"}
    services = {service["service.instance.id"] for service, one in collector.spans if one.trace_id == root.trace_id}
    assert len(services) == 1
    assert {service["service.name"] for service, _ in collector.spans} == {"noonmark"}


def test_the_called_service_gets_the_span_of_the_call(collected):
    collector, occurrence, _, requests, _ = collected
    (call,) = collector.named("call http", trace_id(occurrence))
    sent = {headers["traceparent"] for _, _, headers, _ in requests}
    assert f"00-{trace_id(occurrence)}-{call.span_id.hex()}-01" in sent


def test_an_event_leads_from_the_request_to_what_it_triggered(collected):
    collector, _, heard, *_ = collected
    (emit,) = collector.named("event/emit")
    (match,) = collector.named("match event", trace_id(event_key("one")))
    assert emit.trace_id.hex() == CALLER[0]
    assert match.span_id in {one.span_id for one in emit.links}
    assert {one.trace_id.hex() for one in match.links} == {trace_id(heard)}


def test_log_lines_name_the_trace_and_no_span_has_a_payload(collected):
    collector, occurrence, _, _, lines = collected
    about = [one for one in lines if one.get("occurrence_id") == occurrence]
    assert {one["trace_id"] for one in about} <= {trace_id(occurrence)}
    assert PRIVATE.encode() not in collector.raw
