"""Environments and their active rules, as the API and the pages show and change them."""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from policy.audit.documents import instant
from policy.cases import run_beside
from policy.rules.files import shipped
from policy.server.http import Failure, about
from policy.server.rule_sets import any_rules
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import ActivationRow, EnvironmentRow
from policy.text.words import number

REASON: Final = 2_000
"""Characters of the reason for a change of an environment."""


def activation(row: ActivationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "environment": row.environment,
        "at": instant(row.at_ms),
        "actor": row.actor,
        "rule_set": row.rule_set,
        "digest": row.rule_set_digest,
        "before": row.previous_digest,
        "reason": row.reason,
        "source": row.source,
        "proofs": None if row.proofs is None else to_builtins(row.proofs),
    }


def environment(row: EnvironmentRow) -> dict[str, Any]:
    return {
        "environment": row.name,
        "cluster": row.cluster,
        "created": instant(row.created_ms),
        "created_by": row.created_by,
        "active": activation(row.active) if row.active else None,
    }


def activate(
    service: PolicyService,
    principal: Principal,
    name: str,
    *,
    rules: str,
    reason: str,
    expected_activation: int | None,
) -> dict[str, Any]:
    """Make a rule set active; the ledger names who did it. Its cases have to pass.

    expected_activation: number of the one that they saw as the active one, 0 for none; None where
    they do not say. Raises Failure, StoreError.
    """
    _need_reason(reason)
    with about("rules"):
        chosen = any_rules(service, rules)
    failures = run_beside(rules) if rules in shipped() else ()
    if failures:
        told = f"{number(len(failures), 'failing case')} of `{rules}`"
        raise Failure(409, "conflict", told, field="rules")
    before = service.store.read.environment(name).active
    if before is not None and before.rule_set_digest == chosen.digest:
        told = f"`{chosen.name}` is active in `{name}` already"
        raise Failure(409, "conflict", told, field="rules")
    row = service.store.record.activate(
        name,
        rules=chosen,
        reason=reason,
        source=rules,
        at_ms=service.clock(),
        actor=principal.name,
        expected_activation=expected_activation,
    )
    return activation(row)


def roll_back(
    service: PolicyService,
    principal: Principal,
    name: str,
    *,
    reason: str,
    expected_activation: int | None,
) -> dict[str, Any]:
    """expected_activation: as of `activate`. Raises Failure, StoreError."""
    _need_reason(reason)
    row = service.store.record.roll_back(
        name,
        reason=reason,
        at_ms=service.clock(),
        actor=principal.name,
        expected_activation=expected_activation,
    )
    return activation(row)


def _need_reason(reason: str) -> None:
    if not reason.strip():
        advice = "say why, for later readers"
        raise Failure(400, "invalid", "the reason is empty", help=advice, field="reason")
    if len(reason) > REASON:
        told = f"the reason has {len(reason)} characters, and {REASON} are allowed"
        raise Failure(400, "invalid", told, field="reason")
