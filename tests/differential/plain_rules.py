"""The expressions of the shipped rule sets, by their text, in plain Python."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from policy.cluster import times
from policy.cluster.objects import Pod
from policy.rules.ruleset import Rule
from tests.differential.plain_filters import (
    UNRESOLVABLE,
    labels_of,
    namespace_of,
    priority_of,
)
from tests.differential.plain_told import Check

INT32_MIN = -(2**31)


class NoValue(Exception):
    """The expression has no value."""


APPS = "{'web': 1, 'db': 2}[victim.labels['app']]"


def app_of(pod: Pod) -> int:
    """`APPS`: a missing label is the empty string, and that is no key of the map."""
    found = {"web": 1, "db": 2}.get(labels_of(pod).get("app", ""))
    if found is None:
        raise NoValue
    return found


def holds(rule: Rule, table: Mapping[str, Callable[..., bool]], *about: object) -> bool:
    """Does the rule take effect? What has no value counts as the rule says."""
    if rule.when is None:
        return True
    try:
        return table[rule.when.source.strip()](*about)
    except NoValue:
        return rule.on_error.value == "holds"


class Nominated(NamedTuple):
    """What eligibility rules know of the node that the pod is nominated to."""

    code: int | None  #: None where there is no such node
    lower_terminating: int
    preempted_terminating: int  #: of those that are allowed as victims
    preempted_lower_terminating: int


ELIGIBILITY: Mapping[str, Callable[[Pod, Nominated], bool]] = {
    "preemptor.preemptionPolicy == 'Never'": lambda pod, _: pod.spec.preemption_policy == "Never",
    "nominated.status == 'UnschedulableAndUnresolvable'": lambda _, n: n.code == UNRESOLVABLE,
    "nominated.lowerPriorityTerminating > 0": lambda _, n: n.lower_terminating > 0,
    "nominated.preemptedPodsTerminating > 0": lambda _, n: n.preempted_terminating > 0,
    "nominated.preemptedLowerPriorityTerminating > 0": (
        lambda _, n: n.preempted_lower_terminating > 0
    ),
}

VICTIMS: Mapping[str, Callable[[Pod, Pod], bool]] = {
    "victim.priority < preemptor.priority": lambda v, pod: priority_of(v) < priority_of(pod),
    "'tier' in victim.labels && victim.labels['tier'] == 'gold'": (
        lambda v, _: labels_of(v).get("tier") == "gold"
    ),
    "victim.namespace == 'shop'": lambda v, _: namespace_of(v) == "shop",
    "victim.terminating": lambda v, _: bool(v.metadata.deletion_timestamp),
    "victim.labels['tier'] != 'gold'": lambda v, _: labels_of(v).get("tier") != "gold",
    f"{APPS} > 1": lambda v, _: app_of(v) > 1,
    "victim.namespace == preemptor.namespace": lambda v, p: namespace_of(v) == namespace_of(p),
}

FORBID: Mapping[str, Callable[[Pod, bool], bool]] = {
    f"{APPS} == 1 && victim.pdbViolating": lambda v, violating: violating and app_of(v) == 1,
    "victim.pdbViolating": lambda _, violating: violating,
    "victim.pdbViolating && victim.namespace == 'shop'": (
        lambda v, violating: violating and namespace_of(v) == "shop"
    ),
}


@dataclass
class Candidate:
    """A node and who leaves it."""

    node: str
    victims: list[Pod]
    pdb_violations: int
    checks: list[Check]


def _top(candidate: Candidate) -> int:
    return priority_of(candidate.victims[0]) if candidate.victims else INT32_MIN


def start_of(pod: Pod, now_ms: int) -> int:
    """A pod without start time counts as starting now."""
    return times.parse(pod.status.start_time) if pod.status.start_time else now_ms


def _earliest(candidate: Candidate, now_ms: int) -> int:
    highest = max((priority_of(v) for v in candidate.victims), default=INT32_MIN)
    starts = (start_of(v, now_ms) for v in candidate.victims if priority_of(v) == highest)
    return min(starts, default=now_ms)


def _per_violation(candidate: Candidate) -> int:
    if not candidate.pdb_violations:
        raise NoValue
    return len(candidate.victims) // candidate.pdb_violations


RANKING: Mapping[str, Callable[[Candidate, int], int]] = {
    "candidate.needsNoVictim ? 1 : 0": lambda c, _: int(not c.victims),
    "candidate.pdbViolations": lambda c, _: c.pdb_violations,
    "candidate.topPriority": lambda c, _: _top(c),
    "candidate.prioritySum": lambda c, _: sum(priority_of(v) + 2**31 for v in c.victims),
    "candidate.victimCount": lambda c, _: len(c.victims),
    "candidate.victimCount / candidate.pdbViolations": lambda c, _: _per_violation(c),
    "candidate.earliestStartOfTopPriority": _earliest,
}


def name_key(pod: Pod) -> tuple[str, str]:
    """Snapshot order."""
    return namespace_of(pod), pod.metadata.name


def draw(seed: int, purpose: str, pod: str, state: str, size: int) -> int:
    """The recorded dice: the first 128 bits of a SHA-256."""
    text = json.dumps([seed, purpose, pod, state], separators=(",", ":"), ensure_ascii=False)
    return int(hashlib.sha256(text.encode()).hexdigest()[:32], 16) % size
