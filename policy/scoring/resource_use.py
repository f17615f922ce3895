"""What a node's pods and the incoming pod use, as the resource scorers count it.

A container that does not say how much it needs counts as if it asked for a little of it:
otherwise any number of such pods would pile up on the emptiest node.

Source: NodeInfo's NonZeroRequested, PodRequests with NonMissingContainerRequests (1.35).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from policy.cluster.objects import Container, Pod, ResourceRequirements
from policy.cluster.occupancy import Occupancy
from policy.cluster.requests import CPU, CURRENT, EPHEMERAL, MEMORY, pod_requests
from policy.cluster.snapshot import Delta, Snapshot
from policy.cluster.tables import Ints, PodColumn, Pools
from policy.filters.base import Incoming, Nodes, NodeUse, Parameters
from policy.typed import prepared

ASSUMED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}
"""Milli cpu and bytes that a container without a request counts for."""
_ASSUMED_QUANTITY: Final = {CPU: "100m", MEMORY: "200Mi"}


def _names(container: Container, name: str) -> bool:
    """Does the container say how much of the resource it needs?"""
    requests = container.resources.requests if container.resources else None
    return requests is not None and name in requests


def _filled(container: Container, name: str) -> Container:
    if _names(container, name):
        return container
    resources = container.resources or ResourceRequirements()
    requests = {**(resources.requests or {}), name: _ASSUMED_QUANTITY[name]}
    return replace(container, resources=replace(resources, requests=requests))


def assumed(pod: Pod, name: str, *, on_node: bool) -> int:
    """What has to be added to the pod's request for containers that name none.

    on_node: as the scheduler counts a pod that occupies a node.
    """
    spec = pod.spec
    of_pod = spec.resources
    if of_pod is not None and name in (of_pod.requests or {}):
        return 0  # the pod's own figure replaces those of its containers
    known = set()
    if on_node:
        known = {
            status.name
            for status in pod.status.container_statuses or ()
            if status.resources is not None and name in (status.resources.requests or {})
        }
    containers = spec.containers or []
    lacking = sum(not _names(c, name) and c.name not in known for c in containers)
    init = spec.init_containers or []
    if not lacking and all(_names(c, name) for c in init):
        return 0
    bare = pod_requests(pod, on_node=on_node)
    limited = of_pod is not None and bool(of_pod.requests or of_pod.limits)
    if on_node and limited and name in bare:
        return 0
    if not init:
        return ASSUMED[name] * lacking
    whole = replace(
        spec,
        containers=[c if c.name in known else _filled(c, name) for c in containers],
        init_containers=[_filled(c, name) for c in init],
    )
    full = pod_requests(replace(pod, spec=whole), on_node=on_node)
    return full.get(name, 0) - bare.get(name, 0)


def _column(name: str) -> PodColumn:
    def of(pod: Pod, _: Pools) -> int:
        containers = pod.spec.containers
        if containers is not None and len(containers) == 1 and not pod.spec.init_containers:
            # By far the most pods, and answered without a call for each of them.
            resources = containers[0].resources
            if resources is not None and resources.requests and name in resources.requests:
                return 0
        return assumed(pod, name, on_node=True)

    return PodColumn(f"assumed {name}", np.int64, of, gone=0, reads=frozenset({"spec", "sizes"}))


_ASSUMED_COLUMNS: Final = {name: _column(name) for name in ASSUMED}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _AssumedSums:
    """Per node, what its pods count for beyond what they ask for; kept up to date by deltas."""

    name: str
    sums: Ints  #: (nodes,)

    @staticmethod
    def build(snapshot: Snapshot, *, name: str) -> _AssumedSums:
        values = snapshot.column(_ASSUMED_COLUMNS[name])
        rows = np.flatnonzero((values != 0) & (snapshot.node >= 0))
        sums = np.zeros(len(snapshot.nodes), dtype=np.int64)
        np.add.at(sums, snapshot.node[rows], values[rows])
        return _AssumedSums(name=name, sums=sums)

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _AssumedSums | None:
        if delta.nodes_changed and after.nodes.names != before.nodes.names:
            return None
        column = _ASSUMED_COLUMNS[self.name]
        left, came = delta.old_node >= 0, delta.new_node >= 0
        less = before.column(column)[delta.rows[left]]
        more = after.column(column)[delta.rows[came]]
        if not np.count_nonzero(less) and not np.count_nonzero(more):
            return self
        sums = self.sums.copy()
        np.subtract.at(sums, delta.old_node[left], less)
        np.add.at(sums, delta.new_node[came], more)
        return _AssumedSums(name=self.name, sums=sums)


class ResourceWeight(msgspec.Struct, frozen=True):
    """A resource, and how much it counts."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    weight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResourceUse:
    """One resource on some nodes, the incoming pod included."""

    room: Ints  #: (n,) allocatable
    used: Ints  #: (n,)
    asked: int  #: by the incoming pod


