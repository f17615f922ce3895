"""The node of a decision before it and after it: who stays, who leaves, who comes, what is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.requests import CURRENT, PODS, RequestRules, amounts, pod_requests
from policy.filters.resources import request_rules
from policy.store import NotFound
from policy.store.state.columns import owner_of
from policy.store.state.versions import FINISHED

if TYPE_CHECKING:
    from policy.rules import RuleSet
    from policy.store import Store, StoredDecision


class Fate(StrEnum):
    """What a decision means for a pod on its node. Values are part of the output."""

    STAYS = "stays"
    LEAVING = "leaving"  # it is being deleted already, and is no victim
    LEAVES = "leaves"  # a victim
    COMES = "comes"  # the pod that the decision is about
    NOMINATED = "nominated"  # it waits for room there; it is not on the node
    LOSES_NOMINATION = "loses-nomination"  # the decision clears its nomination

    @property
    def before(self) -> bool:
        """Is the pod on the node before the decision is carried out?"""
        return self in (Fate.STAYS, Fate.LEAVING, Fate.LEAVES)

    @property
    def after(self) -> bool:
        """Is it there afterwards?"""
        return self in (Fate.STAYS, Fate.LEAVING, Fate.COMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod that is on the node, or is meant for it."""

    pod: str  #: namespace/name
    priority: int
    owner: str  #: Kind/name of the controlling owner, "" without one
    fate: Fate
    requests: Mapping[str, int]  #: milli cpu, bytes or units, and 1 of `pods`


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A node before a decision and after it."""

    node: str
    revision: int  #: the state that the decision was made on
    allocatable: Mapping[str, int]  #: by resource, those of which the node has any
    pods: tuple[NodePod, ...]  #: who stays first, then by priority and name

    def requested_before(self, resource: str) -> int:
        """What the pods on it ask for at first."""
        return sum(p.requests.get(resource, 0) for p in self.pods if p.fate.before)

    def requested_after(self, resource: str) -> int:
        """What they ask for once the victims have left and the pod has come."""
        return sum(p.requests.get(resource, 0) for p in self.pods if p.fate.after)


class NoNodeChange(Exception):  # what happened, in the words of its message
    """The node cannot be shown as it was."""

    def __init__(self, decision: int, why: str) -> None:
        super().__init__(f"decision {decision} has no node to show: {why}")


def node_change(
    store: Store, stored: StoredDecision, rules: RuleSet | None, *, most: int | None = None
) -> NodeChange | None:
    """The node of a decision; None where that takes more looks into the record than `most`.

    rules: of the decision, None where they are gone: requests are counted as those of
    kube-scheduler 1.36 are. Raises NoNodeChange.
    """
    row, record = stored.row, stored.record
    if row.node is None:
        raise NoNodeChange(row.id, "the decision names no node")
    leaving = {victim.pod for victim in record.victims if victim.node == row.node}
    try:
        found = store.state.node_at(
            row.cluster, row.node, row.base_revision, named=(row.preemptor,), most=most
        )
    except NotFound as exc:
        hint = f": {exc.help}" if exc.help else ""
        raise NoNodeChange(row.id, f"its state is not kept: {exc.message}{hint}") from exc
    if found is None:
        return None
    if not found.intact:
        raise NoNodeChange(
            row.id,
            f"the rows of revision {row.base_revision} are not those that were written:"
            " `policy audit verify` names them",
        )
    missing = leaving.difference(key_of(pod) for pod in found.pods)
    if found.node is None or not found.named or missing:
        what = min(missing, default=row.preemptor if found.node else f"node {row.node}")
        why = ", which the decision supposed" if row.hypothetical else ""
        raise NoNodeChange(row.id, f"revision {row.base_revision} does not have {what}{why}")
    return changed(
        found.node,
        found.pods,
        incoming=found.named[0],
        leaving=leaving,
        nominated=found.nominated,
        cleared=record.effects.clear_nominations,
        counted=_counted(rules),
        revision=row.base_revision,
    )


def changed(
    node: Node,
    pods: Sequence[Pod],
    *,
    incoming: Pod,
    leaving: Collection[str],
    nominated: Sequence[Pod] = (),
    cleared: Collection[str] = (),
    counted: RequestRules = CURRENT,
    revision: int = 0,
) -> NodeChange:
    """The same of a node with its pods.

    leaving: keys of the victims on it. nominated: pods that wait for it; cleared: keys of those
    that lose that by the decision.
    """
    here = [pod for pod in pods if pod.status.phase not in FINISHED]
    told = [_told(pod, _fate(pod, leaving), counted) for pod in here]
    told.append(_told(incoming, Fate.COMES, counted))
    told += [
        _told(pod, Fate.LOSES_NOMINATION if key_of(pod) in cleared else Fate.NOMINATED, counted)
        for pod in nominated
        if key_of(pod) != key_of(incoming)
    ]
    order = list(Fate)
    told.sort(key=lambda one: (order.index(one.fate), -one.priority, one.pod))
    return NodeChange(
        node=node.metadata.name,
        revision=revision,
        allocatable={n: has for n, has in sorted(amounts(node.status.allocatable).items()) if has},
        pods=tuple(told),
    )


def _fate(pod: Pod, leaving: Collection[str]) -> Fate:
    if key_of(pod) in leaving:
        return Fate.LEAVES
    return Fate.LEAVING if pod.metadata.deletion_timestamp else Fate.STAYS


def _told(pod: Pod, fate: Fate, counted: RequestRules) -> NodePod:
    on_node = fate.before
    return NodePod(
        pod=key_of(pod),
        priority=pod.spec.priority or 0,
        owner=owner_of(pod),
        fate=fate,
        requests={**pod_requests(pod, on_node=on_node, rules=counted), PODS: 1},
    )


def _counted(rules: RuleSet | None) -> RequestRules:
    used = () if rules is None else [use for use in rules.filters if use.name == "resources"]
    return request_rules(used[0].parameters) if used else CURRENT


def document(change: NodeChange) -> dict[str, Any]:
    """As programs read it: whole numbers, milli cpu, bytes and units."""
    return {
        "node": change.node,
        "revision": change.revision,
        "resources": [
            {
                "resource": name,
                "allocatable": has,
                "requested_before": change.requested_before(name),
                "requested_after": change.requested_after(name),
            }
            for name, has in change.allocatable.items()
        ],
        "pods": [
            {
                "pod": one.pod,
                "priority": one.priority,
                "owner": one.owner,
                "fate": one.fate.value,
                "requests": dict(one.requests),
            }
            for one in change.pods
        ],
    }
