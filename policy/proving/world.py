"""What a question speaks of: the variables of rules as the solver's, and facts about them.

A map, a history figure and the number that a text stands for are functions of which nothing is
known but that the same key gives the same value; each place that one is read at is a `Reading`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import z3

from policy.proving.patterns import NotTranslatable, text_value
from policy.rules.expressions import HISTORY_FUNCTIONS, VARIABLES, ValueType
from policy.rules.expressions.engine import environment
from policy.rules.expressions.kernels import INT_MAX, INT_MIN

Value: TypeAlias = Any
"""A term of the solver."""

FIRST_MS: Final = 0  # 1970-01-01T00:00:00Z
LAST_MS: Final = 4_102_444_800_000 - 1  # the last millisecond of 2099
_SECONDS: Final = (LAST_MS - FIRST_MS) // 1000

COUNTED: Final = frozenset({"victim.pdbViolating", "nominated.preemptedPodsTerminating"})
"""Variables that count pods which the rule set itself allows: their value depends on the rules."""

MAPS: Final = frozenset({ValueType.STRING_MAP, ValueType.INT_MAP})
NUMBER: Final = "int(text)"
"""The function from a text to the number that it stands for."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reading:
    """A function of which little is known, at one key."""

    function: str  #: a map's variable, `history.NAME/WINDOW`, or `NUMBER`
    key: Value  #: constant of the solver, equal to `term`
    term: Value
    present: Value  #: the key is there, or the text is a number
    value: Value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Opaque:
    """A part of an expression that is not understood: some value, or none."""

    text: str
    value: Value
    error: Value


@dataclass(slots=True)
class Declarations:
    """Everything that one question declares.

    apart: variables of `COUNTED` whose values may differ between the rule sets compared.
    """

    apart: frozenset[str] = frozenset()
    variables: dict[str, Value] = field(default_factory=dict)  #: by name, `NAME@SIDE` of copies
    readings: list[Reading] = field(default_factory=list)
    opaque: dict[str, Opaque] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)  #: literals of the expressions
    numbers: set[int] = field(default_factory=set)

    # -- declaring -------------------------------------------------------------------------------

    def variable(self, name: str, side: str = "") -> Value:
        """A declared variable; of one side only where it depends on the rules."""
        if name in _JOINED:
            pod, _, field_name = name.partition(".")
            parts = [self.variable(f"{pod}.{part}") for part in _JOINED[name]]
            return _key(*parts) if field_name == "key" else _workload(*parts)
        copy = f"{name}@{side}" if name in self.apart else name
        if copy not in self.variables:
            self.variables[copy] = _constant(copy, VARIABLES[name].type)
        return self.variables[copy]

    def read(self, function: str, term: Value, kind: ValueType) -> Reading:
        """The function's value at a key."""
        term = z3.simplify(term)
        for known in self.readings:
            if known.function == function and known.term.eq(term):
                return known
        name = f"read{len(self.readings)}"
        found = Reading(
            function=function,
            key=z3.String(f"{name}.key"),
            term=term,
            present=z3.Bool(f"{name}.present"),
            value=_constant(f"{name}.value", kind),
        )
        self.readings.append(found)
        return found

    def unknown(self, text: str, kind: ValueType, *, side: str = "") -> Opaque:
        """A part that is not understood; the same for the same text."""
        shown = f"{text}@{side}" if side else text
        if shown not in self.opaque:
            name = f"opaque{len(self.opaque)}"
            value = _constant(f"{name}.value", kind)
            self.opaque[shown] = Opaque(text=text, value=value, error=z3.Bool(f"{name}.error"))
        return self.opaque[shown]

    # -- facts -----------------------------------------------------------------------------------

    def facts(self) -> list[Value]:
        """What holds in every cluster, about everything declared so far and what it implies."""
        self._complete()
        return [*self._ranges(), *self._about_variables(), *self._about_readings()]

    def _complete(self) -> None:
        """Declare what the facts about declared variables need."""
        for name in {copy.partition("@")[0] for copy in self.variables}:
            for implied in _IMPLIED.get(name, ()):
                self.variable(implied)
        for reading in list(self.readings):
            for implied in _IMPLIED.get(reading.function, ()):
                self.variable(implied)
            literal = literal_text(reading.term)
            if reading.function in _REQUESTS and literal in _AMOUNTS:
                self.variable(f"{reading.function.partition('.')[0]}.{_AMOUNTS[literal]}")

    def _ranges(self) -> Iterator[Value]:
        values = [(VARIABLES[c.partition("@")[0]].type, v) for c, v in self.variables.items()]
        values += [(ValueType.INT, r.value) for r in self.readings if z3.is_int(r.value)]
        for kind, value in values:
            if kind is ValueType.INT:
                yield z3.And(value >= INT_MIN, value <= INT_MAX)
            elif kind is ValueType.TIMESTAMP:
                yield z3.And(value >= FIRST_MS, value <= LAST_MS)
        for opaque in self.opaque.values():
            if z3.is_int(opaque.value):
                yield z3.And(opaque.value >= INT_MIN, opaque.value <= INT_MAX)

    def _about_variables(self) -> Iterator[Value]:
        for needs, fact in FACTS:
            sides = {c.partition("@")[2] for c in self.variables if c.partition("@")[0] in needs}
            for side in sorted(sides - {""}) or [""]:
                values = [self.variables.get(f"{n}@{side}", self.variables.get(n)) for n in needs]
                if all(value is not None for value in values):
                    yield fact(*values)

    def _about_readings(self) -> Iterator[Value]:
        for i, one in enumerate(self.readings):
            yield one.key == one.term
            yield from self._about_reading(one)
            for other in self.readings[:i]:
                yield from _same_key(one, other)

    def _about_reading(self, one: Reading) -> Iterator[Value]:
        if one.function.startswith("history."):
            yield one.value >= 0
            function = HISTORY_FUNCTIONS[one.function.removeprefix("history.").partition("/")[0]]
            if function.missing:
                yield one.value <= function.missing
        if one.function in _REQUESTS:
            yield one.value >= 0
            literal = literal_text(one.term)
            if literal in _AMOUNTS:
                owner = one.function.partition(".")[0]
                amount = self.variables[f"{owner}.{_AMOUNTS[literal]}"]
                yield z3.If(one.present, one.value, 0) == amount
        if one.function in _CLASS_NOTES:
            name = self.variables[f"{one.function.partition('.')[0]}.priorityClassName"]
            yield z3.Implies(one.present, name != z3.StringVal(""))
        if one.function == NUMBER:
            for text in sorted({*self.texts, ""}):
                yield z3.Implies(one.key == text_value(text), stands_for(one, text))


