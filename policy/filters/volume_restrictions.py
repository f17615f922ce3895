"""volume-restrictions: claims for one pod only, and disks that two pods may not share.

A ReadWriteOncePod claim that any pod of the cluster uses keeps the incoming pod off every node.
Eviction resolves it on the node where that pod is, and nowhere else: the status of the other
nodes is resolvable too, and their dry run finds that it does not help. Inline disks (GCE PD, EBS,
RBD, iSCSI) that a pod of the node holds, but for read-only ones, are resolved by evicting it.

Load: references to the incoming pod's ReadWriteOncePod claims in the whole cluster (the same for
every node at first; a pod that leaves a node lowers it there), then the number of pods of the
node that hold a clashing disk.

Source: VolumeRestrictions' PreFilter, AddPod, RemovePod and Filter (1.27 to 1.35).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.objects import Pod
from policy.cluster.tables import NOWHERE, Bools, Ints, PodColumn, Pools
from policy.filters.base import (
    UNSCHEDULABLE,
    Filter,
    FilterInfo,
    Incoming,
    LinearFilter,
    Narrowing,
    Nodes,
    Parameter,
    Parameters,
    Verdicts,
)
from policy.filters.messages import Messages, text_of
from policy.filters.volume_claims import (
    CLAIMS,
    MISSING_CLAIMS,
    VolumeTable,
    claim_not_found,
    claim_of,
    claim_references,
    missing_claim,
)

ONE_POD = {
    Messages.V1_14: "node has pod using PersistentVolumeClaim with the same name and "
    "ReadWriteOncePod access mode",
    Messages.V1_34: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access "
    "mode already in-use by another pod",
}
DISK = "node(s) had no available disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk named in the pod itself."""

    kind: str
    name: str
    read_only: bool
    monitors: frozenset[str] = frozenset()  #: of an RBD image; one in common makes it the same


def disks(pod: Pod) -> Iterator[Disk]:
    for volume in pod.spec.volumes or ():
        if volume.gce_persistent_disk is not None:
            gce = volume.gce_persistent_disk
            yield Disk(kind="gce", name=gce.pd_name, read_only=gce.read_only)
        if volume.aws_elastic_block_store is not None:
            # Two pods never share an EBS volume, not even for reading.
            name = volume.aws_elastic_block_store.volume_id
            yield Disk(kind="ebs", name=name, read_only=False)
        if volume.iscsi is not None:
            yield Disk(kind="iscsi", name=volume.iscsi.iqn, read_only=volume.iscsi.read_only)
        if volume.rbd is not None:
            rbd = volume.rbd
            yield Disk(
                kind="rbd",
                name=f"{rbd.pool}/{rbd.image}",
                read_only=rbd.read_only,
                monitors=frozenset(rbd.monitors or ()),
            )


def clash(wanted: Disk, held: Disk) -> bool:
    if (wanted.kind, wanted.name) != (held.kind, held.name):
        return False
    if wanted.kind == "rbd" and not wanted.monitors & held.monitors:
        return False
    return not (wanted.read_only and held.read_only)


def _disks_id(pod: Pod, pools: Pools) -> int:
    if not pod.spec.volumes:
        return NOWHERE
    held = tuple(disks(pod))
    return pools.named("disks").intern(held, held) if held else NOWHERE


DISKS: Final = PodColumn("disks", np.int32, _disks_id)


