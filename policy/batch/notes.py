"""What in a cluster, or in the rules, a session cannot use as it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Oddity(StrEnum):
    """What a session cannot use as it is. Values are stored and never renamed."""

    QUEUE_MISSING = "queue-missing"  # the job's queue does not exist: the job is left out
    GROUP_MISSING = "group-missing"  # the pods name a pod group that does not exist: left out
    WITHOUT_GROUP = "without-group"  # the pod names no pod group: Volcano does not place it
    BUDGET_WITHOUT_CONTROLLER = "budget-without-controller"  # it describes no job: ignored
    #: the original reads a missing or relative minAvailable as 0, or ends the process
    BUDGET_WITHOUT_NUMBER = "budget-without-number"
    NODE_MISSING = "node-missing"  # the pod names a node that is not in the session
    NODE_TOO_SMALL = "node-too-small"  # the node's allocatable is negative: it is left out
    NODE_FULL = "node-full"  # the pods before this one already fill the node: it is not counted
    SAME_UID = "same-uid"  # another pod has the same uid: this one goes by its name
    QUEUE_FIELD_IGNORED = "queue-field-ignored"  # no plugin of these rules reads the field
    NOT_MODELLED = "not-modelled"  # the rules or an object ask for what these sessions do not do


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An oddity and where it is."""

    oddity: Oddity
    subject: str  #: job uid, namespace/name of the pod, name of the node, queue or budget
    detail: str = ""  #: the queue, group, node or field that is missing or ignored
