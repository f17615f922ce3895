"""Which limit turned a task, a job or a queue away, with its numbers: data, without sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

Amount: TypeAlias = Mapping[str, float]


class LimitKind(StrEnum):
    """What a limit is. Values are stored and never renamed."""

    STATE = "state"  # the queue is not open
    CAPABILITY = "capability"  # the most that the queue may hold
    DESERVED = "deserved"  # what the queue is entitled to
    NOT_A_LEAF = "not-a-leaf"  # the queue has queues below it
    HIERARCHY = "hierarchy"  # the tree of queues is no tree
    OVERCOMMIT = "overcommit"  # what the cluster has, times the factor
    # of tasks that a plugin spares when room is taken back from their queue
    AT_DESERVED = "at-deserved"  # the queue holds no more than it deserves
    BELOW_DESERVED = "below-deserved"  # the queue would be left with less than it deserves
    GUARANTEE = "guarantee"  # the queue would be left with less than it is guaranteed
    FREES_NOTHING = "frees-nothing"  # the task holds nothing of what is asked for
    SHARED_ANCESTOR = "shared-ancestor"  # both queues are below one that settles it among them
    QUOTA = "quota"  # a resource quota of the namespace
    VOTE = "vote"  # a plugin without numbers said no


_OF_VICTIMS: Final = frozenset(
    {
        LimitKind.AT_DESERVED,
        LimitKind.BELOW_DESERVED,
        LimitKind.GUARANTEE,
        LimitKind.FREES_NOTHING,
        LimitKind.SHARED_ANCESTOR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A plugin's no: what was asked for, what is in use, and what may be."""

    plugin: str
    rule: LimitKind
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
    def spares(self) -> bool:
        """Is it about what the queue would be left with, and not about what it may take?"""
        return self.rule in _OF_VICTIMS

    @property
    def kept(self) -> dict[str, float]:
        """What would be left of what is in use, were it given up."""
        return {name: self.used.get(name, 0.0) - amount for name, amount in self.asked.items()}

    @property
    def left(self) -> dict[str, float]:
        """What the limit leaves in each resource that is asked for; below 0 where it is passed."""
        return {name: self.allowed.get(name, 0.0) - self.used.get(name, 0.0) for name in self.asked}


def _amounts(amount: Mapping[str, float], among: Iterable[str]) -> dict[str, str]:
    """Of the resources that matter; floats are written as text."""
    return {name: repr(float(amount.get(name, 0.0))) for name in among}
