"""From the solver's values to a case: the smallest cluster in which the product can replay them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from policy.cases.model import Case
from policy.cases.reading import read_cases
from policy.cases.running import snapshot_of
from policy.cluster import times
from policy.cluster.snapshot import Snapshot
from policy.decision.model import NO_VALUE, Outcome
from policy.preemption.columns import history_key
from policy.preemption.decide import decide
from policy.preemption.denials import denials, judged
from policy.proving.smallest import DAY_MS, NOW
from policy.proving.world import NUMBER, Declarations
from policy.rules import RulesError
from policy.rules.expressions import NEVER, Expression
from policy.rules.ruleset import RuleSet

MOST_PODS: Final = 20
"""Pods and nodes that a case may need beside the two pods that it is about."""


class NotWritable(Exception):  # a signal between functions, not an error
    """The values cannot be written as a case; the text says why."""


@dataclass(slots=True)
class Assignment:
    """The solver's values by what they are values of."""

    variables: dict[str, Any] = field(default_factory=dict)
    maps: dict[str, dict[str, Any]] = field(default_factory=dict)  #: keys that are there
    read: dict[str, set[str]] = field(default_factory=dict)  #: keys that rules look at
    history: dict[tuple[str, int | None], dict[str, int]] = field(default_factory=dict)


def assignment(world: Declarations, values: Mapping[str, Any], side: str = "") -> Assignment:
    """What the solver's values mean; of variables that differ by side, those of `side`."""
    found = Assignment()
    for copy in world.variables:
        name, _, of = copy.partition("@")
        if copy in values and of in ("", side):
            found.variables[name] = values[copy]
    for i, reading in enumerate(world.readings):
        key = values.get(f"read{i}.key")
        if not isinstance(key, str) or reading.function == NUMBER:
            continue
        value = values.get(f"read{i}.value")
        if reading.function.startswith("history."):
            name, _, window = reading.function.removeprefix("history.").partition("/")
            need = (name, int(window) if window else None)
            found.history.setdefault(need, {})[key] = int(value or 0)
            continue
        found.read.setdefault(reading.function, set()).add(key)
        if values.get(f"read{i}.present"):
            kind_default: Any = 0 if reading.function.endswith("requests") else ""
            found.maps.setdefault(reading.function, {})[key] = (
                kind_default if value is None else value
            )
    return found


# -- writing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A counterexample as a case: its text, and what it was read back as."""

    text: str
    case: Case
    victim: str  #: `namespace/name`


def written(values: Assignment, note: str) -> Example:
    """The case of these values; it wants that no node is taken. Raises `NotWritable`."""
    writer = _Writer(values)
    text = writer.text(note)
    try:
        (case,) = read_cases(text, "<example>")
    except RulesError as exc:
        raise NotWritable(exc.problems[0].message) from exc
    return Example(text=text, case=case, victim=writer.victim)


_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*(\([0-9a-z]+\))?|([0-9]+[smhd])+")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return str(value)
    escaped = "".join(
        c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value
    )
    return f'"{escaped}"'


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    return _scalar(value)


def _length(seconds: int) -> str:
    """`90s`, `10m`, `2h`, as cases write lengths of time."""
    if seconds < 0:
        raise NotWritable("an instant after now")
    parts = ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            parts += f"{seconds // size}{unit}"
            seconds %= size
    return parts + (f"{seconds}s" if seconds or not parts else "")


