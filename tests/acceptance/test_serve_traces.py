"""Traces: what a service sends to a collector, over HTTP, in the form of OpenTelemetry."""

from __future__ import annotations

import gzip
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support import serving
from tests.support.serving import preempts

_CALLER = "0af7651916cd43dd8448eb211c80319c"


class Collector:
    """Takes spans as a collector does."""

    def __init__(self) -> None:
        self.seconds = 0.0  #: that it takes to answer
        self.spans: list[Span] = []
        self.services: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sent = ExportTraceServiceRequest.FromString(body)
                for resource in sent.resource_spans:
                    for attribute in resource.resource.attributes:
                        if attribute.key == "service.name":
                            collector.services.add(attribute.value.string_value)
                    for scope in resource.scope_spans:
                        collector.spans.extend(scope.spans)
                time.sleep(collector.seconds)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def served(tmp_path: Path, template: Path) -> Path:
    """Serve one call, with a caller's trace, and two other requests, and end. Gives the log."""
    db = str(tmp_path / "policy.db")
    shutil.copy(template, db)
    started = serving.serve(serving.filled(db), tmp_path)
    started.ready()
    headers = {"traceparent": f"00-{_CALLER}-b7ad6b7169203331-01"}
    call = started.post("/extender/prod/preempt", preempts("b")[0]["request"], headers=headers)
    others = [
        started.get(f"/api/v1/{path}").status_code for path in ("decisions/1", "rule-sets/v1")
    ]
    assert [call.status_code, *others, started.stop()] == [200, 200, 404, 0]
    return started.log


def test_a_call_is_a_trace_of_three_spans(
    tmp_path: Path,
    sqlite_template: Path,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request, part of the caller's trace, and below it deciding and recording."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    served(tmp_path, sqlite_template)
    spans = [span for span in collector.spans if span.trace_id.hex() == _CALLER]
    names = {span.span_id: span.name for span in spans}
    assert collector.services == {"policy"}
    assert sorted((span.name, names.get(span.parent_span_id, "")) for span in spans) == [
        ("POST /extender/{environment}/preempt", ""),
        ("decide", "POST /extender/{environment}/preempt"),
        ("record", "POST /extender/{environment}/preempt"),
    ]
    (decided,) = (span for span in spans if span.name == "decide")
    told = {one.key: one.value for one in decided.attributes}
    assert (told["policy.outcome"].string_value, told["policy.rule_set"].string_value) == (
        "preempt",
        "kube-1.35",
    )
    others = {span.name for span in collector.spans if span.trace_id.hex() != _CALLER}
    assert others == {"GET /api/v1/decisions/{id}", "GET /api/v1/rule-sets/{name}"}


def test_a_service_ends_when_its_traces_are_taken(
    tmp_path: Path,
    sqlite_template: Path,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also by a collector that takes its time, which is no fault of the database."""
    collector.seconds = 2.5
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    log = served(tmp_path, sqlite_template).read_text()
    warned = [line for line in log.splitlines() if "WARNING" in line and "not ready" not in line]
    assert (warned, len(collector.spans)) == ([], 5)


def test_nothing_is_sent_where_traces_are_off(
    tmp_path: Path,
    sqlite_template: Path,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The standard variable for that wins over the one that says where."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    served(tmp_path, sqlite_template)
    assert collector.spans == []


def test_a_collector_that_is_away_stops_nothing(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    served(tmp_path, sqlite_template)
