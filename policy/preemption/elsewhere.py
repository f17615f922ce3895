"""Would a pod that runs fit on another node, once it has left its own?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from policy.cluster.objects import Pod, Volume
from policy.cluster.snapshot import NodeIndex, Rows, Snapshot
from policy.cluster.tables import Bools
from policy.filters.base import SUCCESS, Incoming
from policy.filters.pipeline import ConfiguredFilter, Pipeline, narrowing


def fits_elsewhere(snapshot: Snapshot, uses: Sequence[ConfiguredFilter]) -> Bools:
    """Pods on nodes that would pass the filters on another node; shape (pods,).

    Each pod is taken off its node and placed anew as a pending pod with the same spec, while every
    other pod stays where it is. No pod is evicted for it, the preemptor is nowhere yet, extenders
    are not queried, and what it would find there is not kept for it.
    """
    found = np.zeros(len(snapshot.pods), dtype=np.bool_)
    if len(snapshot.nodes) < 2:
        return found
    for rows in _alike(snapshot).values():
        nodes = snapshot.node[rows]
        first = rows[:1]
        passing, everywhere = _passing(snapshot, uses, int(first[0]))
        if everywhere:
            found[rows] = _on_another(passing, nodes)
            continue
        # What other pods forbid depends on where the pod itself was.
        for node in np.unique(nodes).tolist():
            here = rows[nodes == node]
            if here[0] != first[0]:
                passing, _ = _passing(snapshot, uses, int(here[0]))
            found[here] = _on_another(passing, snapshot.node[here])
    return found


def _on_another(passing: Bools, nodes: NodeIndex) -> Bools:
    """passing: (nodes of the cluster,); nodes: (n,) on which the pods are. Shape (n,)."""
    return np.asarray(int(passing.sum()) > passing[nodes])


def _alike(snapshot: Snapshot) -> dict[bytes, Rows]:
    """Rows of the pods on nodes, by everything of them that filters read."""
    kinds: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(snapshot.node >= 0).tolist():
        pod = snapshot.pods[row]
        assert pod is not None
        meta, status = pod.metadata, pod.status
        volumes = _volumes(pod)
        spec = replace(pod.spec, node_name="", volumes=volumes or None)
        sizes = (status.resources, status.container_statuses, status.init_container_statuses)
        claims = status.resource_claim_statuses
        # A volume of its own has a claim that is named after the pod.
        name = meta.name if volumes else ""
        kind = [meta.namespace, name, meta.labels, meta.owner_references, spec, *sizes, claims]
        kinds.setdefault(msgspec.json.encode(kind), []).append(row)
    return {kind: np.array(rows, dtype=np.int64) for kind, rows in kinds.items()}


def _passing(snapshot: Snapshot, uses: Sequence[ConfiguredFilter], row: int) -> tuple[Bools, bool]:
    """Nodes that the pod of a row passes once it has left its own; shape (nodes,).

    And: where the pod was is of no account on the other nodes.
    """
    pod = snapshot.pods[row]
    assert pod is not None
    key = snapshot.keys[row]
    moved = _pending(pod)
    without = snapshot.apply([("Pod", key, moved)])
    incoming = Incoming(snapshot=without, pod=moved, key=key, row=row)
    pipeline = Pipeline(incoming, uses)
    local = pipeline.local and not _volumes(pod)
    size = len(snapshot.nodes)
    passing = np.ones(size, dtype=np.bool_)
    narrowed = narrowing(incoming, uses)
    if narrowed is not None:
        if narrowed.rejected or narrowed.error:
            return np.zeros(size, dtype=np.bool_), local
        if narrowed.names is not None:
            passing = np.array([n in narrowed.names for n in snapshot.nodes.names], dtype=np.bool_)
    passing &= pipeline.judge(pipeline.base, np.arange(size)).codes == SUCCESS
    return passing, local


def _volumes(pod: Pod) -> list[Volume]:
    """Those of which a scheduler reads more than the name."""
    return [volume for volume in pod.spec.volumes or () if volume != Volume(name=volume.name)]


def _pending(pod: Pod) -> Pod:
    """The pod as it would wait for a node again."""
    status = replace(pod.status, phase="Pending", start_time=None, nominated_node_name="")
    meta = replace(pod.metadata, deletion_timestamp=None)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=status)
