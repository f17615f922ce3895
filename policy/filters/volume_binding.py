"""volume-binding: a bound volume must be usable on the node.

Eviction resolves none of it: the node affinity of a volume does not depend on pods, and a missing
claim or volume does not appear because a pod leaves. Claims that are not bound yet are left alone:
which volume they will get is not in a dump.

Source: VolumeBinding's PreFilter and Filter (1.20 to 1.35).
"""

from __future__ import annotations

import numpy as np

from policy.cluster.objects import PersistentVolume
from policy.cluster.selectors import RequiredNodes, compile_node_selector
from policy.cluster.tables import Bools, NodeTable
from policy.filters.base import (
    UNRESOLVABLE,
    Filter,
    FilterInfo,
    Incoming,
    Narrowing,
    Parameters,
    StaticFilter,
    Verdicts,
)
from policy.filters.messages import Messages, text_of
from policy.filters.node_affinity import matching_nodes
from policy.filters.volume_claims import (
    MISSING_CLAIMS,
    VOLUME,
    claim_not_found,
    claim_of,
    claim_references,
    is_missing,
    volume_of,
)

NO_MATCH = {
    Messages.V1_14: "node(s) had volume node affinity conflict",
    Messages.V1_33: "node(s) didn't match PersistentVolume's node affinity",
}
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def _usable(nodes: NodeTable, volume: PersistentVolume) -> Bools | None:
    """Nodes on which the volume can be used; None for all of them."""
    affinity = volume.spec.node_affinity
    terms = compile_node_selector(None if affinity is None else affinity.required)
    if terms is None:
        return None
    return matching_nodes(nodes, RequiredNodes(selector=(), terms=terms))


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.volumes:
        return None
    snapshot = incoming.snapshot
    size = len(snapshot.nodes)
    usable = np.ones(size, dtype=np.bool_)
    lost = False
    for reference in claim_references(incoming.pod):
        claim = claim_of(snapshot, reference)
        if claim is None or not claim.spec.volume_name:
            continue
        volume = volume_of(snapshot, claim)
        if volume is None:
            # Where no volume is shown at all, the dump came without them.
            lost = lost or bool(snapshot.of_kind(VOLUME))
            continue
        nodes = _usable(snapshot.nodes, volume)
        if nodes is not None:
            usable &= nodes
    if lost:
        return StaticFilter(Verdicts.single(np.full(size, UNRESOLVABLE, np.int8), NO_VOLUME))
    if usable.all():
        return None
    codes = np.where(usable, 0, UNRESOLVABLE).astype(np.int8)
    return StaticFilter(Verdicts.single(codes, text_of(NO_MATCH, incoming.messages)))


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    """The first claim that is missing, lost, on its way out or another pod's rejects the pod."""
    snapshot, pod = incoming.snapshot, incoming.pod
    for reference in claim_references(pod):
        name = reference.name
        claim = claim_of(snapshot, reference)
        if claim is None:
            if not is_missing(snapshot, reference, parameters):
                continue
            text = claim_not_found(name)
            if reference.ephemeral:
                text = (
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                    f'"{name}"'
                )
            return Narrowing(rejected=(text,))
        if claim.status.phase == "Lost":
            volume = claim.spec.volume_name
            return Narrowing(
                rejected=(
                    f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                    f'"{volume}"',
                )
            )
        if claim.metadata.deletion_timestamp:
            return Narrowing(rejected=(f'persistentvolumeclaim "{name}" is being deleted',))
        owners = claim.metadata.owner_references or ()
        if reference.ephemeral and not any(
            o.controller and o.uid == pod.metadata.uid for o in owners
        ):
            return Narrowing(
                rejected=(
                    f"PVC {reference.key} was not created for pod {incoming.key} "
                    "(pod is not owner)",
                )
            )
    return None


INFO = FilterInfo(
    name="volume-binding",
    plugin="VolumeBinding",
    doc="Node affinity of bound volumes; claims and volumes that are missing. Eviction cannot "
    "resolve it. Unbound claims are left alone.",
    build=build,
    narrow=narrow,
    parameters={
        "missingClaims": MISSING_CLAIMS,
    },
)
