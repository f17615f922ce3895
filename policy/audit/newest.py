"""What other rules would have decided in the newest decisions and cycles of pod groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.audit.compare import (
    Comparison,
    ComparisonSummary,
    DecisionChange,
    summarise,
)
from policy.audit.group_compare import PREFIX, ComparingCycles
from policy.audit.judged import ComparisonKey, JudgedBefore
from policy.audit.recorded import Comparing, Skipped
from policy.rules import RuleSet
from policy.store import DecisionRow, NotFound, SessionRow, Store
from policy.store.record.groups import KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNewest:
    """The newest decisions under other rules."""

    rules: RuleSet
    recorded_rules: Sequence[str]  #: names of the rule sets that decided
    decisions: int  #: that were judged or skipped
    cycles: int  #: of pod groups, likewise
    summary: ComparisonSummary
    changed: Sequence[Comparison]  #: newest first
    skipped: Sequence[Skipped]  #: newest first


def judge_newest(
    store: Store,
    rules: RuleSet,
    *,
    cluster: str | None = None,
    limit: int,
    known: JudgedBefore | None = None,
) -> JudgedNewest:
    """The newest decisions and as many cycles of pod groups, of one cluster or of all.

    Those of kept simulations only where their cluster is named. limit: of each. Raises NotFound
    for an unknown cluster.
    """
    rows = store.read.decisions(cluster, simulated=False, limit=limit)
    cycles = store.read.sessions(cluster, kind=KIND, simulated=False, limit=limit)
    found = _judged(store, rules, rows, cycles, JudgedBefore() if known is None else known)
    compared = [one for one in found if isinstance(one, Comparison)]
    changed = [one for one in reversed(compared) if one.change is not DecisionChange.SAME]
    return JudgedNewest(
        rules=rules,
        recorded_rules=sorted({*(row.rule_set for row in rows), *(row.rule_set for row in cycles)}),
        decisions=len(rows),
        cycles=len(cycles),
        summary=summarise(compared),
        changed=sorted(changed, key=lambda one: one.now_ms, reverse=True),
        skipped=[one for one in reversed(found) if isinstance(one, Skipped)],
    )


def judge_one(
    store: Store, rules: RuleSet, wanted: int | str, *, known: JudgedBefore | None = None
) -> tuple[DecisionRow | SessionRow, Comparison | Skipped]:
    """One decision by its number, or one cycle as `group:NUMBER`. Raises NotFound."""
    rows: list[DecisionRow] = []
    cycles: list[SessionRow] = []
    if isinstance(wanted, int):
        rows = store.read.decisions_by_id([wanted])
        if not rows:
            raise NotFound(f"there is no decision {wanted}")
    else:
        cycles = [store.read.session(int(wanted.removeprefix(PREFIX)), kind=KIND).row]
    (found,) = _judged(store, rules, rows, cycles, JudgedBefore() if known is None else known)
    return rows[0] if rows else cycles[0], found


def _judged(
    store: Store,
    rules: RuleSet,
    rows: Sequence[DecisionRow],
    cycles: Sequence[SessionRow],
    known: JudgedBefore,
) -> list[Comparison | Skipped]:
    """Decisions in ascending order, which is the cheap one, then cycles."""
    keys: dict[int | str, ComparisonKey] = {
        row.id: (rules.digest, row.id, row.digest) for row in sorted(rows, key=_number)
    }
    for row in sorted(cycles, key=_number):
        name = f"{PREFIX}{row.id}"
        keys[name] = (rules.digest, name, row.digest)
    found: dict[int | str, Comparison | Skipped] = {}
    for wanted, key in keys.items():
        if (before := known.get(key)) is not None:
            found[wanted] = before
    missing = sorted(row.id for row in rows if row.id not in found)
    missing_cycles = sorted(row.id for row in cycles if f"{PREFIX}{row.id}" not in found)
    for one in (
        *Comparing(rules)(store, missing),
        *ComparingCycles(rules)(store, missing_cycles),
    ):
        found[one.id] = one
        if isinstance(one, Comparison):
            known.keep(keys[one.id], one)
    return [found[wanted] for wanted in keys]


def _number(row: DecisionRow | SessionRow) -> int:
    return row.id
