"""The scorer `rule` against a plain twin: generated expressions, one node at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import RuleSet, Snapshot
from policy.preemption.placing import place, values, without_value
from tests.differential.test_scoring import (
    NOW,
    Manifest,
    Plain,
    amount,
    asked,
    clusters,
    incoming,
)

EMPTY = 2**31  #: `node.lowestPriority` of a node without pods


class NoValue(Exception):
    """The expression has no value on this node."""


Node = dict[str, Any]
"""What an expression sees of one node and the pod, by the name of the variable."""


@dataclass(frozen=True)
class Said:
    """An expression: as a rule file writes it, and in plain Python."""

    text: str
    value: Callable[[Node], Any]

    def __repr__(self) -> str:
        return self.text


def seen(plain: Plain, node: Manifest) -> Node:
    pods = plain.on(node)
    room = node["status"]["allocatable"]
    return {
        "node.name": node["metadata"]["name"],
        "node.labels": node["metadata"]["labels"],
        "node.unschedulable": node["spec"].get("unschedulable", False),
        "node.cpuMilli": amount(room["cpu"]),
        "node.podCount": len(pods),
        "node.lowestPriority": min((p["spec"]["priority"] for p in pods), default=EMPTY),
        "preemptor.priority": plain.new["spec"]["priority"],
        "preemptor.cpuMilli": asked(plain.new, "cpu", 0),
    }


# --- expressions ---------------------------------------------------------------------------------


def variable(name: str) -> Said:
    return Said(name, lambda node: node[name])


def truncated(a: int, b: int) -> int:
    """Division towards zero, as CEL has it."""
    if b == 0:
        raise NoValue
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def rest(a: int, b: int) -> int:
    return a - b * truncated(a, b)


def either(one: Said, other: Said, node: Node, *, decides: bool) -> bool:
    """`||` where true decides, `&&` where false does: also beside what has no value."""
    found: list[bool | None] = []
    for side in (one, other):
        try:
            found.append(side.value(node))
        except NoValue:
            found.append(None)
    if decides in found:
        return decides
    if None in found:
        raise NoValue
    return not decides


INTS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "/": truncated,
    "%": rest,
}
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
NUMBERS = ["node.cpuMilli", "node.podCount", "node.lowestPriority"]
NUMBERS += ["preemptor.priority", "preemptor.cpuMilli"]
NAMED = [variable(name) for name in NUMBERS]


def less(one: Said, by: int) -> Said:
    return Said(f"({one.text} - {by})", lambda node: one.value(node) - by)


DIVISORS = [less(one, by) for one in NAMED for by in (0, 1, 2)]


def label_is(key: str, wanted: str) -> Said:
    return Said(
        f"node.labels['{key}'] == '{wanted}'",
        lambda node: node["node.labels"].get(key, "") == wanted,
    )


def has_label(key: str) -> Said:
    return Said(f"'{key}' in node.labels", lambda node: key in node["node.labels"])


def number(key: str) -> Said:
    """A label as a number; one that is missing, or no number, has no value."""

    def value(node: Node) -> int:
        try:
            return int(node["node.labels"].get(key, ""))
        except ValueError:
            raise NoValue from None

    return Said(f"int(node.labels['{key}'])", value)


TRUTHS = [
    variable("node.unschedulable"),
    *(label_is("zone", z) for z in "abc"),
    *(label_is("rack", r) for r in "12"),
    *(has_label(key) for key in ("zone", "rack", "none")),
    Said("node.name > 'n2'", lambda node: node["node.name"] > "n2"),
]


@st.composite
def ints(draw: st.DrawFn, depth: int) -> Said:
    form = draw(st.integers(0, 5 if depth else 2))
    if form == 0:
        literal = draw(st.integers(-30, 130))
        return Said(f"({literal})", lambda _: literal)
    if form == 1:
        return draw(st.sampled_from(NAMED))
    if form == 2:
        return number(draw(st.sampled_from(["rack", "zone"])))
    if form == 3:
        condition, then, other = (
            draw(bools(depth - 1)),
            draw(ints(depth - 1)),
            draw(ints(depth - 1)),
        )
        return Said(
            f"({condition.text} ? {then.text} : {other.text})",
            lambda node: (then if condition.value(node) else other).value(node),
        )
    operator = draw(st.sampled_from(sorted(INTS)))
    left = draw(ints(depth - 1))
    # A division by what is always zero is refused when the file is loaded.
    right = draw(st.sampled_from(DIVISORS) if operator in "/%" else ints(depth - 1))
    return Said(
        f"({left.text} {operator} {right.text})",
        lambda node: INTS[operator](left.value(node), right.value(node)),
    )


@st.composite
def bools(draw: st.DrawFn, depth: int) -> Said:
    form = draw(st.integers(0, 4 if depth else 0))
    if form == 0:
        return draw(st.sampled_from(TRUTHS))
    if form == 1:
        one = draw(bools(depth - 1))
        return Said(f"!({one.text})", lambda node: not one.value(node))
    if form == 2:
        operator = draw(st.sampled_from(["&&", "||"]))
        one, other = draw(bools(depth - 1)), draw(bools(depth - 1))
        return Said(
            f"({one.text} {operator} {other.text})",
            lambda node: either(one, other, node, decides=operator == "||"),
        )
    operator = draw(st.sampled_from(sorted(COMPARED)))
    left, right = draw(st.sampled_from(NAMED)), draw(ints(depth - 1))
    return Said(
        f"({left.text} {operator} {right.text})",
        lambda node: COMPARED[operator](left.value(node), right.value(node)),
    )


# --- the twin ------------------------------------------------------------------------------------


def score(said: Said, node: Node) -> int | None:
    """0 to 100; None where the expression has no value, which counts as 0."""
    try:
        found = said.value(node)
    except NoValue:
        return None
    if isinstance(found, bool):
        return 100 if found else 0
    return min(max(int(found), 0), 100)


def rules_of(said: list[Said]) -> RuleSet:
    """A rule set that scores by these expressions only, each heavier than the one before."""
    scorers = [
        {"scorer": f"rule/r{i}", "score": one.text, "weight": i + 1} for i, one in enumerate(said)
    ]
    return RuleSet.load("kube-1.36", overrides={"scoring": scorers})


@st.composite
def varied(draw: st.DrawFn) -> list[Manifest]:
    """Clusters of the other scorers' test, with priorities and cordoned nodes."""
    objects = draw(clusters())
    for one in objects:
        if one["kind"] == "Pod":
            one["spec"]["priority"] = draw(st.sampled_from([-5, 0, 1, 7, 40, 1000]))
        elif one["kind"] == "Node" and draw(st.integers(0, 3)) == 0:
            one["spec"]["unschedulable"] = True
    return objects


