"""The functions that plugins register with a session, the flags that switch them off, and votes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

FLAGS: Final[Mapping[str, str]] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued",
    "job_starving": "enableJobStarving",
    "task_order": "enableTaskOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "queue_order": "enableQueueOrder",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
    "victims": "enabledVictim",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
}
"""The function that each flag of a configuration switches off."""

UNFLAGGED: Final = frozenset({"job_valid", "victim_queue_order"})
"""Functions that no flag switches off."""

KINDS: Final = frozenset(FLAGS) | UNFLAGGED

HINTS: Final = frozenset(
    {"predicate_class", "predicate_at", "predicate_reasons", "node_order_class"}
    | {"preemptable_limits", "reclaimable_limits"}
)
"""Functions that spare work or explain, and decide nothing."""

HIERARCHY: Final = "enableHierarchy"

OFF_BY_DEFAULT: Final = frozenset({HIERARCHY, "enabledClusterOrder"})

WITHOUT_EFFECT: Final = frozenset(
    {"enableBestNode", "enableTargetJob", "enableReservedNodes", "enabledClusterOrder"}
    | {"enabledHyperNodeOrder", "enabledHyperNodeGradient", "enabledSubJobReady"}
    | {"enabledSubJobPipelined", "enabledSubJobOrder"}
)
"""Flags of functions that no plugin here registers."""

ALL_FLAGS: Final = frozenset(FLAGS.values()) | {HIERARCHY} | WITHOUT_EFFECT


class Vote(IntEnum):
    """What a plugin says where plugins vote."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


@dataclass(frozen=True, slots=True)
class Consulted:
    """One function at its place in the tiers."""

    tier: int
    plugin: str
    function: Callable[..., Any]
