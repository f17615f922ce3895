"""volume-zone: zone and region labels of bound volumes. Eviction cannot help.

A node without any zone or region label takes every volume: a cluster of one zone need not label
its nodes.

Source: VolumeZone's PreFilter and Filter (1.20 to 1.35).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from policy.cluster.objects import PersistentVolume
from policy.cluster.tables import Bools, NodeTable
from policy.filters.base import (
    UNRESOLVABLE,
    Filter,
    FilterInfo,
    Incoming,
    Narrowing,
    Parameter,
    Parameters,
    StaticFilter,
    Verdicts,
)
from policy.filters.volume_claims import (
    VOLUME,
    claim_of,
    claim_references,
    volume_of,
)

REASON = "node(s) had no available volume zone"
#: label key to the key that took its place
_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


def zones(value: str) -> frozenset[str] | None:
    """Zones of a volume's label (`a__b`: replicated over both); None where it is malformed."""
    found = [part.strip() for part in value.split("__")]
    return frozenset(found) if all(found) else None


def topologies(volume: PersistentVolume) -> Iterator[tuple[str, frozenset[str]]]:
    """Label key and values that a node must have one of; malformed labels are ignored."""
    labels = volume.metadata.labels or {}
    for key in _LABELS:
        if key in labels:
            values = zones(labels[key])
            if values is not None:
                yield key, values


def _bound_volumes(incoming: Incoming) -> Iterator[tuple[str, PersistentVolume | None]]:
    snapshot = incoming.snapshot
    for reference in claim_references(incoming.pod):
        # Only claims that the pod names itself count, not those of ephemeral volumes.
        claim = None if reference.ephemeral else claim_of(snapshot, reference)
        if claim is not None and claim.spec.volume_name:
            yield claim.spec.volume_name, volume_of(snapshot, claim)


def _in_zone(nodes: NodeTable, key: str, values: frozenset[str]) -> Bools:
    """Nodes with one of the values under the key, or, lacking it, under the key's successor."""
    coded = nodes.label(key)
    found = coded.where(lambda v: v in values)
    if _LABELS[key] != key:
        found |= coded.where(lambda v: v is None) & nodes.label(_LABELS[key]).where(
            lambda v: v in values
        )
    return found


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.volumes:
        return None
    wanted = [t for _, v in _bound_volumes(incoming) if v is not None for t in topologies(v)]
    if not wanted:
        return None
    nodes = incoming.snapshot.nodes
    unlabelled = np.ones(len(nodes), dtype=np.bool_)
    for key in _LABELS:
        unlabelled &= nodes.label(key).where(lambda v: v is None)
    fits = np.ones(len(nodes), dtype=np.bool_)
    for key, values in wanted:
        fits &= _in_zone(nodes, key, values)
    codes = np.where(fits | unlabelled, 0, UNRESOLVABLE).astype(np.int8)
    return StaticFilter(Verdicts.single(codes, REASON))


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    if not incoming.pod.spec.volumes or parameters["missingVolumes"] != "rejected":
        return None
    # Where no volume is shown at all, the dump came without them.
    if not incoming.snapshot.of_kind(VOLUME):
        return None
    for name, volume in _bound_volumes(incoming):
        if volume is None:
            return Narrowing(rejected=(f'persistentvolume "{name}" not found',))
    return None


INFO = FilterInfo(
    name="volume-zone",
    plugin="VolumeZone",
    doc="Zone and region labels of bound volumes against those of the node. Eviction cannot "
    "resolve it.",
    build=build,
    narrow=narrow,
    parameters={
        "missingVolumes": Parameter(
            doc="a claim bound to a missing volume rejects the pod for all nodes at "
            "once (1.27 and later), or is left to volume-binding",
            default="rejected",
            choices=("rejected", "left"),
        ),
    },
)