def stands_for(reading: Reading, text: str) -> Value:
    """A reading of `NUMBER` at a literal text: the number, or that there is none."""
    number = number_of(text)
    if number is None:
        return z3.Not(reading.present)
    return z3.And(reading.present, reading.value == number)


def number_of(text: str) -> int | None:
    """What CEL's `int` makes of a text, None where it has no value."""
    result = (
        environment()
        .compile(f"int({json.dumps(text, ensure_ascii=False)})")
        .eval(data={})
        .plain_value()
    )
    return result if isinstance(result, int) and not isinstance(result, bool) else None


def _constant(name: str, kind: ValueType) -> Value:
    if kind is ValueType.BOOL:
        return z3.Bool(name)
    if kind is ValueType.STRING:
        return z3.String(name)
    if kind in MAPS:
        raise NotTranslatable(f"`{name}` as a whole")
    return z3.Int(name)


def literal_text(term: Value) -> str | None:
    """The text of a literal, None of any other term."""
    return unquoted(term.as_string()) if z3.is_string_value(term) else None


def unquoted(text: str) -> str:
    """The text that the solver writes with `\\u{..}`."""
    return re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda match: chr(int(match[1], 16)), text)


def _same_key(one: Reading, other: Reading) -> Iterator[Value]:
    """The same key gives the same value; a longer window counts at least as much."""
    first, _, window = one.function.partition("/")
    second, _, other_window = other.function.partition("/")
    if first != second:
        return
    literals = literal_text(one.term) is not None and literal_text(other.term) is not None
    if literals and not one.term.eq(other.term):
        return
    same = one.key == other.key
    if window == other_window:
        yield z3.Implies(same, z3.And(one.present == other.present, one.value == other.value))
    elif int(window) < int(other_window):
        yield z3.Implies(same, one.value <= other.value)
    else:
        yield z3.Implies(same, one.value >= other.value)


_REQUESTS: Final = frozenset({"victim.requests", "preemptor.requests"})
_AMOUNTS: Final[Mapping[str | None, str]] = {"cpu": "cpuMilli", "memory": "memoryBytes"}
_CLASS_NOTES: Final = frozenset(
    {"victim.priorityClassAnnotations", "preemptor.priorityClassAnnotations"}
)
_NOMINATED: Final = ("nominated.node", "nominated.exists", "nominated.status")
_IMPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        f"{pod}.{name}": tuple(f"{pod}.{part}" for part in parts)
        for pod in ("victim", "preemptor")
        for name, parts in {
            "priorityClassAnnotations": ("priorityClassName",),
        }.items()
    },
    **{name: _NOMINATED for name in VARIABLES if name.startswith("nominated.")},
    "preemptor.nominatedNode": _NOMINATED,
    "victim.startTime": ("now", "victim.started"),
    "victim.runtimeSeconds": ("victim.started",),
    "victim.terminatingByPreemption": ("victim.terminating",),
    "victim.createdAt": ("now",),
    "preemptor.createdAt": ("now",),
}
"""Variable -> others that the facts about it speak of."""

_JOINED: Final[Mapping[str, tuple[str, ...]]] = {
    f"{pod}.{name}": parts
    for pod in ("victim", "preemptor")
    for name, parts in {
        "key": ("namespace", "name"),
        "workload": ("namespace", "name", "owner"),
    }.items()
}
"""Variables that are made of others."""

