"""The questions that can be put about rule files, and what the answers mean.

Nothing is called refuted that the product does not replay; nothing is called proved that depends
on more than the assumptions (`world.ASSUMPTIONS`) say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import z3

from policy.cases.running import snapshot_of
from policy.preemption.decide import decide
from policy.proving import solver
from policy.proving.counts import CountVariables, compared, matter
from policy.proving.example import (
    Example,
    ExampleDecision,
    NotWritable,
    assignment,
    is_true,
    written,
)
from policy.proving.example import replayed as replay
from policy.proving.lists import Decided, decided, decides
from policy.proving.smallest import wishes
from policy.proving.solver import SolverAnswer, SolverLimits, SolverStatus
from policy.proving.terms import Translator
from policy.proving.world import Declarations, Value
from policy.rules.expressions import (
    CONDITION,
    Context,
    Expression,
    ExpressionError,
    compile_expression,
)
from policy.rules.ruleset import Rule, RuleSet

INVERSION: Final = "victim.priority >= preemptor.priority"


class ProvingError(Exception):
    """A question that cannot be put; `help` says what to do."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class Proof(StrEnum):
    """What became of a claim."""

    PROVED = "proved"
    BUDGETS = "proved where budgets count the same"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenClaim:
    """One claim and what became of it."""

    claim: str
    verdict: Proof
    detail: str = ""  #: why it is unknown, or which rules are meant
    example: Example | None = None  #: of a refuted claim
    sides: tuple[tuple[str, ExampleDecision], ...] = ()  #: what each rule set does with the example
    not_understood: tuple[str, ...] = ()  #: parts whose value may be anything
    solver_seconds: float = 0.0
    wall_seconds: float = 0.0


def load_condition(source: str) -> Expression:
    """The condition of `never`, over the variables of forbid rules. Raises `ProvingError`."""
    try:
        return compile_expression(source, context=Context.FORBID, expected=CONDITION)
    except ExpressionError as exc:
        first = exc.complaints[0]
        raise ProvingError(f"`{source}`: {first.message}", help=first.help or "") from exc


def no_inversion(rules: RuleSet, limits: SolverLimits) -> ProvenClaim:
    """No victim has a priority equal to or higher than the preemptor's."""
    claim = "no victim of equal or higher priority"
    return replace(never(rules, load_condition(INVERSION), limits), claim=claim)


def never(rules: RuleSet, unwanted: Expression, limits: SolverLimits) -> ProvenClaim:
    """No victim is taken for which the condition is true."""
    world = Declarations()
    one = decided(rules, world)
    term = Translator(world).condition(unwanted)
    claim = f"never: {unwanted.source}"
    question = _Question(
        claim=claim,
        world=world,
        formulas=(one.taken, term.value, z3.Not(term.error)),
        note=f"no victim may be taken where {' '.join(unwanted.source.split())}",
    )
    answer = question.ask(limits)
    if answer.status is not SolverStatus.SOME:
        return question.finding(answer)
    example = question.example(answer)
    if isinstance(example, str):
        return question.unknown(answer, example)
    side = replay(example, rules)
    if side.taken and is_true(example, rules, unwanted):
        return question.refuted(answer, example, ((rules.name, side),))
    return question.unknown(answer, _NOT_REPLAYED)


def at_least(
    rules: RuleSet, other: RuleSet, limits: SolverLimits, *, named: str = ""
) -> ProvenClaim:
    """Every pod that `rules` take, for whatever preemptor, `other` takes as well."""
    claim = f"at least as protective as {named or other.name}"
    found = _at_least(rules, other, limits, claim, CountVariables(relations=()))
    if found.verdict is Proof.REFUTED or not matter(rules, other):
        return found
    counts = compared(rules, other, limits)
    apart = found
    if counts.apart:
        apart = _at_least(rules, other, limits, claim, counts)
        apart = replace(
            apart,
            solver_seconds=found.solver_seconds + apart.solver_seconds,
            wall_seconds=found.wall_seconds + apart.wall_seconds,
        )
    apart = replace(
        apart,
        solver_seconds=apart.solver_seconds + counts.solver_seconds,
        wall_seconds=apart.wall_seconds + counts.wall_seconds,
    )
    if apart.verdict is Proof.UNKNOWN and found.verdict is Proof.PROVED:
        listed = " and ".join(f"`{name}`" for name in sorted(counts.apart))
        detail = (
            f"{listed} is counted among the pods that a rule set allows, and these differ: "
            "proved only for where both count the same"
        )
        return replace(apart, verdict=Proof.BUDGETS, detail=detail)
    return apart


def _at_least(
    rules: RuleSet, other: RuleSet, limits: SolverLimits, claim: str, counts: CountVariables
) -> ProvenClaim:
    world = Declarations(apart=counts.apart)
    one, two = decided(rules, world, "new"), decided(other, world, "old")
    question = _Question(
        claim=claim,
        world=world,
        formulas=(one.taken, z3.Not(two.taken), *counts.facts(world)),
        note=f"`{other.name}` does not take this pod, so `{rules.name}` may not either",
    )
    answer = question.ask(limits)
    if answer.status is not SolverStatus.SOME:
        return question.finding(answer)
    example = question.example(answer)
    if isinstance(example, str):
        return question.unknown(answer, example)
    new, old = replay(example, rules), replay(example, other)
    if new.taken and not old.taken:
        return question.refuted(answer, example, ((rules.name, new), (other.name, old)))
    return question.unknown(answer, _NOT_REPLAYED)


