"""Calls of schedulers that may be in the record."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from policy.store import bulk


def call_decided(
    connection: Connection,
    request_digest: str,
    *,
    environment: str,
    mode: str,
    caller: str,
    arrived_ms: int,
    failures: Sequence[str],
) -> bool:
    """Is such a call of a scheduler in the record, with one of these failures?"""
    one_of, texts = bulk.among(connection, failures)
    query = (
        "SELECT c.decision_id FROM extender_calls c JOIN cycles y ON y.id = c.decision_id"
        " WHERE c.arrived_ms = ? AND c.request_digest = ? AND c.mode = ? AND c.caller = ?"
        f" AND c.failure {one_of} AND y.environment = ? LIMIT 1"
    )
    values = (arrived_ms, request_digest, mode, caller, texts, environment)
    return bool(bulk.fetch(connection, query, values))