_POLICIES: Final = ("PreemptLowerPriority", "Never")
_STATUSES: Final = ("", "Success", "Unschedulable", "UnschedulableAndUnresolvable")


def _text(value: str) -> Value:
    return z3.StringVal(value)


def _plain(value: Value) -> Value:
    return z3.And(z3.Length(value) > 0, z3.Not(z3.Contains(value, _text("/"))))


def _int32(value: Value) -> Value:
    return z3.And(value >= -(2**31), value < 2**31)


def _key(namespace: Value, name: Value) -> Value:
    return z3.Concat(namespace, _text("/"), name)


def _workload(namespace: Value, name: Value, owner: Value) -> Value:
    own = z3.If(owner == _text(""), z3.Concat(_text("Pod/"), name), owner)
    return z3.Concat(namespace, _text("/"), own)


def _kind_and_name(owner: Value) -> Value:
    other = z3.Union(z3.Range(chr(1), "."), z3.Range("0", text_value("\U0002ffff")))
    both = z3.Concat(z3.Plus(other), z3.Re("/"), z3.Plus(other))
    return z3.Or(owner == _text(""), z3.InRe(owner, both))


def _since(seconds: Value, start: Value, now: Value) -> Value:
    passed = (now - start) / 1000
    return seconds == z3.If(passed > 0, passed, 0)


Fact: TypeAlias = tuple[tuple[str, ...], Callable[..., Value]]

FACTS: Final[tuple[Fact, ...]] = (
    *(((f"{pod}.priority",), _int32) for pod in ("victim", "preemptor")),
    *(
        ((name,), lambda value: value >= 0)
        for name, variable in VARIABLES.items()
        if variable.unit and variable.type is ValueType.INT
    ),
    *(
        ((name,), _plain)
        for name in (
            *("victim.name", "victim.namespace", "preemptor.name", "preemptor.namespace"),
            *("victim.node", "node.name"),
        )
    ),
    *(((f"{pod}.owner",), _kind_and_name) for pod in ("victim", "preemptor")),
    *(
        ((f"{pod}.preemptionPolicy",), lambda v: z3.Or(*(v == _text(word) for word in _POLICIES)))
        for pod in ("victim", "preemptor")
    ),
    (("victim.runtimeSeconds",), lambda seconds: seconds <= _SECONDS),
    (("victim.runtimeSeconds", "victim.startTime", "now"), _since),
    (
        ("victim.runtimeSeconds", "victim.started"),
        lambda seconds, started: z3.Implies(z3.Not(started), seconds == 0),
    ),
    (
        ("victim.startTime", "victim.started", "now"),
        lambda start, started, now: z3.Implies(z3.Not(started), start == now),
    ),
    (("preemptor.waitingSeconds",), lambda seconds: seconds <= _SECONDS),
    (("preemptor.waitingSeconds", "preemptor.createdAt", "now"), _since),
    (("victim.terminatingByPreemption", "victim.terminating"), z3.Implies),
    (
        ("victim.pdbViolating", "victim.pdbMatches"),
        lambda breaks, budgets: z3.Implies(breaks, budgets >= 1),
    ),
    (("victim.node", "node.name"), lambda node, name: node == name),
    (("node.podCount",), lambda pods: pods >= 1),
    (("cluster.nodeCount",), lambda nodes: nodes >= 1),
    (("cluster.failedNodeCount", "cluster.nodeCount"), lambda failed, nodes: failed <= nodes),
    (("nominated.node", "preemptor.nominatedNode"), lambda node, nominated: node == nominated),
    (
        ("nominated.exists", "nominated.node"),
        lambda exists, node: z3.Implies(exists, node != _text("")),
    ),
    (
        ("nominated.status",),
        lambda status: z3.Or(*(status == _text(word) for word in _STATUSES)),
    ),
    (
        ("nominated.exists", "nominated.status"),
        lambda exists, status: z3.Implies(z3.Not(exists), status == _text("")),
    ),
    *(
        (("nominated.exists", name), lambda exists, n: z3.Implies(z3.Not(exists), n == 0))
        for name in VARIABLES
        if name.startswith("nominated.") and name.endswith("Terminating")
    ),
    (
        ("nominated.preemptedLowerPriorityTerminating", "nominated.lowerPriorityTerminating"),
        lambda preempted, every: preempted <= every,
    ),
    (
        ("victim.name", "preemptor.name", "victim.namespace", "preemptor.namespace"),
        lambda a, b, in_a, in_b: z3.Not(z3.And(a == b, in_a == in_b)),
    ),
)
"""Variables, and what holds between their values in every cluster."""

ASSUMPTIONS: Final = (
    "priorities are 32-bit numbers; names are not empty and hold no `/`",
    "an owner is `Kind/name`, or there is none; preemption policies are the two of Kubernetes",
    "instants lie in the years 1970 to 2099, to the millisecond",
    "texts hold characters up to U+2FFFF",
    "the snapshot has the history figures that the rules read",
    "amounts and counts are not negative",
)
"""What the facts take for granted, in words."""
