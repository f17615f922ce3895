"""One cycle's conversation with the extenders of its rule set: pure, but for who answers.

As kube-scheduler has it: one after the other in the order of the rule file, each given what the
former one left; asked only where they have a verb for it and look after a resource that the pod
uses. A failed call is skipped where the extender is `ignorable`; otherwise it fails the cycle
(filter) or the preemption (preempt). Failures of prioritize never matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policy.cluster.objects import Pod
from policy.cluster.occupancy import snapshot_order
from policy.cluster.tables import Ints
from policy.decision.model import ExtenderCall
from policy.extenders.protocol import (
    Answer,
    Extenders,
    ExtenderVerb,
    filter_answer,
    nodes_request,
    preempt_answer,
    priorities,
    request_digest,
    uid_of,
    verb_of,
    victims_request,
)
from policy.filters.base import Incoming, Nodes
from policy.rules.ruleset import Extender, UnmentionedNodes

_SCALE = 10
"""An extender's scores go to 10, the scheduler's to 100."""
_MOST = 2**40
"""Scores are cut off here: what an extender sends is not checked elsewhere."""


class ExtenderFailed(Exception):  # what happened, in kube-scheduler's words
    """A call failed whose extender may not be ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """What is left of the nodes, and statuses of nodes by index."""

    passing: Nodes  #: ascending
    failed: Mapping[int, str] = field(default_factory=dict)
    unresolvable: Mapping[int, str] = field(default_factory=dict)
    unmentioned: Mapping[int, UnmentionedNodes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What prioritize adds to the nodes' totals."""

    added: Ints  #: (n,)
    #: (name for the trace, weight, value 0..100 of each node) per extender that answered
    values: tuple[tuple[str, int, Ints], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOffer:
    """A candidate: a node, and who would leave it."""

    node: int
    victims: tuple[int, ...]  #: rows of pods, in the order in which ranking reads them
    pdb_violations: int


def manages(extender: Extender, pod: Pod) -> bool:
    """Does the extender look after a resource that the pod names (or after all pods)?"""
    if not extender.managed_resources:
        return True
    names = {resource.name for resource in extender.managed_resources}
    return any(
        not names.isdisjoint(amounts or ())
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        if container.resources is not None
        for amounts in (container.resources.requests, container.resources.limits)
    )


def left_to_extenders(extenders: Sequence[Extender]) -> frozenset[str]:
    """Resources that the scheduler's own filters do not look at."""
    return frozenset(
        r.name for e in extenders for r in e.managed_resources if r.ignored_by_scheduler
    )


class Consultation:
    """Asks the extenders and keeps what was said."""

    def __init__(
        self, incoming: Incoming, extenders: Sequence[Extender], answers: Extenders
    ) -> None:
        self._incoming = incoming
        self._snapshot = incoming.snapshot
        self._extenders = tuple(e for e in extenders if manages(e, incoming.pod))
        self._answers = answers
        self._calls: list[ExtenderCall] = []

    @property
    def calls(self) -> tuple[ExtenderCall, ...]:
        """Every exchange so far, in order."""
        return tuple(self._calls)

    def _asked(self, kind: ExtenderVerb) -> Iterator[Extender]:
        """Extenders that take part in this step, in order."""
        return (e for e in self._extenders if verb_of(e, kind))

    def _ask(self, kind: ExtenderVerb, extender: Extender, request: bytes) -> Answer:
        answer = self._answers.ask(kind, extender, request)
        self._calls.append(
            ExtenderCall(
                extender=extender.url_prefix,
                verb=kind.value,
                request=request_digest(request),
                status=answer.status,
                error=answer.error,
                answer=answer.content,
            )
        )
        return answer

    def _about(self, extender: Extender, nodes: Nodes) -> bytes:
        every = self._snapshot.nodes.nodes
        return nodes_request(
            self._incoming.pod,
            [every[i] for i in nodes.tolist()],
            names_only=extender.node_cache_capable,
        )

    # --- filter --------------------------------------------------------------------------------

    def filter(self, nodes: Nodes) -> FilterResult:
        """Which of the nodes (ascending) the extenders leave. Raises ExtenderFailed."""
        index = self._snapshot.nodes.index
        failed: dict[int, str] = {}
        unresolvable: dict[int, str] = {}
        unmentioned: dict[int, UnmentionedNodes] = {}
        for extender in self._asked(ExtenderVerb.FILTER):
            if not nodes.size:
                break
            answer = self._ask(ExtenderVerb.FILTER, extender, self._about(extender, nodes))
            try:
                said = filter_answer(_content(answer))
                if said.error:
                    raise ExtenderFailed(said.error)
                left = self._left(extender, nodes, said.node_names or ())
            except ExtenderFailed:
                if extender.ignorable:
                    continue
                raise
            hopeless = said.failed_and_unresolvable_nodes
            for told, into, other in (
                (said.failed_nodes, failed, unresolvable),
                (hopeless, unresolvable, failed),
            ):
                for name, text in told.items():
                    if name in index and not (into is failed and name in hopeless):
                        into[index[name]] = text
                        other.pop(index[name], None)
            for node in np.setdiff1d(nodes, left).tolist():
                if node not in failed and node not in unresolvable:
                    unmentioned[node] = extender.unmentioned_nodes
            nodes = left
        return FilterResult(
            passing=nodes, failed=failed, unresolvable=unresolvable, unmentioned=unmentioned
        )

    def _left(self, extender: Extender, nodes: Nodes, names: Sequence[str]) -> Nodes:
        offered = set(nodes.tolist())
        left: set[int] = set()
        for name in names:
            at = self._snapshot.nodes.index.get(name)
            if at is None or at not in offered:
                raise ExtenderFailed(
                    f'extender "{extender.url_prefix}" claims a filtered node "{name}" which is '
                    "not found in the input node list"
                )
            left.add(at)
        return np.array(sorted(left), dtype=np.int64)

    # --- prioritize ----------------------------------------------------------------------------

    def prioritize(self, nodes: Nodes) -> Preferences:
        """What the extenders make of the nodes (ascending) that are left."""
        position = {i: at for at, i in enumerate(nodes.tolist())}
        added = np.zeros(nodes.size, dtype=np.int64)
        told: list[tuple[str, int, Ints]] = []
        for extender in self._asked(ExtenderVerb.PRIORITIZE):
            answer = self._ask(ExtenderVerb.PRIORITIZE, extender, self._about(extender, nodes))
            if answer.error:
                continue
            values = np.zeros(nodes.size, dtype=np.int64)
            for host in priorities(answer.content):
                at = position.get(self._snapshot.nodes.index.get(host.host, -1))
                if at is not None:
                    # A node that is named twice counts twice.
                    values[at] += max(-_MOST, min(_MOST, host.score)) * _SCALE
            added += extender.weight * values
            told.append((f"extender {extender.url_prefix}", extender.weight, values))
        return Preferences(added=added, values=tuple(told))

    # --- preempt -------------------------------------------------------------------------------

    def preempt(self, offers: Sequence[CandidateOffer]) -> list[CandidateOffer]:
        """What the extenders leave of the candidates, by node. Raises ExtenderFailed."""
        left = list(offers)
        for extender in self._asked(ExtenderVerb.PREEMPT):
            if not left:
                break
            answer = self._ask(ExtenderVerb.PREEMPT, extender, self._offering(extender, left))
            try:
                left = self._chosen(extender, answer)
            except ExtenderFailed:
                if not extender.ignorable:
                    raise
        return sorted(left, key=lambda offer: offer.node)

    def _offering(self, extender: Extender, offers: Sequence[CandidateOffer]) -> bytes:
        names, pods = self._snapshot.nodes.names, self._snapshot.pods
        told = {}
        for offer in offers:
            victims = [pod for row in offer.victims if (pod := pods[row]) is not None]
            short = extender.node_cache_capable and extender.forgets_violations
            told[names[offer.node]] = (victims, 0 if short else offer.pdb_violations)
        return victims_request(self._incoming.pod, told, names_only=extender.node_cache_capable)

    def _chosen(self, extender: Extender, answer: Answer) -> list[CandidateOffer]:
        """The answer's candidates; their pods must be on their nodes, their use is not checked."""
        said = preempt_answer(_content(answer)).node_name_to_meta_victims
        snapshot = self._snapshot
        order = snapshot_order(snapshot)
        offers = []
        for name, victims in sorted(said.items()):
            node = snapshot.nodes.index.get(name)
            if node is None:
                raise ExtenderFailed(f'nodeinfo not found for node name "{name}"')
            here = order.rows[order.offsets[node] : order.offsets[node + 1]].tolist()
            by_uid = {uid_of(p): row for row in here if (p := snapshot.pods[row]) is not None}
            rows = []
            for pod in victims.pods:
                if pod.uid not in by_uid:
                    raise ExtenderFailed(
                        f"extender: {extender.url_prefix} claims to preempt pod "
                        f"(UID: &{{{pod.uid}}}) on node: {name}, but the pod is not found on that "
                        "node"
                    )
                rows.append(by_uid[pod.uid])
            unique = tuple(dict.fromkeys(rows))
            violations = 0 if extender.forgets_violations else victims.pdb_violations
            offers.append(CandidateOffer(node=node, victims=unique, pdb_violations=violations))
        empty = [o for o in offers if not o.victims]
        if empty and not extender.ignorable:
            name = snapshot.nodes.names[empty[0].node]
            raise ExtenderFailed(f'expected at least one victim pod on node "{name}"')
        return [o for o in offers if o.victims]


def _content(answer: Answer) -> str:
    if answer.error:
        raise ExtenderFailed(answer.error)
    return answer.content