@settings(max_examples=100, deadline=None)
@given(varied(), st.lists(bools(3) | ints(3), min_size=1, max_size=3), st.data())
def test_the_expressions_give_what_their_twin_gives(
    objects: list[Manifest], said: list[Said], data: st.DataObject
) -> None:
    """Every value on every node, the node that is taken, and which nodes had no value."""
    names = [o["metadata"]["name"] for o in objects if o["kind"] == "Node"]
    feasible = sorted(data.draw(st.sets(st.sampled_from(names), min_size=1)))
    plain = Plain(objects, feasible)
    scores = [[score(one, seen(plain, node)) for node in plain.nodes] for one in said]
    sums = [
        sum((i + 1) * (of_one[n] or 0) for i, of_one in enumerate(scores))
        for n in range(len(feasible))
    ]
    missing = {
        f"rule/r{i}": (of_one.count(None), feasible[of_one.index(None)])
        for i, of_one in enumerate(scores)
        if None in of_one
    }
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    uses = rules_of(said).scoring
    nodes = np.array([snapshot.nodes.index[n] for n in feasible], dtype=np.int64)
    pod = incoming(snapshot)
    found = [None if one is None else one.tolist() for one in values(pod, uses, nodes)]
    unsaid = {
        fired.rule: (fired.inputs["nodes"], fired.inputs["first"])
        for fired in without_value(pod, uses, nodes)
    }
    chosen = snapshot.nodes.names[place(pod, uses, nodes).node]
    assert (found, chosen, unsaid) == (
        [[value or 0 for value in of_one] for of_one in scores],
        feasible[sums.index(max(sums))],
        missing,
    )
