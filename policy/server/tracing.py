"""OpenTelemetry traces: a span for each request, and below it those of deciding and recording.

Off unless the standard variables say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_TRACES_EXPORTER=otlp`); sampling, headers, resource
and batches follow the standard variables as well. The extra `otel` brings the library.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from starlette.routing import Match
from starlette.types import Scope

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger("policy.server")

TRACE: Final = "policy.trace"
"""Key of a request's scope: its trace."""

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_NAME: Final = "policy"
_QUIET: Final = ("/healthz", "/readyz", "/metrics", "/static/")
"""Requests of machines and pictures that say nothing about the service's work."""

Attributes = Mapping[str, str | int | bool]


class Trace(Protocol):
    """The trace of one request; used from any thread."""

    def add(self, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        """A step of the request that is over. Times since 1970 UTC."""

    def end(self, status: int) -> None:
        """The request was answered with that status."""


class Untraced:
    """A trace that goes nowhere."""

    def add(self, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        pass

    def end(self, status: int) -> None:
        pass


UNTRACED: Final = Untraced()


class Tracing:
    """Makes the traces of requests; `close` sends what is left of them."""

    def __init__(self, provider: TracerProvider | None) -> None:
        """provider: None where nothing is traced."""
        self._provider = provider
        self._tracer = provider.get_tracer(_NAME) if provider is not None else None

    def begin(self, scope: Scope) -> Trace:
        """The trace of a request; part of the caller's, where its headers name one."""
        if self._tracer is None or scope["path"].startswith(_QUIET):
            return UNTRACED
        from opentelemetry.trace import SpanKind, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        span = self._tracer.start_span(
            scope["method"],
            context=TraceContextTextMapPropagator().extract(headers),
            kind=SpanKind.SERVER,
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"][:200],
                "url.scheme": scope["scheme"],
            },
        )
        return _Recorded(self, span, set_span_in_context(span), scope)

    def child(self, name: str, start_ns: int, end_ns: int, within: Context, of: Attributes) -> None:
        assert self._tracer is not None  # a trace was begun
        span = self._tracer.start_span(
            name, context=within, start_time=start_ns, attributes=dict(of)
        )
        span.end(end_ns)

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()


class _Recorded:
    def __init__(self, tracing: Tracing, span: Span, context: Context, scope: Scope) -> None:
        self._tracing, self._span, self._context, self._scope = tracing, span, context, scope

    def add(self, name: str, start_ns: int, end_ns: int, attributes: Attributes) -> None:
        self._tracing.child(name, start_ns, end_ns, self._context, attributes)

    def end(self, status: int) -> None:
        from opentelemetry.trace import StatusCode

        route = _route(self._scope)
        if route:
            self._span.update_name(f"{self._scope['method']} {route}")
            self._span.set_attribute("http.route", route)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def _route(scope: Scope) -> str:
    """The path with names for what differs from request to request; "" where none was found."""
    if "endpoint" not in scope:
        return ""
    router = scope["router"]
    for route in chain(router.routes, router.default.routes):
        if route.matches(scope)[0] is not Match.NONE:
            return str(route.path_format)
    return ""


def tracing() -> Tracing:
    """As the environment's variables want it."""
    if not _wanted():
        return Tracing(None)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        log.warning(
            "no traces are sent: `%s` is not installed; pip install 'preemption-policy[otel]'",
            exc.name,
        )
        return Tracing(None)
    named = "OTEL_SERVICE_NAME" in os.environ
    resource = Resource.create({} if named else {"service.name": _NAME})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def _wanted() -> bool:
    given = os.environ
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = given.get("OTEL_TRACES_EXPORTER", "")
    if exporter not in ("", "otlp"):
        if exporter != "none":
            log.warning("no traces are sent: `OTEL_TRACES_EXPORTER` may be `otlp` or `none` here")
        return False
    return exporter == "otlp" or any(given.get(name) for name in _ENDPOINTS)
