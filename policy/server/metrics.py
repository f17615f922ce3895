"""What Prometheus reads: few labels, and never the name of a pod or a node."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.calls = Counter(
            "policy_extender_calls",
            "Calls of schedulers, by how they ended.",
            ("verb", "mode", "outcome"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "policy_extender_seconds",
            "From the arrival of a call to its answer.",
            ("verb",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.failures = Counter(
            "policy_extender_failures",
            "Calls answered by --on-failure.",
            ("reason",),
            registry=self.registry,
        )
        self.unrecorded = Counter(
            "policy_extender_unrecorded",
            "Calls that the spool could not take, or that could not be judged in shadow mode.",
            registry=self.registry,
        )
        self.spool = Gauge(
            "policy_spool_depth", "Calls that wait to be recorded.", registry=self.registry
        )
        self.sqlite_log = Gauge(
            "policy_sqlite_log_bytes",
            "Of SQLite's log, what cannot be copied into its file because somebody reads.",
            registry=self.registry,
        )
        self.state_age = Gauge(
            "policy_state_age_seconds",
            "Since the newest revision of an environment's cluster was written.",
            ("environment",),
            registry=self.registry,
        )
        self.revision = Gauge(
            "policy_state_revision",
            "Newest revision that this process has of an environment's cluster.",
            ("environment",),
            registry=self.registry,
        )
        self.ready = Gauge(
            "policy_environment_ready",
            "1 where calls for an environment are decided, else 0: of those that were called.",
            ("environment",),
            registry=self.registry,
        )
        self.ledger = Gauge(
            "policy_ledger_head",
            "Sequence number of the newest ledger entry.",
            ("cluster",),
            registry=self.registry,
        )
        self.requests = Counter(
            "policy_http_requests",
            "Requests, by part of the service and status.",
            ("part", "status"),
            registry=self.registry,
        )

    def text(self) -> bytes:
        """All figures in the format that Prometheus reads."""
        return generate_latest(self.registry)
