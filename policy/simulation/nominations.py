"""Promises of a place: which were kept, and which were broken."""

from __future__ import annotations

from policy.decision.groups import GroupDecision
from policy.decision.model import Decision, NominationChange, Outcome


class NominationCounter:
    """Counts what becomes of the nominations of a run.

    One is kept where the pod is placed on its node. It is broken where the pod is placed on another
    node, is nominated to another one, or loses it to a more important pod or for want of a
    candidate. One whose pod is withdrawn, and one that the end of the simulation overtakes, is
    neither.
    """

    def __init__(self) -> None:
        self._node: dict[str, str] = {}
        self.made = 0
        self.kept = 0
        self.broken = 0

    def decided(self, decision: Decision) -> None:
        """Take over what a decision means for the promises made before."""
        for key in decision.effects.clear_nominations:
            self.broken += self._node.pop(key, None) is not None
        pod = decision.preemptor
        if decision.outcome is Outcome.BIND:
            self._placed(pod, decision.node)
        elif decision.effects.nomination is NominationChange.CLEAR:
            self.broken += self._node.pop(pod, None) is not None
        elif decision.effects.nomination is NominationChange.SET and decision.node:
            self._promised(pod, decision.node)

    def group_decided(self, decision: GroupDecision) -> None:
        """Take over what the cycle of a group means for the promises made before."""
        done = decision.effects
        for key in done.clear_nominations:
            self.broken += self._node.pop(key, None) is not None
        for key, node in done.bind.items():
            self._placed(key, node)
        for key, node in done.nominate.items():
            if node:
                self._promised(key, node)
            else:
                self.broken += self._node.pop(key, None) is not None

    def _placed(self, pod: str, node: str | None) -> None:
        promised = self._node.pop(pod, None)
        self.kept += promised is not None and promised == node
        self.broken += promised is not None and promised != node

    def _promised(self, pod: str, node: str) -> None:
        before = self._node.get(pod)
        if before != node:
            self.broken += before is not None
            self.made += 1
            self._node[pod] = node

    def ended(self, pod: str) -> None:
        """The pod was withdrawn."""
        self._node.pop(pod, None)
