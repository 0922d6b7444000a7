"""Traces: spans of requests, operations and the lives of occurrences, through the OpenTelemetry API.

Each occurrence is one trace, whichever nodes take part: its ids are computed. The span `occurrence` covers it from its
due time to its end. Its children say when it was planned, claimed and started, how long each call of the target took,
and when its end was written. Each attempt links to the one before it, an event to the occurrences that it triggered and
they to it, and an operation to what it created.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from noonmark.core.ids import OriginKind, kind_of, stored_id
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.run import Outcome
from noonmark.core.settlement import run_key
from noonmark.core.trace_context import event_key, span_id, trace_id
from noonmark.ports.events import Claimed, Ended, Matched, Planned, Settled, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent

SCOPE = "noonmark"
MAX_LINKS = 100
"""How many occurrences of one event are linked; the rest link to it."""
_NANOSECONDS = 1_000
_SERVER_ERROR = 500
_FAILED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT, Outcome.DELIVERY_FAILED, Outcome.LEASE_LOST})
_FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED, Phase.MISFIRED})
_PROPAGATOR = TraceContextTextMapPropagator()
_chosen = threading.local()


def chosen_ids() -> tuple[str, str] | None:
    """The trace and span that this thread begins now, if they are computed."""
    return getattr(_chosen, "ids", None)


class TraceRecorder:
    """Records spans with the tracer of a provider, and takes the events of a driver."""

    def __init__(self, provider: TracerProvider, now: Callable[[], Micros], *, version: str, node: str = "") -> None:
        self._tracer = provider.get_tracer(SCOPE, version)
        self._sampler = getattr(provider, "sampler", None)
        self._now, self.node = now, node

    def is_recorded(self, occurrence_id: str) -> bool:
        """Whether the trace of an occurrence is recorded."""
        return self._is_sampled(trace_id(occurrence_id))

    @contextmanager
    def request(self, method: str, route: str, headers: Mapping[str, str]) -> Iterator[Callable[[int], None]]:
        """Record a request, as a child of the caller's span."""
        parent = _PROPAGATOR.extract(dict(headers), otel_context.Context())
        attributes = {"http.request.method": method, "http.route": route}
        with self._span(f"{method} {route}", parent, SpanKind.SERVER, attributes) as span:
            yield lambda status: _set_status(span, status)

    @contextmanager
    def operation(self, name: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """Record an operation, and link it to the occurrence or the event that it created."""
        with self._span(name, None, SpanKind.INTERNAL, {"noonmark.operation": name}) as span:
            yield lambda answer: self._link_to_answer(span, answer)

    @contextmanager
    def _span(
        self, name: str, parent: otel_context.Context | None, kind: SpanKind, attributes: Mapping[str, str]
    ) -> Iterator[Span]:
        """A span of this thread. Of an error it has the code: the message may repeat what was sent, such as a key."""
        with self._tracer.start_as_current_span(
            name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", str(getattr(error, "code", type(error).__name__)))
                span.set_status(Status(StatusCode.ERROR))
                raise

    @contextmanager
    def run(self, occurrence: Occurrence) -> Iterator[None]:
        """Make a run the parent of the spans of its function."""
        of_trace = trace_id(stored_id(occurrence.id))
        run = self._span_context(of_trace, span_id(run_key(occurrence)), is_remote=False)
        token = otel_context.attach(trace.set_span_in_context(NonRecordingSpan(run), otel_context.get_current()))
        try:
            yield
        finally:
            otel_context.detach(token)

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Record what a driver did."""
        for event in events:
            match event:
                case Planned(plan):
                    for occurrence in plan.planned:
                        self._moment("plan", occurrence)
                    for occurrence in plan.closed:
                        self._occurrence(occurrence, occurrence.phase, str(occurrence.reason or ""))
                case Matched(_, matched, occurrences):
                    self._match(matched.event_id or "", matched.event_type, occurrences)
                case Claimed(occurrence, found_in):
                    self._moment("claim", occurrence, {"noonmark.found_in": str(found_in)})
                case Started(occurrence):
                    self._moment("start", occurrence)
                case Ended(occurrence):
                    self._occurrence(occurrence, occurrence.phase, str(occurrence.reason or ""))
                case Settled():
                    self.settled(event)

    def settled(self, event: Settled) -> None:
        """Record the call that has ended, and its occurrence if it has ended too."""
        occurrence, run = event.occurrence, event.run
        ended = run.ended if run.ended is not None else self._now()
        attributes = {"noonmark.attempt": run.attempt, "noonmark.outcome": str(run.outcome), "noonmark.run.id": run.id}
        earlier = _earlier_run(run.id)
        links = [] if earlier is None else [self._link(occurrence.id, earlier)]
        self._record(
            f"call {occurrence.route.partition(':')[0]}",
            (trace_id(occurrence.id), span_id(run.id)),
            (run.started, ended),
            parent=self._root(occurrence.id),
            attributes=self._attributes(occurrence) | attributes,
            links=links,
            error=str(run.outcome) if run.outcome in _FAILED else None,
        )
        retry = {} if event.retry_at is None else {"noonmark.retry_at_us": event.retry_at}
        self._moment("settle", occurrence, {"noonmark.reason": str(event.reason)} | retry, since=ended)
        if event.phase in FINAL:
            self._occurrence(occurrence, event.phase, str(event.reason), ended=ended)

    def step(self, occurrence: Occurrence, outcome: Outcome, *, started: Micros, ended: Micros) -> None:
        """Record an attempt of a step below the run of its workflow, which this node delivers."""
        stored, _, place = occurrence.id.partition("/")
        workflow = self._span_context(trace_id(stored), span_id(f"{stored}-{occurrence.fence}"))
        attributes = {
            "noonmark.occurrence.id": stored,
            "noonmark.step": place,
            "noonmark.attempt": occurrence.attempt,
            "noonmark.outcome": str(outcome),
        }
        self._record(
            f"step {place.partition('/')[0]}",
            (trace_id(stored), span_id(run_key(occurrence))),
            (started, ended),
            parent=trace.set_span_in_context(NonRecordingSpan(workflow), otel_context.Context()),
            attributes=self._attributes(occurrence) | attributes,
            error=str(outcome) if outcome in _FAILED else None,
        )

    def _occurrence(self, occurrence: Occurrence, phase: Phase, reason: str, *, ended: Micros | None = None) -> None:
        """Record the span of a whole occurrence."""
        ended = ended or occurrence.ended or self._now()
        attributes = {"noonmark.phase": str(phase), "noonmark.reason": reason, "noonmark.origin": occurrence.origin}
        self._record(
            "occurrence",
            (trace_id(occurrence.id), span_id(occurrence.id)),
            (min(occurrence.first_due, ended), ended),
            parent=otel_context.Context(),
            attributes=self._attributes(occurrence) | attributes,
            links=self._cause(occurrence),
            error=f"{phase}: {reason}" if phase in _FAILURES else None,
        )

    def _match(self, event_id: str, event_type: str, occurrences: Sequence[Occurrence]) -> None:
        key, now = event_key(event_id), self._now()
        self._record(
            "match event",
            (trace_id(key), span_id(key)),
            (now, now),
            parent=otel_context.Context(),
            attributes={"noonmark.event.id": event_id, "noonmark.event.type": event_type},
            links=[self._link(one.id, one.id) for one in occurrences[:MAX_LINKS]],
        )
        for occurrence in occurrences:
            self._moment("plan", occurrence)

    def _moment(
        self, name: str, occurrence: Occurrence, attributes: Mapping[str, Any] | None = None, *, since: Micros = 0
    ) -> None:
        """Record a step of an occurrence that has just been done."""
        now = self._now()
        attributes = self._attributes(occurrence) | dict(attributes or {})
        times = (min(since or now, now), now)
        self._record(name, None, times, parent=self._root(occurrence.id), attributes=attributes)

    def _record(  # noqa: PLR0913 - each is a part of a span
        self,
        name: str,
        ids: tuple[str, str] | None,
        times: tuple[Micros, Micros],
        *,
        parent: Context,
        attributes: Mapping[str, Any],
        links: Sequence[Link] = (),
        error: str | None = None,
    ) -> None:
        _chosen.ids = ids
        try:
            span = self._tracer.start_span(
                name, parent, attributes=attributes, links=links, start_time=times[0] * _NANOSECONDS
            )
        finally:
            _chosen.ids = None
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(times[1] * _NANOSECONDS)

    def _attributes(self, occurrence: Occurrence) -> dict[str, Any]:
        return {
            "noonmark.occurrence.id": occurrence.id,
            "noonmark.schedule.id": occurrence.schedule_id,
            "noonmark.node": self.node,
        }

    def _cause(self, occurrence: Occurrence) -> list[Link]:
        """The event that triggered an occurrence, if one did."""
        if kind_of(occurrence.origin) is not OriginKind.EVENT or not isinstance(occurrence.payload, dict):
            return []
        key = event_key(str(occurrence.payload.get("event_id")))
        return [self._link(key, key)]

    def _link_to_answer(self, span: Span, answer: Mapping[str, Any]) -> None:
        if isinstance(occurrence := answer.get("occurrence_id"), str):
            span.add_link(self._span_context(trace_id(occurrence), span_id(occurrence)))
        if isinstance(event := answer.get("event_id"), str):
            key = event_key(event)
            span.add_link(self._span_context(trace_id(key), span_id(key)))

    def _link(self, trace_key: str, span_key: str) -> Link:
        return Link(self._span_context(trace_id(trace_key), span_id(span_key)))

    def _root(self, occurrence_id: str) -> Context:
        """The span of an occurrence as a parent, wherever it is recorded."""
        root = self._span_context(trace_id(occurrence_id), span_id(occurrence_id))
        return trace.set_span_in_context(NonRecordingSpan(root), otel_context.Context())

    def _span_context(self, of_trace: str, of_span: str, *, is_remote: bool = True) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED if self._is_sampled(of_trace) else TraceFlags.DEFAULT)
        return SpanContext(int(of_trace, 16), int(of_span, 16), is_remote, flags)

    def _is_sampled(self, of_trace: str) -> bool:
        if self._sampler is None:
            return True
        sampled = self._sampler.should_sample(otel_context.Context(), int(of_trace, 16), "occurrence")
        return bool(sampled.decision.is_sampled())


def _set_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_ERROR:
        span.set_status(Status(StatusCode.ERROR))


def _earlier_run(run: str) -> str | None:
    """The run before this one: each claim of an occurrence raises the fence in the id by one."""
    occurrence, _, fence = run.rpartition("-")
    return f"{occurrence}-{int(fence) - 1}" if fence.isdecimal() and int(fence) > 1 else None


def add_trace_ids(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the trace of an occurrence, or else the one that this code runs in, to a log line."""
    if isinstance(occurrence := event.get("occurrence_id"), str):
        event["trace_id"] = trace_id(occurrence)
        return event
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event.update(trace_id=f"{span.trace_id:032x}", span_id=f"{span.span_id:016x}")
    return event
