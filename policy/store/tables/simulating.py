"""Simulations: what was simulated, under which rules and assumptions, and what it came to."""

from __future__ import annotations

from typing import Final

from sqlalchemy import ForeignKey, Index

from policy.store.tables.base import identity, int64, json, millis, table, text, written_by

SIMULATIONS: Final = table(
    "simulations",
    identity(),
    int64("cluster_id", ForeignKey("clusters.id")),
    millis("at_ms"),
    text("actor"),
    text("digest"),
    text("trace"),
    text("trace_digest"),
    int64("rule_set_id", ForeignKey("rule_sets.id")),
    int64("seed"),
    millis("start_ms"),
    millis("end_ms"),
    text("engine_version"),
    text("kept_in"),
    json("options"),
    json("result"),
    *written_by(),
    Index(None, "cluster_id", "id"),
    Index(None, "rule_set_id"),
    unique_for_ever=True,
)
