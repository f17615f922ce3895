"""How a follower is doing: a line for people, figures for machines, `/healthz` and `/metrics`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from policy.live.figures import FollowerFigures

_SILENT_MS: Final = 600_000
"""After so long without a word from the API server (bookmarks come every minute) it is unwell."""


def age_seconds(figures: FollowerFigures, now_ms: int) -> float:
    """Seconds since the API server was heard last; since the start, where it never was."""
    return max(0, now_ms - (figures.last_news_ms or figures.started_ms)) / 1000


_METRICS: Final = (
    ("policy_follow_synced", "gauge", "1 once all kinds were listed", lambda f, _: int(f.synced)),
    ("policy_follow_writing", "gauge", "0 while the database is away", lambda f, _: int(f.writing)),
    ("policy_follow_events_total", "counter", "Watch events", lambda f, _: f.events),
    ("policy_follow_changes_total", "counter", "Changes that were written", lambda f, _: f.changes),
    ("policy_follow_revisions_total", "counter", "Revisions", lambda f, _: f.revisions),
    ("policy_follow_observed_total", "counter", "Preemptions observed", lambda f, _: f.observed),
    ("policy_follow_gaps_total", "counter", "Times that were not seen", lambda f, _: f.gaps),
    ("policy_follow_troubles_total", "counter", "Requests that failed", lambda f, _: f.troubles),
    ("policy_follow_lag_seconds", "gauge", "From news to row", lambda f, _: f.lag_ms / 1000),
    (
        "policy_follow_state_age_seconds",
        "gauge",
        "Since the last word of the server",
        age_seconds,
    ),
)


def unwell(figures: FollowerFigures, now_ms: int) -> str:
    """Why the follower is not doing its work; "" where it is."""
    if not figures.synced:
        return "the first lists are not complete"
    if not figures.writing:
        return f"the database is away: {figures.last_trouble}"
    if age_seconds(figures, now_ms) * 1000 > _SILENT_MS:
        return f"no word from the API server: {figures.last_trouble or 'silence'}"
    return ""


def degraded(figures: FollowerFigures) -> str:
    """What is not followed at the moment while all else is; "" where everything is."""
    if not figures.failing:
        return ""
    return f"not read at the moment: {', '.join(sorted(figures.failing))}"


def status_line(figures: FollowerFigures, now_ms: int) -> str:
    """One line for a terminal."""
    if not figures.synced:
        return "; ".join(["listing the cluster", *filter(None, [degraded(figures)])])
    minutes = max(1, now_ms - figures.started_ms) / 1000
    parts = [
        f"revision {figures.revision}",
        f"{figures.events} events ({figures.events / minutes:.1f}/s)",
        f"{figures.observed} preemptions",
        f"lag {figures.lag_ms} ms",
    ]
    if figures.gaps:
        parts.append(f"{figures.gaps} gaps")
    troubles = [one for one in (unwell(figures, now_ms), degraded(figures)) if one]
    return "; ".join([", ".join(parts), *troubles])


class FollowerMetrics(Collector):
    """The figures for Prometheus; also in the registry of a service that runs beside it."""

    def __init__(self, figures: Callable[[], FollowerFigures], clock: Callable[[], int]) -> None:
        self._figures = figures
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        figures, now_ms = self._figures(), self._clock()
        for name, kind, about, value in _METRICS:
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            yield family(name, about, value=float(value(figures, now_ms)))
        kinds = GaugeMetricFamily(
            "policy_follow_failing", "1 for a kind that cannot be read now", labels=("kind",)
        )
        for kind in sorted(figures.kinds.keys() | figures.failing.keys()):
            kinds.add_metric((kind,), float(kind in figures.failing))
        yield kinds


def health(figures: FollowerFigures, now_ms: int) -> tuple[int, bytes]:
    """Status and JSON of an answer that says how the follower is doing.

    A kind that cannot be read is `degraded`, and no reason for 503: nothing is better after a start
    anew, and all other kinds are followed.
    """
    why = unwell(figures, now_ms)
    said = {"ok": not why, "why": why, "degraded": degraded(figures), **asdict(figures)}
    return 503 if why else 200, msgspec.json.encode(said)


class StatusServer:
    """`/healthz` and `/metrics` over HTTP, in a thread of its own."""

    def __init__(
        self, host: str, port: int, figures: Callable[[], FollowerFigures], clock: Callable[[], int]
    ) -> None:
        """Raises OSError where the address cannot be used."""
        registry = CollectorRegistry()
        registry.register(FollowerMetrics(figures, clock))

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                now_ms = clock()
                if self.path == "/healthz":
                    code, body = health(figures(), now_ms)
                    self._answer(code, body, "application/json")
                elif self.path == "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
                else:
                    self._answer(404, b"not found\n", "text/plain")

            def _answer(self, code: int, body: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
