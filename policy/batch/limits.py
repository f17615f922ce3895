"""Which limit turned a task, a job or a queue away, with its numbers: data, without sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

Amount: TypeAlias = Mapping[str, float]


class Rule(StrEnum):
    """What a limit is. Values are stored and never renamed."""

    STATE = "state"  # the queue is not open
    CAPABILITY = "capability"  # the most that the queue may hold
    DESERVED = "deserved"  # what the queue is entitled to
    NOT_A_LEAF = "not-a-leaf"  # the queue has queues below it
    HIERARCHY = "hierarchy"  # the tree of queues is no tree
    OVERCOMMIT = "overcommit"  # what the cluster has, times the factor
    QUOTA = "quota"  # a resource quota of the namespace
    VOTE = "vote"  # a plugin without numbers said no


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A plugin's no: what was asked for, what is in use, and what may be."""

    plugin: str
    rule: Rule
    subject: str  #: the queue (perhaps an ancestor), or the quota
    tier: int = -1  #: of the plugin in the rules, from 0
    exceeded: tuple[str, ...] = ()  #: resources in which the limit is passed
    asked: Amount = field(default_factory=dict)
    used: Amount = field(default_factory=dict)  #: before; what is reserved is counted
    allowed: Amount = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "plugin": self.plugin,
            "rule": self.rule.value,
            "subject": self.subject,
            "tier": self.tier,
            "exceeded": list(self.exceeded),
            "asked": _amounts(self.asked, self.asked),
            "used": _amounts(self.used, self.asked),
            "allowed": _amounts(self.allowed, self.asked),
        }

    @property
    def left(self) -> dict[str, float]:
        """What the limit leaves in each resource that is asked for; below 0 where it is passed."""
        return {name: self.allowed.get(name, 0.0) - self.used.get(name, 0.0) for name in self.asked}


def _amounts(amount: Mapping[str, float], among: Iterable[str]) -> dict[str, str]:
    """Of the resources that matter; floats are written as text."""
    return {name: repr(float(amount.get(name, 0.0))) for name in among}
