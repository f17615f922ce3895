"""How often the rules of one rule set decided, added up by day: nothing of the record is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, func, select

from policy.decision.model import NO_VALUE
from policy.store.tables import CLUSTERS, DECISION_TOTALS, RULE_SETS, RULE_TOTALS
from policy.store.tables.totals import ALL_DAYS

_DAY_MS: Final = 86_400_000
RANKING: Final = "ranking"
"""Section of the criteria, which decide where more than one candidate is left."""
SECTIONS: Final = frozenset({"eligibility", "victims.eligible", "victims.forbid", RANKING})
"""Of which it is recorded which rule decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCounts:
    """Decisions of one rule set, and in how many of them each rule decided.

    Per span of days, in the order in which they were given, and last over all days.
    """

    days: tuple[int, ...]  #: of each span but the last
    decisions: tuple[int, ...]
    #: section and rule ("" where none held) -> in how many decisions, per span
    rules: Mapping[tuple[str, str], tuple[int, ...]]

    def of(self, section: str, rule: str) -> tuple[int, ...]:
        """Zero where it never decided."""
        return self.rules.get((section, rule), (0,) * len(self.decisions))


def rule_counts(
    connection: Connection, digest: str, *, now_ms: int, days: Sequence[int]
) -> RuleCounts:
    """Counts of the last days, this one included, over all clusters.

    days: how many, by span. A rule set that is not in the database has decided nothing.
    """
    clusters = connection.execute(select(CLUSTERS.c.id)).scalars().all()
    number = connection.execute(
        select(RULE_SETS.c.id).where(RULE_SETS.c.digest == digest)
    ).scalar_one_or_none()
    today = now_ms // _DAY_MS
    decisions: list[int] = []
    found: dict[tuple[str, str], list[int]] = {}
    spans = [range(today - span + 1, today + 1) for span in days]
    for position, span in enumerate([*spans, range(ALL_DAYS, ALL_DAYS + 1)]):
        decisions.append(0)
        if number is None:
            continue
        for outcome, criterion, count in _decided(connection, clusters, number, span):
            decisions[position] += count
            if outcome == "preempt":
                key = (RANKING, criterion)
                found.setdefault(key, [0] * (len(spans) + 1))[position] += count
        for section, rule, count in _fired(connection, clusters, number, span):
            found.setdefault((section, rule), [0] * (len(spans) + 1))[position] += count
    return RuleCounts(
        days=tuple(days),
        decisions=tuple(decisions),
        rules={key: tuple(counts) for key, counts in found.items()},
    )


def _decided(
    connection: Connection, clusters: Sequence[int], number: int, days: range
) -> list[tuple[str, str, int]]:
    """Outcome, deciding criterion ("" for none) and number of the decisions of a rule set."""
    t = DECISION_TOTALS.c
    query = (
        select(t.outcome, t.decided_by, _sum(t.decisions))
        # Named one by one, days are found by the key of the table.
        .where(t.cluster_id.in_(clusters), t.day.in_(days), t.rule_set_id == number)
        .group_by(t.outcome, t.decided_by)
    )
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]


def _fired(
    connection: Connection, clusters: Sequence[int], number: int, days: range
) -> list[tuple[str, str, int]]:
    """Section, name and number of decisions of the rules that decided."""
    t = RULE_TOTALS.c
    query = (
        select(t.section, t.rule, _sum(t.decisions))
        .where(
            t.cluster_id.in_(clusters),
            t.day.in_(days),
            t.rule_set_id == number,
            t.verdict != NO_VALUE,  # these count errors, nothing was decided
        )
        .group_by(t.section, t.rule)
    )
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]


def _sum(column: ColumnElement[int]) -> ColumnElement[int]:
    return cast(func.sum(column), BigInteger)
