"""Promises of a place: which were kept, and which were broken."""

from __future__ import annotations

from collections import Counter

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
        self.made: Counter[str] = Counter()  #: by the pod that is nominated
        self.kept = 0
        self.broken: Counter[str] = Counter()  #: by the same pod

    def decided(self, decision: Decision) -> None:
        """Take over what a decision means for the promises made before."""
        for key in decision.effects.clear_nominations:
            self._lost(key)
        pod = decision.preemptor
        if decision.outcome is Outcome.BIND:
            self._placed(pod, decision.node)
        elif decision.effects.nomination is NominationChange.CLEAR:
            self._lost(pod)
        elif decision.effects.nomination is NominationChange.SET and decision.node:
            self._promised(pod, decision.node)

    def group_decided(self, decision: GroupDecision) -> None:
        """Take over what the cycle of a group means for the promises made before."""
        done = decision.effects
        for key in done.clear_nominations:
            self._lost(key)
        for key, node in done.bind.items():
            self._placed(key, node)
        for key, node in done.nominate.items():
            if node:
                self._promised(key, node)
            else:
                self._lost(key)

    def _lost(self, pod: str) -> None:
        if self._node.pop(pod, None) is not None:
            self.broken[pod] += 1

    def _placed(self, pod: str, node: str | None) -> None:
        promised = self._node.pop(pod, None)
        if promised is not None and promised == node:
            self.kept += 1
        elif promised is not None:
            self.broken[pod] += 1

    def _promised(self, pod: str, node: str) -> None:
        before = self._node.get(pod)
        if before != node:
            if before is not None:
                self.broken[pod] += 1
            self.made[pod] += 1
            self._node[pod] = node

    def ended(self, pod: str) -> None:
        """The pod was withdrawn."""
        self._node.pop(pod, None)
