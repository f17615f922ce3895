"""The functions that plugins register with a session, and how they are consulted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.batch.model import Task

Scores: TypeAlias = NDArray[np.float64]
Event: TypeAlias = Callable[[Task], None]

FLAGS: Final[Mapping[str, str]] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "task_order": "enableTaskOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "queue_order": "enableQueueOrder",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
}
"""The function that each flag of a rule file switches off; `overused` has none."""

KINDS: Final = frozenset(FLAGS) | {"overused"}
"""Functions that a plugin may register: they decide."""

HINTS: Final = frozenset(
    {"predicate_reasons", "preemptable_jobs", "preemptable_tasks", "reclaimable_jobs"}
    | {"reclaimable_tasks", "predicate_class", "predicate_at", "node_order_class"}
    | {"preemptable_limits", "reclaimable_limits"}
)
"""Functions that a plugin may register beside: they explain, or spare work, and decide nothing."""


@dataclass(frozen=True, slots=True)
class Consulted:
    """One function at its place in the tiers."""

    tier: int
    plugin: str
    function: Callable[..., Any]
