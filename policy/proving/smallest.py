"""What makes a counterexample easy to read: the usual values first, then round ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import z3

from policy.cluster import times
from policy.proving.patterns import NotTranslatable, text_value
from policy.proving.world import NUMBER, Declarations, Reading, Value, stands_for
from policy.rules.expressions import VARIABLES, ValueType
from policy.rules.expressions.kernels import INT_MAX, INT_MIN

NOW: Final = "2026-01-01T00:00:00Z"
"""When a counterexample takes place, unless the rules read the time."""

DAY_MS: Final = 86_400_000

MOST_CANDIDATES: Final = 24
"""Literals of the rules that are tried for a value; files of hundreds of rules have many more."""

USUAL: Final[Mapping[str, Sequence[str | int | bool]]] = {
    "nominated.node": ("", "n2"),
    "nominated.exists": (False,),
    "nominated.status": ("", "UnschedulableAndUnresolvable", "Unschedulable"),
    "preemptor.preemptionPolicy": ("PreemptLowerPriority", "Never"),
    "victim.preemptionPolicy": ("PreemptLowerPriority", "Never"),
    "preemptor.schedulerName": ("default-scheduler",),
    "victim.schedulerName": ("default-scheduler",),
    "victim.phase": ("Running", "Pending"),
    "victim.qosClass": ("",),
    "victim.started": (True,),
    "victim.name": ("victim", "victim-1"),
    "preemptor.name": ("preemptor", "preemptor-1"),
    "victim.namespace": ("default", "kube-system", "other"),
    "preemptor.namespace": ("default", "other"),
    "victim.owner": ("", "ReplicaSet/web"),
    "preemptor.owner": ("", "ReplicaSet/web"),
    "victim.priorityClassName": ("", "low"),
    "preemptor.priorityClassName": ("", "high"),
    "victim.node": ("n1",),
    "node.name": ("n1",),
    "node.podCount": (1,),
    "cluster.nodeCount": (1, 2),
    "cluster.failedNodeCount": (1, 2),
    "victim.runtimeSeconds": (86_400, 3600, 600, 60, 0),
    "preemptor.waitingSeconds": (60, 0),
}
"""Variable -> values that say nothing, the most ordinary first."""

_FIRST: Final = ("nominated.", "now", "victim.", "preemptor.", "node.", "cluster.")
"""What gives way last where the usual values contradict each other."""


def wishes(world: Declarations) -> list[list[Value]]:
    """Groups of alternatives for `solver.ask`, about everything that the world declares."""
    found: list[list[Value]] = []
    copies = sorted(world.variables, key=_importance)
    groups = [_of_variable(copy, world) for copy in copies]
    # A text that stands for a number has to be a number before anything may be usual.
    for reading in world.readings:
        if reading.function == NUMBER:
            found += _of_reading(reading, world)
    found += [list(candidates) for value, candidates in groups if not z3.is_int(value)]
    for reading in world.readings:
        if reading.function != NUMBER:
            found += _of_reading(reading, world)
    found += [list(candidates) for value, candidates in groups if z3.is_int(value)]
    return [group for group in found if group]


def _importance(copy: str) -> tuple[int, str]:
    place = next((i for i, start in enumerate(_FIRST) if copy.startswith(start)), len(_FIRST))
    return place, copy


def _of_variable(copy: str, world: Declarations) -> tuple[Value, Iterator[Value]]:
    name, value = copy.partition("@")[0], world.variables[copy]
    return value, _candidates(name, value, world)


def _candidates(name: str, value: Value, world: Declarations) -> Iterator[Value]:
    for usual in USUAL.get(name, ()):
        yield value == _literal(usual)
    kind = VARIABLES[name].type
    if kind is ValueType.TIMESTAMP:
        yield from _instants(name, value, world)
    elif kind is ValueType.BOOL:
        yield z3.Not(value)
    elif kind is ValueType.INT:
        yield from (value == number for number in round_numbers(world))
    elif kind is ValueType.STRING:
        yield from _words(value, world)


def _words(value: Value, world: Declarations) -> Iterator[Value]:
    shortest = sorted(world.texts, key=lambda text: (len(text), text))
    for text in shortest[:MOST_CANDIDATES]:
        try:
            yield value == text_value(text)
        except NotTranslatable:  # a character that the solver does not know
            continue
    yield z3.InRe(value, z3.Star(z3.Range("a", "z")))


def _instants(name: str, value: Value, world: Declarations) -> Iterator[Value]:
    now = world.variables.get("now")
    if name == "now" or now is None:
        yield value == times.parse(NOW)
        yield value % 1000 == 0
        return
    for passed in (DAY_MS, 3_600_000, 600_000, 0):
        yield value == now - passed
    yield z3.And(value <= now, (now - value) % 1000 == 0)


def _of_reading(reading: Reading, world: Declarations) -> Iterator[list[Value]]:
    if reading.function == NUMBER:
        yield [
            z3.And(reading.key == text_value(text), stands_for(reading, text))
            for text in (*_numerals(world), "", "none")
        ]
        return
    if not reading.function.startswith("history."):
        yield [z3.Not(reading.present)]
    if z3.is_int(reading.value):
        yield [reading.value == number for number in round_numbers(world)]
    else:
        yield list(_words(reading.value, world))


def _numerals(world: Declarations) -> list[str]:
    """Texts that are numbers: large enough to be above other small ones, before the rest."""
    numbers = round_numbers(world)
    return [str(n) for n in (10, 100, 1000, 1_000_000, -1, *numbers)]


def round_numbers(world: Declarations) -> list[int]:
    """Numbers to try: round ones, and those next to the literals of the expressions."""
    near = {number + step for number in world.numbers for step in (-1, 0, 1)}
    every = {0, 1, 10, 100, 1000, *(n for n in near if INT_MIN <= n <= INT_MAX)}
    smallest = sorted(every, key=lambda number: (abs(number), number < 0))
    return smallest[: 3 * MOST_CANDIDATES]


def _literal(value: Any) -> Value:
    if isinstance(value, bool):
        return z3.BoolVal(value)
    return text_value(value) if isinstance(value, str) else z3.IntVal(value)
