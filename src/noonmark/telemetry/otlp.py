"""OTLP: sends spans to a collector with the OpenTelemetry SDK, configured by its own `OTEL_*` variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from noonmark.telemetry.traces import chosen_ids

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

QUEUE = 20_000
"""Spans that wait to be sent; further ones are dropped, and the SDK logs that."""


class ComputedIds(RandomIdGenerator):
    """The ids of occurrences and runs are computed; others are random."""

    def generate_trace_id(self) -> int:
        """The id of a new trace."""
        ids = chosen_ids()
        return super().generate_trace_id() if ids is None else int(ids[0], 16)

    def generate_span_id(self) -> int:
        """The id of a new span."""
        ids = chosen_ids()
        return super().generate_span_id() if ids is None else int(ids[1], 16)


def make_provider(*, version: str, node: str, exporter: SpanExporter | None = None) -> TracerProvider:
    """The provider of a server. `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and the like apply."""
    own = {SERVICE_VERSION: version, SERVICE_INSTANCE_ID: node}
    if "OTEL_SERVICE_NAME" not in os.environ:
        own[SERVICE_NAME] = "noonmark"
    provider = TracerProvider(resource=Resource.create(own), id_generator=ComputedIds())
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter(), max_queue_size=QUEUE))
    return provider
