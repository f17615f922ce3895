"""What reports read: evictions with who caused them, nominations, how often rules decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    RowMapping,
    Text,
    cast,
    func,
    or_,
    select,
)

from policy.decision.model import NO_VALUE
from policy.store.model.decisions import NominationRow
from policy.store.outcomes import WHOLE, contradicted
from policy.store.read.evictions import Range
from policy.store.read.queries import nominations_query, rule_set_ids
from policy.store.state.loading import cluster_id
from policy.store.state.versions import chunks
from policy.store.tables import (
    CLUSTERS,
    DECISION_RULES,
    DECISIONS,
    NOMINATION_ENDS,
    NOMINATIONS,
    RULE_SETS,
)

_REVISIONS: Final = 500
"""Whose nominations are read together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleUse:
    """How often a rule decided under one rule set."""

    digest: str
    section: str
    rule: str
    decisions: int
    pods: int | None  #: pods that it decided about, where that is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedRuleSet:
    """A rule set that made decisions."""

    digest: str
    name: str
    canonical: str
    decisions: int


def past_nominations(connection: Connection, wanted: Range) -> list[NominationRow]:
    """Nominations that were made in the range, newest first, by decisions that were carried out.

    Where a decision made or ended one, the time is the one that it was made for: a simulation's
    clock runs faster than the one on the wall.
    """
    made, ended = DECISIONS.alias("made"), DECISIONS.alias("ended")
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    made_ms = func.coalesce(made.c.now_ms, n.made_ms)
    query = (
        nominations_query()
        .outerjoin(made, made.c.id == n.made_decision)
        .outerjoin(ended, ended.c.id == e.ended_decision)
        .where(
            *wanted.conditions(connection, n.cluster_id, made_ms),
            or_(n.made_decision.is_(None), ~contradicted(n.made_decision, WHOLE)),
        )
        .add_columns(made_ms.label("decided_ms"), ended.c.now_ms.label("ended_now_ms"))
    )
    return [_with_times(row) for row in connection.execute(query).mappings()]


def _with_times(row: RowMapping) -> NominationRow:
    fields = dict(row)
    ended_ms = fields.pop("ended_now_ms")
    fields["made_ms"] = fields.pop("decided_ms")
    return NominationRow(**{**fields, **({} if ended_ms is None else {"ended_ms": ended_ms})})


def tries_while_nominated(
    connection: Connection, nominations: Iterable[NominationRow]
) -> dict[tuple[str, int, str], int]:
    """How many later decisions left each nomination as it was, by cluster, revision and pod.

    Those that no decision left so are not there; others of the same revisions may be.
    """
    made: defaultdict[str, set[int]] = defaultdict(set)
    for row in nominations:
        made[row.cluster].add(row.made_revision)
    found: dict[tuple[str, int, str], int] = {}
    for cluster, revisions in made.items():
        number = cluster_id(connection, cluster)
        for some in chunks(sorted(revisions), _REVISIONS):
            found |= _tries(connection, number, some)
    return found


def _tries(
    connection: Connection, cluster: int, revisions: Sequence[int]
) -> dict[tuple[str, int, str], int]:
    n, e, d = NOMINATIONS.c, NOMINATION_ENDS.c, DECISIONS.c
    same = (e.cluster_id == n.cluster_id) & (e.made_revision == n.made_revision) & (e.pod == n.pod)
    tries = (
        select(func.count())
        .where(
            d.preemptor == n.pod,
            # A sum: the index of a cluster's decisions, of whatever pod, is not the one to look in.
            d.cluster_id + 0 == n.cluster_id,
            d.base_revision >= n.made_revision,
            or_(e.ended_revision.is_(None), d.base_revision < e.ended_revision),
            or_(e.ended_decision.is_(None), d.id != e.ended_decision),
            ~d.hypothetical,
        )
        .correlate(NOMINATIONS, NOMINATION_ENDS)
        .scalar_subquery()
    )
    query = (
        select(CLUSTERS.c.name, n.made_revision, n.pod, tries.label("tries"))
        .select_from(NOMINATIONS)
        .join(CLUSTERS, CLUSTERS.c.id == n.cluster_id)
        .outerjoin(NOMINATION_ENDS, same)
        .where(n.cluster_id == cluster, n.made_revision.in_(revisions))
    )
    return {
        (row.name, row.made_revision, row.pod): row.tries
        for row in connection.execute(query)
        if row.tries
    }


# --- how often rules decided ---------------------------------------------------------------------


def rule_sets_used(
    connection: Connection, wanted: Range, rules: str | None = None
) -> list[UsedRuleSet]:
    """Rule sets with the number of their decisions; the one that was used last comes first."""
    d, r = DECISIONS.c, RULE_SETS.c
    query = (
        select(r.digest, r.name, r.canonical, func.count().label("decisions"))
        .join(DECISIONS, d.rule_set_id == r.id)
        .where(*wanted.conditions(connection, d.cluster_id, d.now_ms), ~d.hypothetical)
        .group_by(r.id, r.digest, r.name, r.canonical)
        .order_by(func.max(d.id).desc())
    )
    if rules is not None:
        query = query.where(r.id.in_(rule_set_ids(connection, rules)))
    return [UsedRuleSet(**row) for row in connection.execute(query).mappings()]


def rule_uses(connection: Connection, wanted: Range) -> list[RuleUse]:
    """Rules and ranking criteria that decided, with the number of decisions that each decided."""
    d, r, f = DECISIONS.c, RULE_SETS.c, DECISION_RULES.c
    conditions = [*wanted.conditions(connection, d.cluster_id, d.now_ms), ~d.hypothetical]
    rules = (
        select(
            r.digest,
            f.section,
            f.rule,
            func.count().label("decisions"),
            func.sum(_pods(connection)).label("pods"),
        )
        .select_from(DECISION_RULES)
        .join(DECISIONS, d.id == f.decision_id)
        .join(RULE_SETS, r.id == d.rule_set_id)
        .where(*conditions, f.verdict != NO_VALUE)  # these count errors, nothing was decided
        .group_by(r.digest, f.section, f.rule)
    )
    criteria = (
        select(r.digest, d.decided_by.label("rule"), func.count().label("decisions"))
        .join(RULE_SETS, r.id == d.rule_set_id)
        .where(*conditions, d.outcome == "preempt")
        .group_by(r.digest, d.decided_by)
    )
    found = [
        RuleUse(
            digest=row.digest,
            section=row.section,
            rule=row.rule,
            decisions=row.decisions,
            pods=None if row.pods is None else int(row.pods),
        )
        for row in connection.execute(rules)
    ]
    return found + [
        RuleUse(
            digest=row.digest, section="ranking", rule=row.rule, decisions=row.decisions, pods=None
        )
        for row in connection.execute(criteria)
    ]


def _pods(connection: Connection) -> ColumnElement[Any]:
    """The number of pods among the inputs of a rule that fired; null where there is none."""
    inputs = DECISION_RULES.c.inputs
    if connection.dialect.name == "postgresql":
        return cast(func.json_extract_path_text(inputs, "pods"), BigInteger)
    return func.json_extract(cast(inputs, Text), "$.pods")
