"""What the rules of a rule set decide together: the first one that holds, and what errors mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import z3

from policy.proving.terms import ALWAYS, NEVER, Translator, takes_effect
from policy.proving.world import Declarations, Value
from policy.rules.ruleset import Rule, RuleSet, Verdict


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Decided:
    """One rule set in a world: the rules' conditions and what follows from them."""

    eligibility: tuple[Value, ...]  #: does each rule hold?
    eligible: tuple[Value, ...]
    forbid: tuple[Value, ...]
    may_preempt: Value
    allowed: Value  #: may the pod be a victim, by `victims.eligible`?
    forbidden: Value

    @property
    def taken(self) -> Value:
        """The preemptor may preempt, and the pod may be a victim."""
        return z3.And(self.may_preempt, self.allowed, z3.Not(self.forbidden))


def decided(rules: RuleSet, world: Declarations, side: str = "") -> Decided:
    """Everything that the rules say of one preemptor and one pod on a node."""
    translator = Translator(world, side)

    def hold(section: Sequence[Rule]) -> tuple[Value, ...]:
        return tuple(
            ALWAYS
            if rule.when is None
            else takes_effect(translator.condition(rule.when), rule.on_error)
            for rule in section
        )

    victims = rules.victims
    eligibility, eligible = hold(rules.eligibility), hold(victims.eligible)
    forbid = hold(victims.forbid)
    return Decided(
        eligibility=eligibility,
        eligible=eligible,
        forbid=forbid,
        may_preempt=_first(rules.eligibility, eligibility),
        allowed=_first(victims.eligible, eligible),
        forbidden=z3.Or(*forbid) if forbid else NEVER,
    )


def _first(rules: Sequence[Rule], holds: Sequence[Value]) -> Value:
    """Does the first rule that holds allow? None allows where none holds."""
    allowed = NEVER
    for rule, holding in zip(reversed(rules), reversed(holds), strict=True):
        allowed = z3.If(holding, ALWAYS if rule.verdict is Verdict.ALLOW else NEVER, allowed)
    return z3.simplify(allowed)


def decides(holds: Sequence[Value], place: int) -> Value:
    """Is the rule in this place the first that holds?"""
    return z3.And(holds[place], *(z3.Not(earlier) for earlier in holds[:place]))
