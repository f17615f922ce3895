"""What a scheduler offers when it calls the extender: candidates with victims that make room."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import msgspec

from policy.cluster.objects import ClusterObject, Node, Pod
from policy.cluster.quantities import milli, units

_Room = tuple[int, int]
"""CPU in milli-cores, and memory in bytes."""


@dataclass(slots=True)
class OfferedNode:
    """A full node, and what may still be evicted from it."""

    left: list[Pod]  #: that are not evicted, lowest priority first
    spare: _Room = (0, 0)  #: of evicted pods, beyond what preemptors need
    #: by what a preemptor needs; b"" where its pods are too few
    encoded: dict[_Room, bytes] = field(default_factory=dict)

    def victims(self, need: _Room) -> list[Pod]:
        """The lowest pods that have to go for a preemptor; none where all of them are too few."""
        cpu, memory = need[0] - self.spare[0], need[1] - self.spare[1]
        found = []
        for pod in self.left:
            found.append(pod)
            freed = room_of(pod)
            cpu, memory = cpu - freed[0], memory - freed[1]
            if cpu <= 0 and memory <= 0:
                return found
        return []

    def evict(self, need: _Room, uids: set[str]) -> None:
        """The pods go, and a preemptor comes."""
        gone = [room_of(pod) for pod in self.left if pod.metadata.uid in uids]
        self.left = [pod for pod in self.left if pod.metadata.uid not in uids]
        self.spare = (
            self.spare[0] + sum(cpu for cpu, _ in gone) - need[0],
            self.spare[1] + sum(memory for _, memory in gone) - need[1],
        )
        self.encoded.clear()


@dataclass(slots=True)
class Offers:
    """Makes calls: the candidates of each are the next nodes that have room for its pod to gain.

    They are those of a cluster that obeys: what an answer names is evicted.
    """

    form: str  #: full or meta
    candidates: int  #: of a call
    nodes: dict[str, OfferedNode]
    _next: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.nodes)

    def prepare(self, preemptors: list[Pod]) -> None:
        """Encode what is offered at first, so that the calls themselves take less time."""
        for need in {room_of(pod) for pod in preemptors}:
            for node in self.nodes:
                self._of(node, need)

    def body(self, preemptor: Pod, encoded: bytes) -> bytes:
        """The request, JSON. encoded: the preemptor, JSON."""
        need = room_of(preemptor)
        offered = ((node, self._of(node, need)) for node in self._round())
        found = itertools.islice((pair for pair in offered if pair[1]), self.candidates)
        # Go writes the keys of a map in their order.
        candidates = b"{%s}" % b",".join([said for _, said in sorted(found)])
        full, meta = (b"null", candidates) if self.form == "meta" else (candidates, b"null")
        return b'{"Pod":%s,"NodeNameToVictims":%s,"NodeNameToMetaVictims":%s}' % (
            encoded,
            full,
            meta,
        )

    def answered(self, preemptor: Pod, body: bytes) -> None:
        """The victims of an answer with one node have to go."""
        nodes = msgspec.json.decode(body)["NodeNameToMetaVictims"]
        if len(nodes) == 1:
            for node, victims in nodes.items():
                uids = {pod["UID"] for pod in victims["Pods"]}
                self.nodes[node].evict(room_of(preemptor), uids)

    def _round(self) -> Iterator[str]:
        """Every node once, from the one after the last candidate."""
        return itertools.islice(self._next, len(self.nodes))

    def _of(self, node: str, need: _Room) -> bytes:
        """What is offered of a node, encoded anew only where its pods are others."""
        offered = self.nodes[node]
        if need not in offered.encoded:
            victims = offered.victims(need)
            told = [{"UID": pod.metadata.uid} for pod in victims]
            candidate = {node: {"Pods": told if self.form == "meta" else victims}}
            candidate[node]["NumPDBViolations"] = 0
            offered.encoded[need] = msgspec.json.encode(candidate)[1:-1] if victims else b""
        return offered.encoded[need]


def offers_of(objects: list[ClusterObject], *, form: str, candidates: int) -> Offers:
    """What a scheduler of the cluster offers."""
    nodes = {obj.metadata.name: OfferedNode([]) for obj in objects if isinstance(obj, Node)}
    pods = [obj for obj in objects if isinstance(obj, Pod)]
    for pod in sorted(pods, key=lambda p: p.spec.priority or 0):
        if pod.spec.node_name:
            nodes[pod.spec.node_name].left.append(pod)
    return Offers(form=form, candidates=candidates, nodes=nodes)


def room_of(pod: Pod) -> _Room:
    """What the pod requests."""
    requests = pod.spec.containers[0].resources.requests
    return _read(requests["cpu"], requests["memory"])


@cache
def _read(cpu: str, memory: str) -> _Room:
    return milli(cpu), units(memory)