class _Writer:
    """Puts one assignment into the words of a file of cases."""

    def __init__(self, values: Assignment) -> None:
        self.values = values
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, Any] = {}
        self.budgets: dict[str, Any] = {}
        self.now_ms: int = self._get("now", times.parse(NOW))
        self.node: str = self._get("victim.node", self._get("node.name", "n1"))
        self.preemptor = self._key("preemptor", "preemptor")
        self.victim = self._key("victim", "victim")
        if self.victim == self.preemptor:
            self.victim = self._key("victim", "victim-1")

    def _get(self, name: str, default: Any) -> Any:
        return self.values.variables.get(name, default)

    def _key(self, pod: str, name: str) -> str:
        return f"{self._get(f'{pod}.namespace', 'default')}/{self._get(f'{pod}.name', name)}"

    def text(self, note: str) -> str:
        """One item of a file of cases."""
        self._victim()
        self._preemptor()
        self._nominated()
        self._place()
        parts: dict[str, Any] = {"note": note}
        if self.now_ms != times.parse(NOW):
            parts["now"] = times.to_text(self.now_ms)
        parts["nodes"] = self.nodes
        parts["classes"] = self.classes
        parts["pods"] = {k.removeprefix("default/"): v for k, v in self.pods.items()}
        parts["pdbs"] = self.budgets
        labels = self.values.maps.get("victim.namespaceLabels")
        parts["namespaces"] = {self.victim.partition("/")[0]: {"labels": labels}} if labels else {}
        parts["history"] = dict(self._history())
        parts["want"] = {"node": None}
        lines = [
            line for name, value in parts.items() if value != {} for line in _lines(name, value)
        ]
        return "- " + "\n  ".join(lines) + "\n"

    # -- pods ------------------------------------------------------------------------------------

    def _pod(self, pod: str) -> dict[str, Any]:
        maps = self.values.maps
        fields: dict[str, Any] = {"priority": self._get(f"{pod}.priority", 0)}
        notes = maps.get(f"{pod}.priorityClassAnnotations", {})
        name = self._get(f"{pod}.priorityClassName", "") or (f"class-of-{pod}" if notes else "")
        if name:
            fields["class"] = name
            known = self.classes.setdefault(name, {"priority": fields["priority"]})
            if notes:
                known.setdefault("annotations", {}).update(notes)
        for key, written_as in (("cpuMilli", "cpu"), ("memoryBytes", "memory")):
            amount = self._get(f"{pod}.{key}", 0)
            if amount:
                fields[written_as] = f"{amount}m" if written_as == "cpu" else amount
        requests = maps.get(f"{pod}.requests", {})
        others = {k: v for k, v in requests.items() if k not in ("cpu", "memory")}
        for entry, value in (
            ("requests", others),
            ("labels", dict(maps.get(f"{pod}.labels", {}))),
            ("annotations", maps.get(f"{pod}.annotations", {})),
            ("owner", self._get(f"{pod}.owner", "")),
        ):
            if value:
                fields[entry] = value
        policy = self._get(f"{pod}.preemptionPolicy", "PreemptLowerPriority")
        if policy != "PreemptLowerPriority":
            fields["preemptionPolicy"] = policy
        created = self.values.variables.get(f"{pod}.createdAt")
        if created is not None:
            fields["created"] = self._ago(created)
        return fields

    def _ago(self, instant: int) -> str:
        return _length((self.now_ms - instant) // 1000)

    def _victim(self) -> None:
        fields = {"node": self.node, **self._pod("victim")}
        variables = self.values.variables
        if not self._get("victim.started", True):
            fields["started"] = "never"
        elif "victim.startTime" in variables:
            fields["started"] = self._ago(variables["victim.startTime"])
        elif variables.get("victim.runtimeSeconds", DAY_MS // 1000) != DAY_MS // 1000:
            fields["started"] = _length(variables["victim.runtimeSeconds"])
        if self._get("victim.terminatingByPreemption", False):
            fields["terminating"] = "by-preemption"
        elif self._get("victim.terminating", False):
            fields["terminating"] = True
        self._budgets(fields)
        self.pods[self.victim] = fields

    def _budgets(self, fields: dict[str, Any]) -> None:
        breaks = self._get("victim.pdbViolating", False)
        count = max(self._get("victim.pdbMatches", 0), int(breaks))
        if count > MOST_PODS:
            raise NotWritable(f"{count} disruption budgets for one pod")
        if not count:
            return
        read = self.values.read.get("victim.labels", set())
        label = next(key for key in ("app", "budget", "guarded-by") if key not in read)
        fields.setdefault("labels", {})[label] = "guarded"
        namespace = self.victim.partition("/")[0]
        for i in range(count):
            name = "budget" if i == 0 else f"budget-{i}"
            key = name if namespace == "default" else f"{namespace}/{name}"
            self.budgets[key] = {"selector": {label: "guarded"}, "allowed": 0 if breaks else 1}

    def _preemptor(self) -> None:
        fields = self._pod("preemptor")
        waiting = self.values.variables.get("preemptor.waitingSeconds")
        if waiting is not None and "created" not in fields:
            fields["created"] = _length(waiting)
        if self._get("nominated.node", ""):
            fields["nominated"] = self._get("nominated.node", "")
        self.pods[self.preemptor] = fields

    # -- nodes -----------------------------------------------------------------------------------

    def _nominated(self) -> None:
        """The node that the preemptor is nominated to, with the pods that are leaving it."""
        name = self._get("nominated.node", "")
        if not name:
            return
        if not self._get("nominated.exists", False):
            raise NotWritable("a nomination to a node that is not there")
        self.nodes.setdefault(name, {})
        if self._get("nominated.status", "") == "UnschedulableAndUnresolvable":
            self.nodes[name]["unschedulable"] = True
        preempted = max(
            self._get("nominated.preemptedLowerPriorityTerminating", 0),
            self._get("nominated.preemptedPodsTerminating", 0),
        )
        every = max(preempted, self._get("nominated.lowerPriorityTerminating", 0))
        if every > MOST_PODS:
            raise NotWritable(f"{every} pods that are leaving one node")
        priority = self.pods[self.preemptor]["priority"] - 1
        for i in range(every):
            self.pods[f"default/leaving-{i}"] = {
                "node": name,
                "priority": priority,
                "terminating": "by-preemption" if i < preempted else True,
            }

    def _place(self) -> None:
        """Room for the pods that are there and no other: the preemptor needs the victim's."""
        self.nodes.setdefault(self.node, {})
        here = self.nodes[self.node]
        labels = self.values.maps.get("node.labels", {})
        if labels:
            here["labels"] = labels
        if self._get("node.unschedulable", False):
            here["unschedulable"] = True
        extra = min(self._get("cluster.nodeCount", 0) - len(self.nodes), MOST_PODS)
        for i in range(extra):
            self.nodes[f"other-{i}"] = {"unschedulable": True}
        pods = list(self.pods.values())
        for name, node in self.nodes.items():
            node["pods"] = sum(pod.get("node") == name for pod in pods)
            for resource, unit in (("cpu", "m"), ("memory", "")):
                amounts = [int(str(pod.get(resource, 0)).removesuffix(unit or "-")) for pod in pods]
                if any(amounts):
                    node[resource] = f"{sum(amounts)}{unit}"
            others: Counter[str] = Counter()
            for pod in pods:
                others.update(pod.get("requests", {}))
            if others:
                node["allocatable"] = dict(others)
        if "node.cpuMilli" in self.values.variables:
            here["cpu"] = f"{self._get('node.cpuMilli', 0)}m"
        if "node.memoryBytes" in self.values.variables:
            here["memory"] = self._get("node.memoryBytes", 0)

    def _history(self) -> Iterator[tuple[str, dict[str, int]]]:
        for (name, window), figures in self.values.history.items():
            usual = NEVER if window is None else 0
            unusual = {key: figure for key, figure in figures.items() if figure != usual}
            if unusual:
                yield (name if window is None else f"{name}({_length(window)})"), unusual


def _lines(name: str, value: Any) -> Iterator[str]:
    """A key of a case; objects one a line."""
    if name in ("pods", "nodes", "history") and (name != "nodes" or len(value) > 1):
        yield f"{name}:"
        for key, fields in value.items():
            yield f"  {_scalar(key)}: {_flow(fields)}"
    else:
        yield f"{name}: {_flow(value)}"


# -- replaying -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleDecision:
    """What the product does with the two pods of an example."""

    taken: bool  #: the pod is a victim
    section: str  #: of the rule that decides
    rule: str  #: its id, "" where no rule allows the pod

    def __str__(self) -> str:
        who = f"`{self.rule}`" if self.rule else "no rule allows it"
        return f"taken: allowed by {who}" if self.taken else f"kept: {who}"


def replayed(example: Example, rules: RuleSet) -> ExampleDecision:
    """The decision of the product, and the rule behind it."""
    snapshot = snapshot_of(example.case, rules)
    decision = decide(snapshot, rules, example.case.preemptor, seed=0)
    if decision.outcome is Outcome.NOT_ELIGIBLE:
        fired = [f for f in decision.trace.rules if f.section == "eligibility"]
        rule = next((f.rule for f in reversed(fired) if f.verdict != NO_VALUE), "")
        return ExampleDecision(taken=False, section="eligibility", rule=rule)
    victims = {victim.pod for victim in decision.victims}
    taken = decision.outcome is Outcome.PREEMPT and example.victim in victims
    denial = denials(snapshot, rules, example.case.preemptor).get(example.victim)
    if denial is not None:
        return ExampleDecision(taken=taken, section=denial.section, rule=denial.rule)
    row = snapshot.row(example.victim)
    assert row is not None
    allowed, _ = judged(snapshot, rules, example.case.preemptor)
    place = int(allowed.rule[row])
    rule = rules.victims.eligible[place].id if place >= 0 else ""
    return ExampleDecision(taken=taken, section="victims.eligible", rule=rule)


def is_true(example: Example, rules: RuleSet, condition: Expression) -> bool:
    """Is a condition true of the example's pods, as the product evaluates it?"""
    needs: dict[str, Mapping[str, int]] = {history_key(*n): {} for n in condition.history_needs}
    case = replace(example.case, history={**needs, **example.case.history})
    snapshot: Snapshot = snapshot_of(case, rules)
    _, columns = judged(snapshot, rules, case.preemptor)
    row = snapshot.row(example.victim)
    assert row is not None
    found = condition.evaluate(columns.take(np.array([row], np.intp)))
    return found.tolist() == [True]
