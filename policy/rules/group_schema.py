"""The shape of the `groups` section of a rule file, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policy.rules.group_rules import (
    AssumedTerms,
    MemberDeletions,
    MemberPriority,
    Nominations,
    OrdinaryVictims,
    ReprieveTest,
    Success,
    UnitBudgets,
    UnitSearch,
    UnitStart,
)
from policy.rules.schema_parts import EligibilityModel, EligibleModel, ImportanceModel, Model, Word


class GatesModel(Model):
    """Feature gates; a rule set with `groups` has `GenericWorkload` on."""

    gangScheduling: bool = Field(True, description="`minCount` counts; without, all are `basic`")
    workloadAwarePreemption: bool = Field(
        True, description="groups preempt as one; without, each member preempts for itself"
    )


class UnitsModel(Model):
    """What is preempted as one."""

    wholeGroups: bool = Field(
        True, description="running pods of a group in disruption mode `PodGroup` leave together"
    )
    memberPriority: Annotated[MemberPriority, Word] = Field(
        MemberPriority.POD, description="priority of a unit that is one member of a group"
    )
    start: Annotated[UnitStart, Word] = Field(
        UnitStart.FIRST_FOUND, description="start of a unit: of the first pod found, or the oldest"
    )
    ordinary: Annotated[OrdinaryVictims, Word] = Field(
        OrdinaryVictims.PODS,
        description="what an ordinary pod takes of a group in disruption mode `PodGroup`: single "
        "`pods`; `none` of them, where several run; or the `whole` group, on every node, where "
        "all of its pods may leave and its priority is lower than that of the preemptor",
    )


class UnitBudgetsModel(Model):
    """How pod disruption budgets are counted over units."""

    count: Annotated[UnitBudgets, Word] = Field(
        UnitBudgets.STOP_AT_FIRST,
        description="stop-at-first: a violated budget ends the counting of its unit; decrement: "
        "every budget of every pod is counted; static: none is used up",
    )
    disruptedPods: Literal["skip", "count"] = Field(
        "skip", description="pods in a budget's `disruptedPods` use up nothing, or a disruption"
    )


class UnitVictimsModel(Model):
    """Which units may be preempted, and which are kept first."""

    eligible: list[EligibleModel] = Field(min_length=1)
    importance: list[ImportanceModel] = Field(min_length=1)
    budgets: UnitBudgetsModel = UnitBudgetsModel.model_validate({})
    reprieve: list[Literal["pdb-violating", "others", "all"]] = ["pdb-violating", "others"]
    reprieveTest: Annotated[ReprieveTest, Word] = Field(
        ReprieveTest.PASS,
        description="when a unit may stay: a new `pass` succeeds, or every member still fits on "
        "the node that it was given (`fixed-nodes`)",
    )
    search: Annotated[UnitSearch, Word] = Field(
        UnitSearch.GREEDY,
        description="`fewer`: after the reprieve, exchanges are tried that evict fewer pods",
    )
    searchPasses: Annotated[int, Field(ge=0, le=100_000)] = Field(
        200, description="passes that the search for fewer victims may make"
    )


class GroupsModel(Model):
    """Pod groups (KEP-4671, KEP-5710). Left out: every pod is scheduled by itself."""

    gates: GatesModel = GatesModel.model_validate({})
    eligibility: list[EligibilityModel] = Field(min_length=1)
    units: UnitsModel = UnitsModel.model_validate({})
    victims: UnitVictimsModel
    success: Annotated[Success, Word] = Field(
        Success.QUORUM, description="a pass places the group: `quorum`, or `all` tried members"
    )
    nominations: Annotated[Nominations, Word] = Field(
        Nominations.FIRST_PASS,
        description="members of a preempting group that are nominated: those that fitted in the "
        "`first-pass`, or all that the deciding pass `placed`",
    )
    memberDeletions: Annotated[MemberDeletions, Word] = Field(
        MemberDeletions.AT_ONCE,
        description="when victims of members that preempt for themselves are deleted",
    )
    assumedTerms: Annotated[AssumedTerms, Word] = Field(
        AssumedTerms.FROZEN,
        description="where anti-affinity of members just placed counts: on nodes that held a pod "
        "with such terms before (`frozen`), or everywhere (`current`)",
    )
    victimsInMessage: bool = Field(
        False, description="the status of a preempting group says how many pods leave (1.37)"
    )
