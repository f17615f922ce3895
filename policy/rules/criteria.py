"""What the values of a rule set's ranking criteria are, from the stored text of the rule set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from policy.rules.expressions.variables import VARIABLES, ValueType


def instant_criteria(text: str) -> frozenset[str]:
    """Ids of the criteria whose values are instants, in milliseconds since 1970 UTC.

    text: the canonical form of the rule set. Raises RulesError where it cannot be read.
    """
    criteria = _criteria(text)
    types = {name: _type_of_variable(criterion) for name, criterion in criteria.items()}
    if criteria and None not in types.values():
        return frozenset(name for name, of in types.items() if of is ValueType.TIMESTAMP)
    # Only the type checker knows the type of an expression that computes something, and only the
    # loader says what is wrong with a text.
    from policy.rules.ruleset import RuleSet

    return frozenset(
        criterion.id
        for criterion in RuleSet.from_canonical(text).ranking
        if criterion.expression is not None and criterion.expression.type is ValueType.TIMESTAMP
    )


def first_listed_criteria(text: str) -> frozenset[str]:
    """Ids of the criteria that compare the priority of the first listed victim.

    That is the highest priority where the rule set lists victims by importance again; elsewhere
    (kube-scheduler up to 1.28, and 1.31.2) a budget may put a less important one first. Empty
    where the first listed victim has the highest priority anyway.
    """
    try:
        sorted_again = json.loads(text)["spec"]["victims"]["order"] == "by-importance"
    except (ValueError, LookupError, TypeError):
        return frozenset()
    if sorted_again:
        return frozenset()
    return frozenset(
        name
        for name, criterion in _criteria(text).items()
        if "candidate.topPriority" in str(criterion.get("minimize") or criterion.get("maximize"))
    )


def _criteria(text: str) -> dict[str, Mapping[str, Any]]:
    """The criteria by id; none where the text is not that of a rule set."""
    try:
        return {criterion["id"]: criterion for criterion in json.loads(text)["spec"]["ranking"]}
    except (ValueError, LookupError, TypeError):
        return {}


def _type_of_variable(criterion: Mapping[str, Any]) -> ValueType | None:
    """The type of a criterion that is a variable or a pick; None where it is neither."""
    if "pick" in criterion:
        return ValueType.STRING
    variable = VARIABLES.get(criterion.get("minimize") or criterion.get("maximize") or "")
    return None if variable is None else variable.type
