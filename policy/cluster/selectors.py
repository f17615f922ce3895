"""Label selectors, node selectors and tolerations, as apimachinery evaluates them.

A selector is compiled once and asked often. What a real API server would refuse (`In` without
values, a value that is no label value) compiles to a selector that matches nothing and says so
(`invalid`): the callers differ in what they make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.cluster.names import valid_label_key, valid_label_value
from policy.cluster.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)

Labels = Mapping[str, str]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*")
_INT64: Final = 2**63


def go_integer(text: str) -> int | None:
    """`strconv.ParseInt(text, 10, 64)`; None where it fails."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64 <= value < _INT64 else None


def decimal_integer(text: str) -> int | None:
    """The int64 that the text is as people write it, without `+` or a leading zero; else None."""
    return go_integer(text) if _DECIMAL.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One `key operator values`, already validated."""

    key: str
    operator: str
    values: frozenset[str]
    bound: int = 0  #: of Gt and Lt

    def matches_value(self, value: str | None) -> bool:
        """Does a label with this value (None: no such label) satisfy the requirement?"""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                number = None if value is None else go_integer(value)
                if number is None:
                    return False
                return number > self.bound if self.operator == "Gt" else number < self.bound


def _requirement(
    requirement: LabelSelectorRequirement, *, operators: frozenset[str]
) -> Requirement | None:
    """The compiled requirement, None where apimachinery's NewRequirement gives an error."""
    values = requirement.values or []
    operator = requirement.operator
    bound = 0
    if operator not in operators or not valid_label_key(requirement.key):
        return None
    if operator in {"In", "NotIn"} and not values:
        return None
    if operator in {"Exists", "DoesNotExist"} and values:
        return None
    if operator in {"Gt", "Lt"}:
        number = go_integer(values[0]) if len(values) == 1 else None
        if number is None:
            return None
        bound = number
    if not all(valid_label_value(v) for v in values):
        return None
    return Requirement(
        key=requirement.key, operator=operator, values=frozenset(values), bound=bound
    )


_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NODE_OPERATORS: Final = _LABEL_OPERATORS | {"Gt", "Lt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A compiled label selector: all requirements must hold."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False  #: matches no labels at all (nil or invalid selector)
    invalid: bool = False

    @property
    def empty(self) -> bool:
        """`{}`: matches everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Labels | None) -> bool:
        if self.nothing:
            return False
        get = (labels or {}).get
        return all(r.matches_value(get(r.key)) for r in self.requirements)

    def with_labels(self, labels: Labels) -> Selector:
        """This selector narrowed to the given labels (`matchLabelKeys`)."""
        if self.nothing or not labels:
            return self
        added = tuple(
            Requirement(key=k, operator="In", values=frozenset({v}))
            for k, v in sorted(labels.items())
        )
        return Selector(requirements=self.requirements + added)


NOTHING: Final = Selector(nothing=True)
_INVALID: Final = Selector(nothing=True, invalid=True)


def compile_selector(selector: LabelSelector | None) -> Selector:
    """metav1.LabelSelectorAsSelector: nil selects nothing, `{}` everything."""
    if selector is None:
        return NOTHING
    wanted = [
        LabelSelectorRequirement(key=k, operator="In", values=[v])
        for k, v in (selector.match_labels or {}).items()
    ] + list(selector.match_expressions or [])
    compiled = []
    for requirement in wanted:
        one = _requirement(requirement, operators=_LABEL_OPERATORS)
        if one is None:
            return _INVALID
        compiled.append(one)
    return Selector(requirements=tuple(compiled))


# --- node selectors ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerm:
    """One term of a node selector: labels AND fields; a term that cannot match is left out."""

    labels: tuple[Requirement, ...]
    names: tuple[Requirement, ...]  #: on metadata.name

    def matches(self, *, name: str, labels: Labels) -> bool:
        return all(r.matches_value(labels.get(r.key)) for r in self.labels) and all(
            r.matches_value(name) for r in self.names
        )


def compile_node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """None for a term that matches no node: empty, or with an invalid requirement."""
    expressions = term.match_expressions or []
    fields = term.match_fields or []
    if not expressions and not fields:
        return None
    labels = [_requirement(r, operators=_NODE_OPERATORS) for r in expressions]
    names = []
    for field in fields:
        # Field selectors know one field, two operators, and exactly one value.
        if (
            field.key != "metadata.name"
            or field.operator not in {"In", "NotIn"}
            or len(field.values or []) != 1
        ):
            return None
        names.append(
            Requirement(
                key=field.key, operator=field.operator, values=frozenset(field.values or [])
            )
        )
    if any(r is None for r in labels):
        return None
    return NodeTerm(labels=tuple(r for r in labels if r is not None), names=tuple(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredNodes:
    """`nodeSelector` and required node affinity of a pod, compiled.

    `terms` is None without required affinity; an empty tuple matches no node.
    """

    selector: tuple[tuple[str, str], ...]
    terms: tuple[NodeTerm, ...] | None

    @property
    def unconstrained(self) -> bool:
        return not self.selector and self.terms is None

    def matches(self, *, name: str, labels: Labels) -> bool:
        if any(labels.get(k) != v for k, v in self.selector):
            return False
        return self.terms is None or any(t.matches(name=name, labels=labels) for t in self.terms)


def compile_node_selector(selector: NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    if selector is None:
        return None
    terms = (compile_node_term(t) for t in selector.node_selector_terms or [])
    return tuple(t for t in terms if t is not None)


def required_nodes(pod: Pod) -> RequiredNodes:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return RequiredNodes(
        selector=tuple(sorted((pod.spec.node_selector or {}).items())),
        terms=compile_node_selector(affinity.required if affinity else None),
    )


def required_node_names(pod: Pod) -> frozenset[str] | None:
    """Node names to which required `matchFields` narrow the pod, None where they do not.

    Every term must name nodes (terms are OR-ed); within a term the requirements intersect. An
    empty set means that the terms contradict themselves. Source: NodeAffinity's PreFilter.
    """
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = (affinity.required.node_selector_terms or []) if affinity and affinity.required else []
    names: set[str] | None = None
    for term in terms:
        of_term: set[str] | None = None
        for field in term.match_fields or []:
            if field.key == "metadata.name" and field.operator == "In":
                values = set(field.values or [])
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names = of_term if names is None else names | of_term
    return None if names is None else frozenset(names)


# --- taints ------------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Does the toleration cover the taint?

    `Lt` and `Gt` compare the taint's value with the toleration's. API servers take them from 1.35
    on, where their feature gate is on (KEP-5471, alpha); a pod that has one is compared by it.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Lt" | "Gt":
            bound, value = decimal_integer(toleration.value), decimal_integer(taint.value)
            if bound is None or value is None:
                return False
            return value < bound if toleration.operator == "Lt" else value > bound
    return False


def first_untolerated(
    taints: Iterable[Taint], tolerations: Sequence[Toleration], *, effects: frozenset[str]
) -> Taint | None:
    """The first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


DO_NOT_SCHEDULE: Final = frozenset({"NoSchedule", "NoExecute"})
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