def same(rules: RuleSet, other: RuleSet, limits: SolverLimits, *, named: str = "") -> ProvenClaim:
    """Both take the same pods, for whatever preemptor."""
    claim = f"takes the same victims as {named or other.name}"
    forth = at_least(rules, other, limits)
    back = forth if forth.verdict is Proof.REFUTED else at_least(other, rules, limits)
    order = (Proof.REFUTED, Proof.UNKNOWN, Proof.BUDGETS, Proof.PROVED)
    worst = min((forth, back), key=lambda finding: order.index(finding.verdict))
    return replace(worst, claim=claim)


# -- rules that never decide ---------------------------------------------------------------------


def no_dead_rule(rules: RuleSet, limits: SolverLimits) -> ProvenClaim:
    """Every rule decides somewhere; refuted where one is proved never to be the first to hold."""
    found = list(dead(rules, limits))
    never_first = [f"`{r.id}` ({s})" for s, r, f in found if f.verdict is Proof.REFUTED]
    unknown = [f"`{r.id}`: {f.detail}" for _, r, f in found if f.verdict is Proof.UNKNOWN]
    details = [f"never decides: {', '.join(never_first)}"] if never_first else []
    details += [f"not known: {'; '.join(unknown)}"] if unknown else []
    return ProvenClaim(
        claim="every rule decides somewhere",
        verdict=Proof.REFUTED if never_first else Proof.UNKNOWN if unknown else Proof.PROVED,
        detail="; ".join(details),
        not_understood=tuple(sorted({p for _, _, f in found for p in f.not_understood})),
        solver_seconds=sum(f.solver_seconds for _, _, f in found),
        wall_seconds=sum(f.wall_seconds for _, _, f in found),
    )


def dead(rules: RuleSet, limits: SolverLimits) -> Iterator[tuple[str, Rule, ProvenClaim]]:
    """Each rule with its section: proved dead, decides in an example, or unknown.

    The verdict is that of the claim `the rule decides somewhere`.
    """
    for section, listed in (
        ("eligibility", rules.eligibility),
        ("victims.eligible", rules.victims.eligible),
        ("victims.forbid", rules.victims.forbid),
    ):
        for place, rule in enumerate(listed):
            yield section, rule, _alive(rules, section, place, rule, limits)


def _alive(
    rules: RuleSet, section: str, place: int, rule: Rule, limits: SolverLimits
) -> ProvenClaim:
    world = Declarations()
    one = decided(rules, world)
    question = _Question(
        claim=f"rule `{rule.id}` decides somewhere",
        world=world,
        formulas=_first_to_hold(one, section, place),
        note=f"`{rule.id}` decides",
    )
    answer = question.ask(replace(limits, shrink_seconds=min(limits.shrink_seconds, 1.0)))
    if answer.status is SolverStatus.NONE:
        detail = "on no cluster is it the first rule that holds"
        return replace(question.finding(answer), verdict=Proof.REFUTED, detail=detail)
    if answer.status is SolverStatus.UNKNOWN:
        return question.finding(answer)
    example = question.example(answer)
    if isinstance(example, str):
        return question.unknown(answer, example)
    side = replay(example, rules)
    if (side.section, side.rule) == (section, rule.id) or _allows(example, rules, section, rule):
        return replace(question.finding(answer), verdict=Proof.PROVED, example=example)
    return question.unknown(answer, _NOT_REPLAYED)


def _allows(example: Example, rules: RuleSet, section: str, rule: Rule) -> bool:
    """An eligibility rule that lets the preemptor preempt: the decision's own trace names it."""
    decision = decide(snapshot_of(example.case, rules), rules, example.case.preemptor, seed=0)
    fired = {(f.section, f.rule, f.verdict) for f in decision.trace.rules}
    return (section, rule.id, rule.verdict.value) in fired


def _first_to_hold(one: Decided, section: str, place: int) -> tuple[Value, ...]:
    if section == "eligibility":
        return (decides(one.eligibility, place),)
    if section == "victims.eligible":
        return (one.may_preempt, decides(one.eligible, place))
    return (one.may_preempt, one.allowed, decides(one.forbid, place))


# -- one question --------------------------------------------------------------------------------

_NOT_REPLAYED: Final = "the solver names values, but the product decides otherwise on them"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Are there values under which all formulas hold? Then the claim is refuted."""

    claim: str
    world: Declarations
    formulas: Sequence[Value]
    note: str

    def ask(self, limits: SolverLimits) -> SolverAnswer:
        facts = self.world.facts()
        return solver.ask([*self.formulas, *facts], lambda: wishes(self.world), limits)

    def example(self, answer: SolverAnswer) -> Example | str:
        """The case of the solver's values, or why there is none."""
        try:
            return written(assignment(self.world, answer.values, "new"), self.note)
        except NotWritable as signal:
            return f"the solver names values that no case can hold: {signal}"

    def finding(self, answer: SolverAnswer) -> ProvenClaim:
        verdict = Proof.PROVED if answer.status is SolverStatus.NONE else Proof.UNKNOWN
        return ProvenClaim(
            claim=self.claim,
            verdict=verdict,
            detail=answer.reason,
            not_understood=tuple(sorted({part.text for part in self.world.opaque.values()})),
            solver_seconds=answer.seconds,
            wall_seconds=answer.wall_seconds,
        )

    def unknown(self, answer: SolverAnswer, detail: str) -> ProvenClaim:
        return replace(self.finding(answer), verdict=Proof.UNKNOWN, detail=detail)

    def refuted(
        self, answer: SolverAnswer, example: Example, sides: tuple[tuple[str, ExampleDecision], ...]
    ) -> ProvenClaim:
        finding = replace(self.finding(answer), verdict=Proof.REFUTED)
        return replace(finding, example=example, sides=sides)
