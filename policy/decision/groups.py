"""What one cycle of a pod group decided, complete enough to be explained, recorded and replayed.

Like a decision about one pod it is immutable data: its canonical form has a digest, everything
else is made from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from policy.cluster import canonical

# Records are read by the types of their fields.
from policy.cluster.digest import HistoryFigures
from policy.decision.model import (
    ENGINE_VERSION,
    NominationChange,
    RuleFired,
    StatusCount,
    Victim,
    document_of,
)


class GroupOutcome(StrEnum):
    """How a group's cycle ended. Values are stored and never renamed."""

    SCHEDULED = "scheduled"  # the quorum is met, placed members are bound
    PREEMPTING = "preempting"  # units leave, so that the group can start
    UNSCHEDULABLE = "unschedulable"  # the group does not start and preempts nothing
    ERROR = "error"  # the cycle failed
    NOT_TRIED = "not-tried"  # no member got past its gates


class PassKind(StrEnum):
    """Which pass it was. Values are stored and never renamed."""

    FIRST = "first"  # on the cluster as it is
    ALL_REMOVED = "all-removed"  # without any potential unit
    PUT_BACK = "put-back"  # with one unit back in place
    EXCHANGE = "exchange"  # with other units removed, in the search for fewer victims


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMember:
    """A pending member that took no part, and what held it back."""

    pod: str  #: namespace/name
    plugin: str  #: kube-scheduler's name of the gate; "" of a pod that is being deleted
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPreemption:
    """The preemption of one member for itself, where groups do not preempt as one."""

    node: str
    victims: tuple[str, ...]  #: in ranking order
    deleted: tuple[str, ...]  #: those of them that were not terminating yet


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One member of the cycle, in its order."""

    pod: str  #: namespace/name
    uid: str
    priority: int
    placed: str  #: node of the first pass; "" where none took it
    quorum: bool  #: with this member the quorum was met
    bound: bool
    nomination: NominationChange
    nominated_node: str  #: where it is set to; "" otherwise
    message: str  #: of condition PodScheduled=False; "" for a bound member
    reason: str  #: of that condition
    statuses: tuple[StatusCount, ...]  #: why nodes did not take it, with their number
    preemption: MemberPreemption | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTried:
    """What became of one potential unit, in the order of the reprieve."""

    pods: tuple[str, ...]  #: namespace/name, in the order found
    group: str  #: namespace/name of the group that its first pod names; "" without one
    whole: bool  #: its pods leave together
    grouped: bool  #: counts as a group in the order of importance
    priority: int
    start_ms: int  #: milliseconds since 1970 UTC; a unit that has not started counts as now
    violating: bool  #: removing it breaks a budget
    reprieved: bool
    #: of a unit that leaves: the first member that found no node with it back in place
    blocked: str
    blocked_message: str  #: why no node took that member


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPass:
    """One attempt to place all members."""

    kind: PassKind
    unit: int  #: which unit was put back, by its position; -1 in other passes
    success: bool
    placed: int  #: members that got a node before the pass was decided


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPreemption:
    """The preemption of the group as one."""

    code: str  #: as kube-scheduler's framework names it
    message: str
    units: tuple[UnitTried, ...]  #: in the order in which they were tried
    potential: int  #: units that the rules allow
    passes: tuple[GroupPass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConditionChange:
    """Condition PodGroupScheduled as it is written to the group."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEffects:
    """What the cycle does to the cluster."""

    bind: Mapping[str, str]  #: member -> node
    mark_disrupted: tuple[str, ...]  #: pods that get condition DisruptionTarget
    evict: tuple[str, ...]  #: pods deleted, in order; each once
    clear_nominations: tuple[str, ...]  #: other pods that lose their nomination
    nominate: Mapping[str, str]  #: member -> node; "" clears
    condition: GroupConditionChange | None  #: None where nothing is written


NO_GROUP_EFFECTS: Final = GroupEffects(
    bind={}, mark_disrupted=(), evict=(), clear_nominations=(), nominate={}, condition=None
)


@dataclass(frozen=True, kw_only=True)
class GroupDecision:
    """The result of `decide_group`: a pure function of snapshot, rule set, group and seed."""

    group: str  #: namespace/name
    group_uid: str
    group_priority: int
    min_count: int  #: 1 for policy `basic`
    policy: str  #: `gang` or `basic`; "" where the group does not exist
    assigned: int  #: members on nodes, which count for the quorum
    rule_set: str
    rule_set_digest: str
    snapshot_digest: str
    history: HistoryFigures | None
    now_ms: int
    seed: int
    engine_version: str = ENGINE_VERSION
    outcome: GroupOutcome
    code: str  #: of the cycle, as kube-scheduler's framework names it
    message: str  #: status of the cycle
    members: tuple[GroupMember, ...]
    gated: tuple[GatedMember, ...]
    rules: tuple[RuleFired, ...]
    preemption: GroupPreemption | None  #: None where the group did not preempt as one
    victims: tuple[Victim, ...]  #: in the order of the list
    effects: GroupEffects

    @cached_property
    def claimants(self) -> Mapping[str, str]:
        """The victims in their order, and the member for whose sake each leaves.

        A group that preempts as one does so for its first member.
        """
        lead = self.members[0].pod if self.members else ""
        own = {
            pod: member.pod
            for member in reversed(self.members)
            if member.preemption is not None
            for pod in member.preemption.victims
        }
        return {victim.pod: own.get(victim.pod, lead) for victim in self.victims}

    @cached_property
    def canonical(self) -> bytes:
        """Complete canonical JSON (`policy.cluster.canonical`)."""
        return canonical.encode(document_of(self))

    @cached_property
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of `canonical`."""
        return canonical.sha256(self.canonical)
