"""How a follower is doing: a line for people, figures for machines, `/healthz` and `/metrics`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

from policy.live.following import Figures

_SILENT_MS: Final = 600_000
"""After so long without a word from the API server (bookmarks come every minute) it is unwell."""


def age_seconds(figures: Figures, now_ms: int) -> float:
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


def unwell(figures: Figures, now_ms: int) -> str:
    """Why the follower is not doing its work; "" where it is."""
    if not figures.synced:
        return "the first lists are not complete"
    if not figures.writing:
        return f"the database is away: {figures.last_trouble}"
    if age_seconds(figures, now_ms) * 1000 > _SILENT_MS:
        return f"no word from the API server: {figures.last_trouble or 'silence'}"
    return ""


def status_line(figures: Figures, now_ms: int) -> str:
    """One line for a terminal."""
    if not figures.synced:
        return "listing the cluster"
    minutes = max(1, now_ms - figures.started_ms) / 1000
    parts = [
        f"revision {figures.revision}",
        f"{figures.events} events ({figures.events / minutes:.1f}/s)",
        f"{figures.observed} preemptions",
        f"lag {figures.lag_ms} ms",
    ]
    if figures.gaps:
        parts.append(f"{figures.gaps} gaps")
    why = unwell(figures, now_ms)
    return ", ".join(parts) + (f"; {why}" if why else "")


def metrics(figures: Figures, now_ms: int) -> str:
    """The figures in Prometheus' text format."""
    lines = []
    for name, kind, about, value in _METRICS:
        lines += [
            f"# HELP {name} {about}",
            f"# TYPE {name} {kind}",
            f"{name} {value(figures, now_ms)}",
        ]
    return "\n".join(lines) + "\n"


class StatusServer:
    """`/healthz` and `/metrics` over HTTP, in a thread of its own."""

    def __init__(
        self, host: str, port: int, figures: Callable[[], Figures], clock: Callable[[], int]
    ) -> None:
        """Raises OSError where the address cannot be used."""

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                now_ms = clock()
                if self.path == "/healthz":
                    why = unwell(figures(), now_ms)
                    body = {"ok": not why, "why": why, **asdict(figures())}
                    self._answer(503 if why else 200, msgspec.json.encode(body), "application/json")
                elif self.path == "/metrics":
                    text = metrics(figures(), now_ms).encode()
                    self._answer(200, text, "text/plain; version=0.0.4")
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
