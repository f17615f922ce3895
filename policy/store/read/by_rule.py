"""Which decisions a rule decided.

No index says that: each decision has some rules, and most of these decide in nearly all. The totals
say on which days a rule did, and in how many decisions. Where these are no more than a page, the
decisions of those days are looked at; more of them are soon met by a walk from the newest of those
days back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, and_, false, func, or_, select

from policy.decision.model import NO_VALUE, Outcome
from policy.store.errors import InvalidValue
from policy.store.read.rule_counts import RANKING, SECTIONS
from policy.store.spans import ids_within
from policy.store.tables import DECISION_RULES, DECISION_TOTALS, DECISIONS, RULE_TOTALS
from policy.store.tables.totals import ALL_DAYS

_DAY_MS: Final = 86_400_000
_FEW: Final = 100
"""Decisions for a page of which a walk back would go through all that there are."""


def require_section(rule: str) -> None:
    """Refuse a rule with a section of which nothing is recorded. Raises InvalidValue.

    rule: `section/id`, or `id` for the rules of all sections with that id.
    """
    section, slash, _ = rule.rpartition("/")
    if slash and section not in SECTIONS:
        raise InvalidValue(
            f"`{rule[:120]}`: of section `{section[:80]}` it is not recorded which rule decided",
            help="`SECTION/ID`, where SECTION is one of " + ", ".join(sorted(SECTIONS)),
        )


def decided(
    connection: Connection, clusters: Sequence[int], rule: str, *, counted: bool
) -> tuple[bool, list[ColumnElement[bool]]]:
    """The conditions on `decisions` for that a rule decided, and whether they list few of them.

    rule: as of `require_section`. counted: are those meant that totals count, which are not
    hypothetical? Raises InvalidValue.
    """
    require_section(rule)
    section, _, name = rule.rpartition("/")
    its = _its(section, name)
    if not counted:
        return False, [its]
    by_day = _by_day(connection, clusters, section, name)
    if not by_day:
        return True, [false()]
    c, days = DECISIONS.c, sorted(by_day)
    if sum(by_day.values()) <= _FEW:
        ids: list[int] = []
        for first, last in _stretches(days):
            there = and_(c.now_ms >= first * _DAY_MS, c.now_ms < (last + 1) * _DAY_MS)
            query = select(c.id).where(c.cluster_id.in_(clusters), there, its)
            ids += connection.execute(query).scalars()
        return True, [c.id.in_(ids)]
    since_ms, until_ms = days[0] * _DAY_MS, (days[-1] + 1) * _DAY_MS
    within = ids_within(connection, clusters, since_ms=since_ms, until_ms=until_ms)
    return False, [its, false() if within is None else c.id.between(*within)]


def _its(section: str, name: str) -> ColumnElement[bool]:
    """As `rule_counts` counts them."""
    c, r = DECISIONS.c, DECISION_RULES.c
    fired = select(1).where(r.decision_id == c.id, r.rule == name, r.verdict != NO_VALUE)
    if section:
        fired = fired.where(r.section == section)
    ranked = and_(c.decided_by == name, c.outcome == Outcome.PREEMPT.value)
    if section == RANKING:
        return ranked
    return fired.exists() if section else or_(ranked, fired.exists())


def _by_day(
    connection: Connection, clusters: Sequence[int], section: str, name: str
) -> dict[int, int]:
    """By day since 1970, in how many decisions it decided."""
    found: dict[int, int] = {}
    for of, condition in _counting(section, name):
        if not _ever(connection, of, clusters, condition):
            continue
        t = of.c
        query = (
            select(t.day, func.sum(t.decisions))
            .where(t.cluster_id.in_(clusters), t.day != ALL_DAYS, condition)
            .group_by(t.day)
        )
        for day, count in connection.execute(query):
            found[day] = found.get(day, 0) + int(count)
    return found


def _counting(section: str, name: str) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables that count it, each with a condition on their rows."""
    if section in ("", RANKING):
        t = DECISION_TOTALS.c
        preempts = t.outcome == Outcome.PREEMPT.value
        yield DECISION_TOTALS, and_(t.decided_by == name, preempts)
    if section != RANKING:
        t = RULE_TOTALS.c
        fired = and_(t.rule == name, t.verdict != NO_VALUE)
        yield RULE_TOTALS, and_(fired, t.section == section) if section else fired


def _ever(
    connection: Connection, of: Table, clusters: Sequence[int], condition: ColumnElement[bool]
) -> bool:
    """Did it decide on any day? The rows over all days are few."""
    t = of.c
    query = select(t.day).where(t.cluster_id.in_(clusters), t.day == ALL_DAYS, condition)
    return connection.execute(query.limit(1)).first() is not None


def _stretches(days: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of days that follow one another. days: ascending."""
    for _, each in groupby(enumerate(days), key=lambda pair: pair[1] - pair[0]):
        found = [day for _, day in each]
        yield found[0], found[-1]
