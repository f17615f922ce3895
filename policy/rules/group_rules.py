"""What a rule set says about pod groups: frozen, checked, with compiled expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from policy.rules.expressions import Expression
from policy.rules.parts import ImportanceKey, ReprieveGroup, Rule


class UnitStart(StrEnum):
    """When a unit of several pods started."""

    FIRST_FOUND = "first-found"  # when the pod did that is found first, node by node
    OLDEST = "oldest"  # when its oldest pod did


class MemberPriority(StrEnum):
    """The priority of a unit that is one member of a group."""

    POD = "pod"  # the pod's own (1.36)
    GROUP = "group"  # that of its group (1.37)


class OrdinaryVictims(StrEnum):
    """What an ordinary pod's preemption takes of a group in disruption mode `PodGroup`."""

    PODS = "pods"  # single members
    NONE = "none"  # nothing, where the group has several running pods
    WHOLE = "whole"  # all running pods, on every node, or nothing


class UnitBudgets(StrEnum):
    """How pod disruption budgets are counted over units."""

    STOP_AT_FIRST = "stop-at-first"  # a violated budget ends the counting of its unit
    DECREMENT = "decrement"  # every budget of every pod is counted
    STATIC = "static"  # a unit violates where a budget of a pod of it allows nothing


class ReprieveTest(StrEnum):
    """When a unit may stay."""

    PASS = "pass"  # all members are placed anew, and the success test holds
    FIXED_NODES = "fixed-nodes"  # every member still fits on the node that it was given


class UnitSearch(StrEnum):
    """How the units that leave are found."""

    GREEDY = "greedy"  # one reprieve, the most important unit first
    FEWER = "fewer"  # afterwards exchanges are tried that leave fewer pods to evict


class Success(StrEnum):
    """When a pass places the group."""

    QUORUM = "quorum"  # minCount members are assigned or placed
    ALL = "all"  # every member that is tried is placed


class Nominations(StrEnum):
    """Which members are nominated when the group preempts, and where."""

    FIRST_PASS = "first-pass"  # those that fitted before anybody was removed, to that node
    PLACED = "placed"  # those that the deciding pass placed, to their node in it


class MemberDeletions(StrEnum):
    """When the victims of members that preempt for themselves are deleted."""

    AT_ONCE = "at-once"
    WITH_QUORUM = "with-quorum"  # only where the group then starts


class AssumedTerms(StrEnum):
    """Where required anti-affinity of members that were just placed counts."""

    FROZEN = "frozen"  # on nodes that held a pod with such terms before the pass
    CURRENT = "current"  # everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGates:
    """Feature gates beside `GenericWorkload`, which a rule set with `groups` has."""

    gang_scheduling: bool  #: `minCount` counts; without, every group is `basic`
    workload_aware_preemption: bool  #: groups preempt as one; without, each member for itself


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRules:
    """What is preempted as one."""

    whole_groups: bool  #: running pods of a group in mode `PodGroup` leave together
    member_priority: MemberPriority
    start: UnitStart
    ordinary: OrdinaryVictims


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitVictimRules:
    """Which units may be preempted, and which are kept first."""

    eligible: tuple[Rule, ...]  #: the first that holds decides; none denies
    importance: tuple[ImportanceKey, ...]
    budgets: UnitBudgets
    skip_disrupted: bool
    reprieve: tuple[ReprieveGroup, ...]
    reprieve_test: ReprieveTest
    search: UnitSearch
    search_passes: int  #: at most so many passes for exchanges


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """How pod groups are scheduled and what they may preempt."""

    gates: GroupGates
    eligibility: tuple[Rule, ...]
    units: UnitRules
    victims: UnitVictimRules
    success: Success
    nominations: Nominations
    member_deletions: MemberDeletions
    assumed_terms: AssumedTerms
    victims_in_message: bool  #: a preempting group's status says how many victims leave

    def expressions(self) -> Iterator[Expression]:
        """Every expression, in the order of the file."""
        for rule in (*self.eligibility, *self.victims.eligible):
            if rule.when is not None:
                yield rule.when
        for key in self.victims.importance:
            yield key.expression