class VolumeRestrictions(LinearFilter):
    def __init__(
        self,
        incoming: Incoming,
        *,
        used: int,
        claims: Ints | None,
        clashing: Bools | None,
        one_pod: str,
    ) -> None:
        """used: references that count at first.

        claims: references of each set of claims; clashing: which sets of disks clash; one slot
        more each, which NOWHERE reads. None where the pod has no such volume. one_pod: the
        reason of a claim in use.
        """
        self._snapshot = incoming.snapshot
        self._used = used
        self._claims = claims
        self._clashing = clashing
        self._one_pod = one_pod
        self.width = 2

    def base(self) -> Ints:
        snapshot = self._snapshot
        load = np.zeros((len(snapshot.nodes), 2), dtype=np.int64)
        load[:, 0] = self._used
        if self._clashing is not None:
            holds = self._clashing[snapshot.column(DISKS)] & (snapshot.node >= 0)
            load[:, 1] = np.bincount(snapshot.node[holds], minlength=len(snapshot.nodes))
        return load

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        demand = np.zeros((rows.size, 2), dtype=np.int64)
        if self._claims is not None:
            demand[:, 0] = self._claims[self._snapshot.column(CLAIMS)[rows]]
        if self._clashing is not None:
            demand[:, 1] = self._clashing[self._snapshot.column(DISKS)[rows]]
        return demand

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        return np.asarray((load <= 0).all(axis=1))

    def ceiling(self, nodes: Nodes) -> Ints | None:
        return np.zeros((nodes.size, 2), dtype=np.int64)

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        disk = load[:, 1] > 0
        failed = disk | (load[:, 0] > 0)
        return Verdicts(
            codes=(failed * UNSCHEDULABLE).astype(np.int8),
            reasons=np.where(disk, 1, failed * 2).astype(np.int32),
            texts=((), (DISK,), (self._one_pod,)),
        )


def _clashing(incoming: Incoming) -> Bools | None:
    """Which sets of disks clash with the incoming pod's; None where none does."""
    wanted = tuple(disks(incoming.pod))
    if not wanted:
        return None
    incoming.snapshot.column(DISKS)
    sets: Sequence[tuple[Disk, ...]] = incoming.snapshot.pools.named("disks").values
    found = [any(clash(w, h) for w in wanted for h in held) for held in sets]
    return np.array([*found, False], dtype=np.bool_) if any(found) else None


def one_pod_claims(incoming: Incoming) -> list[str]:
    """Names of the pod's claims that one pod alone may use."""
    names: list[str] = []
    for reference in claim_references(incoming.pod):
        claim = None if reference.ephemeral else claim_of(incoming.snapshot, reference)
        if claim is not None and "ReadWriteOncePod" in (claim.spec.access_modes or ()):
            names.append(reference.name)
    return names


def _references(incoming: Incoming, names: Sequence[str]) -> tuple[int, Ints]:
    """How many of the claims pods on nodes use, and the references of each set of claims."""
    snapshot = incoming.snapshot
    references = VolumeTable.references(snapshot)
    plain = ~references.ephemeral
    on_node = np.zeros(references.done + 1, dtype=np.bool_)
    on_node[snapshot.column(CLAIMS)[snapshot.node >= 0]] = True
    in_use = references.keys[plain & on_node[references.sets]]
    keys = snapshot.pools.named("claim keys").ids
    wanted = [keys[f"{incoming.namespace}/{name}"] for name in set(names)]
    # Pods that come and go are looked up by the claim's name only, not for its namespace.
    ids = np.array([snapshot.pools.name(name) for name in names], dtype=np.int64)
    named = references.sets[plain & np.isin(references.names, ids)]
    of_set = np.bincount(named, minlength=references.done + 1).astype(np.int64)
    return int(np.isin(wanted, in_use).sum()), of_set


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.volumes:
        return None
    names = one_pod_claims(incoming) if parameters["readWriteOncePod"] else []
    used, claims = _references(incoming, names) if names else (0, None)
    clashing = _clashing(incoming)
    # Without any use the scheduler skips the filter, and does not ask nominated pods either.
    if not used and clashing is None:
        return None
    return VolumeRestrictions(
        incoming,
        used=used,
        claims=claims,
        clashing=clashing,
        one_pod=text_of(ONE_POD, incoming.messages),
    )


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    if not incoming.pod.spec.volumes or not parameters["readWriteOncePod"]:
        return None
    name = missing_claim(incoming, parameters)
    return None if name is None else Narrowing(rejected=(claim_not_found(name),))


INFO = FilterInfo(
    name="volume-restrictions",
    plugin="VolumeRestrictions",
    doc="ReadWriteOncePod claims in use anywhere, and inline disks that pods of the node hold. "
    "Eviction resolves it on the node where the other pod is; a missing claim it cannot resolve.",
    build=build,
    narrow=narrow,
    parameters={
        "readWriteOncePod": Parameter(
            doc="ReadWriteOncePod claims count (1.27 and later)", default=True
        ),
        "missingClaims": MISSING_CLAIMS,
    },
)
