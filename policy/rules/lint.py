"""What is allowed in a rule set, but hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from policy.rules.expressions import VARIABLES, Expression, Shape
from policy.rules.expressions.implication import follows, impossible
from policy.rules.ruleset import Rule, RuleSet, Verdict
from policy.text.printable import printable


class Finding(StrEnum):
    """Kinds of warnings; the values are stable."""

    UNREACHABLE = "unreachable"  # an earlier rule decides wherever this one would
    NEVER_HOLDS = "never-holds"  # the condition is false or an error whatever the values are
    CANNOT_DECIDE = "cannot-decide"  # an order key that is equal for all that reach it
    ORDER_NOT_UNIQUE = "order-not-unique"  # ties of the importance order stay open
    ROW_BY_ROW = "row-by-row"  # an expression without an array form: slow
    NO_WHY = "no-why"  # a rule that does not explain itself
    NO_REASON = "no-reason"  # a refusal that the audit cannot explain
    NOBODY_ALLOWED = "nobody-allowed"  # no rule lets any pod be a victim


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:  # noqa: A001  # the word that users read
    """One finding, with the place of the rule that it is about."""

    finding: Finding
    place: str  #: `file:line`
    rule: str
    message: str
    help: str

    def __str__(self) -> str:
        text = printable(f"{self.place}: {self.message} ({self.finding.value})")
        return f"{text}\n  help: {printable(self.help)}"


UNIQUE = frozenset({"victim.key", "victim.uid"})
"""Variables of which no two pods share a value."""


def lint(rule_set: RuleSet) -> tuple[Warning, ...]:
    """All warnings about a rule set, in the order of its rules."""
    linter = _Linter(rule_set)
    return tuple(linter.run())


@dataclass(frozen=True, slots=True)
class _Linter:
    rules: RuleSet

    def run(self) -> Iterator[Warning]:
        victims = self.rules.victims
        yield from self._decisions(self.rules.eligibility)
        yield from self._decisions(victims.eligible)
        if not any(rule.verdict is Verdict.ALLOW for rule in victims.eligible):
            yield self._warn(
                Finding.NOBODY_ALLOWED,
                victims.eligible[0].id,
                "no rule allows any pod to be a victim",
                "add a rule with `verdict: allow`",
            )
        yield from self._conditions(victims.forbid)
        yield from self._order(
            [(key.id, key.expression) for key in victims.importance], needs_unique=True
        )
        yield from self._order(
            [
                (criterion.id, criterion.expression)
                for criterion in self.rules.ranking
                if criterion.expression is not None
            ],
            needs_unique=False,
        )
        yield from self._row_by_row()
        yield from self._silent()

    def _warn(self, finding: Finding, rule: str, message: str, advice: str) -> Warning:
        place = self.rules.origins.get(rule, self.rules.name)
        return Warning(finding=finding, place=place, rule=rule, message=message, help=advice)

    def _decisions(self, rules: Sequence[Rule]) -> Iterator[Warning]:
        """Lists in which the first rule that holds decides."""
        before: list[tuple[str, Expression | None]] = []
        for rule in rules:
            when = None if _constant(rule.when) is True else rule.when
            if _never_holds(when):
                continue  # warned of below; it takes nothing from the others
            earlier = next((name for name, other in before if follows(when, other)), None)
            if earlier is not None:
                yield self._warn(
                    Finding.UNREACHABLE,
                    rule.id,
                    f"rule `{rule.id}` is never reached: `{earlier}` decides before it",
                    "remove it, or move it up",
                )
            else:
                before.append((rule.id, when))
        yield from self._conditions(rules)

    def _conditions(self, rules: Sequence[Rule]) -> Iterator[Warning]:
        for rule in rules:
            if _never_holds(rule.when):
                constant = rule.when.constant if rule.when is not None else None
                why = f": {constant.error}" if constant is not None and constant.error else ""
                yield self._warn(
                    Finding.NEVER_HOLDS,
                    rule.id,
                    f"the condition of rule `{rule.id}` never holds{why}",
                    "remove the rule, or correct its `when`",
                )

    def _order(
        self, keys: Sequence[tuple[str, Expression]], *, needs_unique: bool
    ) -> Iterator[Warning]:
        seen: dict[str, str] = {}
        unique: str | None = None
        for name, expression in keys:
            reason = None
            if unique is not None:
                reason = f"`{unique}` is unique and leaves no tie"
            elif expression.source in seen:
                reason = f"`{seen[expression.source]}` has compared the same before"
            elif not any(VARIABLES[v].shape is not Shape.SCALAR for v in expression.variables):
                reason = f"`{expression}` is the same for all"
            if reason is not None:
                yield self._warn(
                    Finding.CANNOT_DECIDE,
                    name,
                    f"`{name}` can never decide: {reason}",
                    "remove it",
                )
            seen.setdefault(expression.source, name)
            if needs_unique and expression.source in UNIQUE:
                unique = unique or name
        if needs_unique and unique is None:
            name = keys[-1][0]
            yield self._warn(
                Finding.ORDER_NOT_UNIQUE,
                name,
                "the importance order leaves ties open",
                "end it with `- ascending: victim.key`",
            )

    def _row_by_row(self) -> Iterator[Warning]:
        for name, expression in _named_expressions(self.rules):
            if not expression.vectorised:
                yield self._warn(
                    Finding.ROW_BY_ROW,
                    name,
                    f"`{name}` is evaluated row by row: {'; '.join(expression.row_wise_reasons)}",
                    "slow on large clusters: use whole numbers, simple comparisons of names, "
                    "and labels instead of patterns",
                )

    def _silent(self) -> Iterator[Warning]:
        victims = self.rules.victims
        for rule in (*self.rules.eligibility, *victims.eligible, *victims.forbid):
            if not rule.why:
                yield self._no_why(rule.id)
            if rule.verdict is Verdict.DENY and not rule.reason:
                yield self._warn(
                    Finding.NO_REASON,
                    rule.id,
                    f"rule `{rule.id}` refuses without a `reason`",
                    "the audit shows the reason beside the pod",
                )
        for criterion in self.rules.ranking:
            if not criterion.why:
                yield self._no_why(criterion.id)

    def _no_why(self, rule: str) -> Warning:
        return self._warn(
            Finding.NO_WHY,
            rule,
            f"rule `{rule}` has no `why`",
            "say in one sentence what would go wrong without it",
        )


def _constant(when: Expression | None) -> bool | int | str | None:
    return None if when is None or when.constant is None else when.constant.value


def _never_holds(when: Expression | None) -> bool:
    if when is None:
        return False
    return impossible(when) if when.constant is None else not when.constant.holds


def _named_expressions(rules: RuleSet) -> Iterator[tuple[str, Expression]]:
    for rule in (*rules.eligibility, *rules.victims.eligible, *rules.victims.forbid):
        if rule.when is not None:
            yield rule.id, rule.when
    for key in rules.victims.importance:
        yield key.id, key.expression
    for criterion in rules.ranking:
        if criterion.expression is not None:
            yield criterion.id, criterion.expression
