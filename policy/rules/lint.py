"""What is allowed in a rule set, but hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from policy.rules.expressions import (
    CONDITION,
    MEANING,
    VARIABLES,
    Context,
    Expression,
    OnError,
    Shape,
    compile_expression,
)
from policy.rules.expressions.implication import follows, impossible, only_lower
from policy.rules.group_rules import GroupRules, OrdinaryVictims
from policy.rules.ruleset import RankingCriterion, Rule, RuleSet, Verdict
from policy.text.printable import printable


class WarningKind(StrEnum):
    """Kinds of warnings; the values are stable."""

    UNREACHABLE = "unreachable"  # an earlier rule decides wherever this one would
    NEVER_HOLDS = "never-holds"  # the condition is false whatever the values are
    CANNOT_DECIDE = "cannot-decide"  # an order key that is equal for all that reach it
    ORDER_NOT_UNIQUE = "order-not-unique"  # ties of the importance order stay open
    ROW_BY_ROW = "row-by-row"  # an expression without an array form: slow
    NO_WHY = "no-why"  # a rule that does not explain itself
    NO_REASON = "no-reason"  # a refusal that the audit cannot explain
    NONE_ALLOWED = "none-allowed"  # no rule lets any pod be a victim
    NO_VALUE = "no-value"  # ordinary values may leave the expression without a value
    NOT_LOWER = "not-lower"  # an `allow` takes pods of the preemptor's priority and above
    BEHIND_BUDGETS = "behind-budgets"  # a ranking key that decides among equals only
    SAMPLED = "sampled"  # a ranking key that sees a part of the nodes only
    UNTESTED = "untested"  # no case beside the rules shows what the rule does


@dataclass(frozen=True, slots=True, kw_only=True)
class LintWarning:
    """One finding, with the place of the rule that it is about."""

    finding: StrEnum  #: `WarningKind`, or of batch rules `BatchFinding`
    place: str  #: `file:line`
    rule: str
    message: str
    help: str

    def __str__(self) -> str:
        text = printable(f"{self.place}: {self.message} ({self.finding.value})")
        return f"{text}\n  help: {printable(self.help)}"


UNIQUE = frozenset({"victim.key", "victim.uid"})
"""Variables of which no two pods share a value."""

KUBERNETES_RANKS_BY = frozenset(
    {
        "candidate.pdbViolations",
        "candidate.topPriority",
        "candidate.highestPriority",
        "candidate.prioritySum",
        "candidate.victimCount",
        "candidate.earliestStartOfTopPriority",
        "candidate.needsNoVictim",
    }
)
"""What kube-scheduler's own criteria read; a criterion that reads anything else is one's own."""


def lint(rule_set: RuleSet) -> tuple[LintWarning, ...]:
    """All warnings about a rule set, in the order of its rules."""
    linter = _Linter(rule_set)
    return tuple(linter.run())


@dataclass(frozen=True, slots=True)
class _Linter:
    rules: RuleSet

    def run(self) -> Iterator[LintWarning]:
        victims = self.rules.victims
        yield from self._decisions(self.rules.eligibility)
        yield from self._decisions(victims.eligible)
        if not any(rule.verdict is Verdict.ALLOW for rule in victims.eligible):
            yield self._warn(
                WarningKind.NONE_ALLOWED,
                victims.eligible[0].id,
                "no rule allows any pod to be a victim",
                "add a rule with `verdict: allow`",
            )
        yield from self._not_lower()
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
        yield from self._own_ranking()
        if self.rules.groups is not None:
            yield from self._of_groups(self.rules.groups)
        yield from self._without_value()
        yield from self._row_by_row()
        yield from self._silent()

    def _warn(self, finding: WarningKind, rule: str, message: str, advice: str) -> LintWarning:
        place = self.rules.origins.get(rule, self.rules.name)
        return LintWarning(finding=finding, place=place, rule=rule, message=message, help=advice)

    def _decisions(self, rules: Sequence[Rule]) -> Iterator[LintWarning]:
        """Lists in which the first rule that holds decides."""
        before: list[tuple[Rule, Expression | None]] = []
        for rule in rules:
            when = None if _constant(rule.when) is True else rule.when
            if _never_holds(rule):
                continue  # warned of below; it takes nothing from the others
            earlier = next(
                (
                    other.id
                    for other, condition in before
                    if follows(when, condition) and not _left_over(rule, other)
                ),
                None,
            )
            if earlier is not None:
                yield self._warn(
                    WarningKind.UNREACHABLE,
                    rule.id,
                    f"rule `{rule.id}` is never reached: `{earlier}` decides before it",
                    "remove it, or move it up",
                )
            else:
                before.append((rule, when))
        yield from self._conditions(rules)

    def _conditions(self, rules: Sequence[Rule]) -> Iterator[LintWarning]:
        for rule in rules:
            if _never_holds(rule):
                yield self._warn(
                    WarningKind.NEVER_HOLDS,
                    rule.id,
                    f"the condition of rule `{rule.id}` never holds",
                    "remove the rule, or correct its `when`",
                )

    def _not_lower(self) -> Iterator[LintWarning]:
        """Rules that let a preemptor evict what is as important as itself, or more."""
        everyone_else = compile_expression(
            "victim.priority >= preemptor.priority", context=Context.VICTIMS, expected=CONDITION
        )
        for rule in self.rules.victims.eligible:
            if rule.verdict is Verdict.DENY:
                if follows(everyone_else, rule.when) and _covers_errors(rule):
                    return  # what comes after sees lower priorities only
            elif not only_lower(rule.when) and not _never_holds(rule):
                yield self._warn(
                    WarningKind.NOT_LOWER,
                    rule.id,
                    f"rule `{rule.id}` allows victims of the preemptor's own priority and above",
                    "add `victim.priority < preemptor.priority` to its `when`",
                )

    def _of_groups(self, groups: GroupRules) -> Iterator[LintWarning]:
        """The section `groups`; units that are equal leave no tie, they stand as they are found."""
        units = groups.victims
        yield from self._decisions(groups.eligibility)
        yield from self._decisions(units.eligible)
        if not any(rule.verdict is Verdict.ALLOW for rule in units.eligible):
            yield self._warn(
                WarningKind.NONE_ALLOWED,
                units.eligible[0].id,
                "no rule allows any unit to be preempted",
                "add a rule with `verdict: allow`",
            )
        lower = compile_expression(
            "unit.priority < group.priority", context=Context.UNITS, expected=CONDITION
        )
        for rule in units.eligible:
            allows = rule.verdict is Verdict.ALLOW and not _never_holds(rule)
            if allows and not follows(rule.when, lower):
                yield self._warn(
                    WarningKind.NOT_LOWER,
                    rule.id,
                    f"rule `{rule.id}` allows units of the group's own priority and above",
                    "add `unit.priority < group.priority` to its `when`",
                )
        keys = [(key.id, key.expression) for key in units.importance]
        yield from self._order(keys, needs_unique=False)
        ordinary = groups.units.ordinary
        if not groups.units.whole_groups and ordinary is not OrdinaryVictims.PODS:
            yield self._warn(
                WarningKind.CANNOT_DECIDE,
                "units",
                f"`ordinary: {ordinary.value}` can never decide: no group leaves as a whole where "
                "`wholeGroups` is false",
                "remove it, or set `wholeGroups: true`",
            )

    def _own_ranking(self) -> Iterator[LintWarning]:
        """Criteria of one's own that decide less than they seem to."""
        sampled = self.rules.candidates.min_percentage
        budgets: RankingCriterion | None = None
        for criterion in self.rules.ranking:
            if criterion.expression is None:
                continue
            varying = {v for v in criterion.expression.variables if _varies(v)}
            own = not varying <= KUBERNETES_RANKS_BY
            if own and budgets is not None:
                yield self._warn(
                    WarningKind.BEHIND_BUDGETS,
                    criterion.id,
                    f"`{criterion.id}` compares only nodes that are equal in `{budgets.id}` and "
                    "whatever else stands before it",
                    f"insert it `before: {budgets.id}` if it matters more",
                )
            if own and sampled < 100:
                yield self._warn(
                    WarningKind.SAMPLED,
                    criterion.id,
                    f"`{criterion.id}` compares only the nodes that are examined: the search may "
                    f"stop after {sampled} % of the candidates",
                    "set `candidates: {minPercentage: 100}` to compare all nodes",
                )
            if "candidate.pdbViolations" in criterion.expression.variables:
                budgets = budgets or criterion

    def _without_value(self) -> Iterator[LintWarning]:
        for rule in _every_rule(self.rules):
            if rule.when is not None and not rule.says_on_error:
                does = "holds" if rule.on_error is OnError.HOLDS else "is skipped"
                yield from self._may_fail(
                    rule.id,
                    rule.when,
                    f"rule `{rule.id}` {does} then",
                    "exclude such values in the `when`, or say what you mean with `onError: holds` "
                    "or `onError: skip`",
                )
        for name, expression in _order_keys(self.rules):
            meaning = MEANING[expression.context]
            yield from self._may_fail(name, expression, meaning, "exclude such values")

    def _may_fail(
        self, name: str, expression: Expression, then: str, advice: str
    ) -> Iterator[LintWarning]:
        likely = dict.fromkeys(hazard.what for hazard in expression.hazards if hazard.likely)
        if likely:
            yield self._warn(
                WarningKind.NO_VALUE,
                name,
                f"`{name}` may have no value ({', '.join(likely)}): {then}",
                advice,
            )

    def _order(
        self, keys: Sequence[tuple[str, Expression]], *, needs_unique: bool
    ) -> Iterator[LintWarning]:
        seen: dict[str, str] = {}
        unique: str | None = None
        for name, expression in keys:
            reason = None
            if unique is not None:
                reason = f"`{unique}` is unique and leaves no tie"
            elif expression.source in seen:
                reason = f"`{seen[expression.source]}` has compared the same before"
            elif not any(map(_varies, expression.variables)):
                reason = f"`{expression}` is the same for all"
            if reason is not None:
                yield self._warn(
                    WarningKind.CANNOT_DECIDE,
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
                WarningKind.ORDER_NOT_UNIQUE,
                name,
                "the importance order leaves ties open",
                "end it with `- ascending: victim.key`",
            )

    def _row_by_row(self) -> Iterator[LintWarning]:
        for name, expression in _named_expressions(self.rules):
            if not expression.vectorised:
                yield self._warn(
                    WarningKind.ROW_BY_ROW,
                    name,
                    f"`{name}` is evaluated row by row: {'; '.join(expression.row_wise_reasons)}",
                    "slow on large clusters: use whole numbers, simple comparisons of names, "
                    "and labels instead of patterns",
                )

    def _silent(self) -> Iterator[LintWarning]:
        for rule in _every_rule(self.rules):
            if not rule.why:
                yield self._no_why(rule.id)
            if rule.verdict is Verdict.DENY and not rule.reason:
                yield self._warn(
                    WarningKind.NO_REASON,
                    rule.id,
                    f"rule `{rule.id}` refuses without a `reason`",
                    "the audit shows the reason beside the pod",
                )
        for criterion in self.rules.ranking:
            if not criterion.why:
                yield self._no_why(criterion.id)
        for use in self.rules.scoring:
            if use.expression is not None and not use.why:
                yield self._no_why(use.name)

    def _no_why(self, rule: str) -> LintWarning:
        return self._warn(
            WarningKind.NO_WHY,
            rule,
            f"rule `{rule}` has no `why`",
            "say in one sentence what would go wrong without it",
        )


