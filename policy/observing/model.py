"""A preemption that was observed: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from policy.cluster import canonical
from policy.cluster.objects import Pod

SCHEDULER_PREEMPTED: Final = "PreemptionByScheduler"
"""`reason` of the condition `DisruptionTarget` that kube-scheduler 1.25 and later sets."""


class Evidence(StrEnum):
    """What shows that a pod was preempted. Values are stored and never renamed."""

    EVENT = "event"  # an Event `Preempted` names victim and preemptor
    CONDITION = "condition"  # DisruptionTarget, reason PreemptionByScheduler
    DELETION = "deletion"  # the pod was being deleted, or was gone
    NOMINATION = "nomination"  # the preemptor was nominated to the victim's node
    AUDIT_LOG = "audit-log"  # the API server's audit log holds the scheduler's requests


class Confidence(StrEnum):
    """How sure it is who preempted whom. Values are stored and never renamed."""

    CERTAIN = "certain"  # an event names both
    LIKELY = "likely"  # the victim is marked, one pod was nominated to its node just then
    POSSIBLE = "possible"  # the preemptor is unknown, or one of several, or nothing is marked


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVictim:
    """A pod that a scheduler evicted, and how that is known."""

    pod: str  #: namespace/name
    uid: str  #: "" where the evidence does not say it
    evidence: tuple[Evidence, ...]
    event_uid: str = ""
    event_version: int = 0  #: resourceVersion of the event; 0 where there is none
    mark_version: int = 0  #: resourceVersion at which the condition appeared
    #: whether this preemption put the condition there, and not another one in the same moment
    marked_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One preemption by a real scheduler, as far as the evidence goes."""

    preemptor: str  #: namespace/name; "" where it is unknown
    preemptor_uid: str
    preemptor_kind: str  #: `Pod` or `PodGroup`
    node: str
    scheduler: str
    at_ms: int  #: the earliest time that the evidence has of it
    confidence: Confidence
    victims: tuple[SeenVictim, ...]
    #: resourceVersion at which the preemptor was nominated to the node by this preemption; 0
    #: where that is unknown or was not seen
    nomination_version: int = 0
    nominated: bool = False  #: whether that nomination was seen
    #: whether an earlier preemption had nominated it to the node already
    again: bool = False

    def document(self) -> dict[str, Any]:
        """The evidence as it is stored."""
        return {
            "preemptorKind": self.preemptor_kind,
            "nominated": self.nominated,
            "nominationVersion": self.nomination_version,
            "again": self.again,
            "victims": [
                {
                    "pod": victim.pod,
                    "uid": victim.uid,
                    "evidence": [str(one) for one in victim.evidence],
                    "eventUid": victim.event_uid,
                    "eventVersion": victim.event_version,
                    "markVersion": victim.mark_version,
                    "markedHere": victim.marked_here,
                }
                for victim in self.victims
            ],
        }

    @property
    def digest(self) -> str:
        """Of everything that was observed."""
        return canonical.digest(
            [
                self.preemptor,
                self.preemptor_uid,
                self.node,
                self.scheduler,
                self.at_ms,
                str(self.confidence),
                self.document(),
            ]
        )


def marked_at(pod: Pod) -> str | None:
    """When a scheduler marked the pod as its victim: the condition's time, "" without one.

    None where it did not.
    """
    for condition in pod.status.conditions or ():
        if (
            condition.type == "DisruptionTarget"
            and condition.status == "True"
            and condition.reason == SCHEDULER_PREEMPTED
        ):
            return condition.last_transition_time or ""
    return None


def nominated_to(pod: Pod | None) -> str:
    """The node that a waiting pod is nominated to, "" for none."""
    if pod is None or pod.spec.node_name or pod.status.phase in ("Succeeded", "Failed"):
        return ""
    return pod.status.nominated_node_name
