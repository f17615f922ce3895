"""Variables that count pods which a rule set itself allows, held side by side for two rule sets.

Where both surely allow the same pods, the counts agree. Where one allows all that the other does,
its counts are at least as large. Else each rule set has counts of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import z3

from policy.proving import solver
from policy.proving.lists import decided
from policy.proving.solver import SolverLimits, SolverStatus
from policy.proving.world import COUNTED, Declarations, Value
from policy.rules.ruleset import RuleSet

VIOLATING: Final = "victim.pdbViolating"
TERMINATING: Final = "nominated.preemptedPodsTerminating"


class Relation(StrEnum):
    """How a count of the new rule set compares with that of the old one."""

    SAME = "same"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    APART = "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountVariables:
    """The variables that both rule sets read, and how their values compare."""

    relations: tuple[tuple[str, Relation], ...]
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def apart(self) -> frozenset[str]:
        """Variables whose values may differ."""
        return frozenset(name for name, found in self.relations if found is not Relation.SAME)

    def facts(self, world: Declarations) -> list[Value]:
        """What is known of the two copies of each variable."""
        facts = []
        for name, relation in self.relations:
            new, old = world.variable(name, "new"), world.variable(name, "old")
            if relation is Relation.APART or relation is Relation.SAME:
                continue
            more, fewer = (new, old) if relation is Relation.AT_LEAST else (old, new)
            facts.append(z3.Implies(fewer, more) if z3.is_bool(more) else more >= fewer)
        return facts


def read_by(rules: RuleSet) -> frozenset[str]:
    """The variables of the conditions that decide who may be a victim."""
    every = (*rules.eligibility, *rules.victims.eligible, *rules.victims.forbid)
    return frozenset(n for rule in every if rule.when is not None for n in rule.when.variables)


def matter(new: RuleSet, old: RuleSet) -> frozenset[str]:
    """Variables that both read and that may differ between them."""
    both = read_by(new) & read_by(old) & COUNTED
    return both - {name for name in both if _surely_same(name, new, old)}


def compared(new: RuleSet, old: RuleSet, limits: SolverLimits) -> CountVariables:
    """How the counts compare that both rule sets read."""
    asking = _Asking(new, old, limits)
    relations = tuple(
        (name, _relation(name, new, old, asking)) for name in sorted(matter(new, old))
    )
    return CountVariables(
        relations=relations, solver_seconds=asking.solver_seconds, wall_seconds=asking.wall_seconds
    )


def _surely_same(name: str, new: RuleSet, old: RuleSet) -> bool:
    one, two = new.victims, old.victims
    if name == TERMINATING:
        return one.eligible == two.eligible
    # Where victims use nothing up, a budget breaks for each pod alone.
    alone = one.budgets == two.budgets and not one.budgets.decrement
    return alone or (_counted_alike(new, old) and one.eligible == two.eligible)


def _counted_alike(new: RuleSet, old: RuleSet) -> bool:
    """Budgets are used up in the order of importance."""
    one, two = new.victims, old.victims
    return (one.budgets, one.importance) == (two.budgets, two.importance)


@dataclass(slots=True)
class _Asking:
    new: RuleSet
    old: RuleSet
    limits: SolverLimits
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0

    def within(
        self, inner: RuleSet, outer: RuleSet, which: Callable[[Declarations], list[Value]]
    ) -> bool:
        """Does `outer` allow every pod that `inner` allows, of those meant?"""
        world = Declarations()
        one, two = decided(inner, world).allowed, decided(outer, world).allowed
        meant = which(world)
        answer = solver.ask([one, z3.Not(two), *meant, *world.facts()], limits=self.limits)
        self.solver_seconds += answer.seconds
        self.wall_seconds += answer.wall_seconds
        return answer.status is SolverStatus.NONE


def _leaving(world: Declarations) -> list[Value]:
    return [world.variable("victim.terminatingByPreemption")]


def _relation(name: str, new: RuleSet, old: RuleSet, asking: _Asking) -> Relation:
    if name == VIOLATING and not _counted_alike(new, old):
        return Relation.APART
    which = _leaving if name == TERMINATING else lambda _: []
    more = asking.within(old, new, which)
    fewer = asking.within(new, old, which)
    if more and fewer:
        return Relation.SAME
    return Relation.AT_LEAST if more else Relation.AT_MOST if fewer else Relation.APART