def _left_over(later: Rule, earlier: Rule) -> bool:
    """May the later rule hold without a value where the earlier one, without one, is skipped?"""
    return (
        later.on_error is OnError.HOLDS
        and earlier.on_error is OnError.SKIP
        and not (later.when is None or later.when.total)
        and not (earlier.when is None or earlier.when.total)
    )


def _covers_errors(rule: Rule) -> bool:
    return rule.when is None or rule.when.total or rule.on_error is OnError.HOLDS


def _varies(variable: str) -> bool:
    return VARIABLES[variable].shape is not Shape.SCALAR


def _constant(when: Expression | None) -> bool | int | str | None:
    return None if when is None else when.constant


def _never_holds(rule: Rule) -> bool:
    when = rule.when
    if when is None or (rule.on_error is OnError.HOLDS and not when.total):
        return False
    return impossible(when) if when.constant is None else when.constant is not True


def _named_expressions(rules: RuleSet) -> Iterator[tuple[str, Expression]]:
    for rule in _every_rule(rules):
        if rule.when is not None:
            yield rule.id, rule.when
    yield from _order_keys(rules)
    for use in rules.scoring:
        if use.expression is not None:
            yield use.name, use.expression


def _every_rule(rules: RuleSet) -> Iterator[Rule]:
    """The rules of all sections, those of `groups` last."""
    yield from (*rules.eligibility, *rules.victims.eligible, *rules.victims.forbid)
    if rules.groups is not None:
        yield from (*rules.groups.eligibility, *rules.groups.victims.eligible)


def _order_keys(rules: RuleSet) -> Iterator[tuple[str, Expression]]:
    for key in rules.victims.importance:
        yield key.id, key.expression
    for key in rules.groups.victims.importance if rules.groups is not None else ():
        yield key.id, key.expression
    for criterion in rules.ranking:
        if criterion.expression is not None:
            yield criterion.id, criterion.expression