def use_of(incoming: Incoming, name: str, nodes: Nodes, *, assume: bool) -> ResourceUse:
    """assume: containers without a request count for a little."""
    snapshot = incoming.snapshot
    asked = incoming.requests(CURRENT).get(name, 0)
    if assume:
        asked += assumed(incoming.pod, name, on_node=False)
    column = snapshot.pools.resources.ids.get(name)
    if column is None:
        nothing = np.zeros(nodes.size, dtype=np.int64)
        return ResourceUse(room=nothing, used=nothing, asked=asked)
    given = None if incoming.node_use is None else incoming.node_use.get(name)
    if given is not None or assume:
        use = node_use(snapshot, name) if given is None else given
        used = use.requested[nodes] + asked
    else:
        used = Occupancy.of(snapshot, CURRENT).requested[nodes, column] + asked
    if assume:
        used = used + use.assumed[nodes]
    return ResourceUse(room=snapshot.allocatable[nodes, column], used=used, asked=asked)


def weighed(
    incoming: Incoming, parameters: Parameters, nodes: Nodes
) -> tuple[dict[str, ResourceUse], dict[str, int]]:
    """Use and weight of the resources of a strategy, by name; cpu and memory first."""
    uses = {name: use_of(incoming, name, nodes, assume=True) for name in ASSUMED}
    weights = {name: max(0, parameters[name]) for name in uses}
    for name, (use, weight) in further(incoming, parameters["resources"], nodes).items():
        uses[name], weights[name] = use, weight
    return uses, weights


def further(
    incoming: Incoming, entries: Sequence[Any], nodes: Nodes
) -> dict[str, tuple[ResourceUse, int]]:
    """Use and weight of listed resources, of devices and the like where the pod asks for them."""
    found: dict[str, tuple[ResourceUse, int]] = {}
    if not entries:
        return found
    for entry in msgspec.convert(entries, prepared(list[ResourceWeight])):
        use = use_of(incoming, entry.name, nodes, assume=False)
        if use.asked or entry.name == EPHEMERAL:
            found[entry.name] = use, entry.weight
    return found


def node_use(snapshot: Snapshot, name: str) -> NodeUse:
    """What the snapshot's pods use of a resource (cpu or memory), node by node."""
    column = snapshot.pools.resources.ids.get(name)
    if column is None:
        nothing = np.zeros(len(snapshot.nodes), dtype=np.int64)
        requested = nothing
    else:
        requested = Occupancy.of(snapshot, CURRENT).requested[:, column]
    assumed = snapshot.derived(("assumed", name), partial(_AssumedSums.build, name=name)).sums
    return NodeUse(requested=requested, assumed=assumed)


def pod_use(snapshot: Snapshot, name: str, rows: Ints) -> tuple[Ints, Ints]:
    """What each pod adds to both figures of `node_use` where it is on a node; (rows,) each."""
    column = snapshot.pools.resources.ids.get(name)
    requests = snapshot.requests(CURRENT)
    requested = np.zeros(rows.size, dtype=np.int64) if column is None else requests[rows, column]
    return requested, snapshot.column(_ASSUMED_COLUMNS[name])[rows]
