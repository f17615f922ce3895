"""volume-limits: how many volumes of one CSI driver may be attached to a node.

Eviction resolves it: a volume is detached once no pod of the node uses it any more.

A volume counts once, however many pods of the node use it. Load, in columns: how many pods of the
node use each of the incoming pod's own volumes; the same for each other volume that two pods of
some node share; per driver, the number of its volumes that no two pods share.

Source: NodeVolumeLimits' Filter (1.20 to 1.35). Volumes that are attached although no pod uses
them are not seen: the objects that would tell are not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from policy.cluster import quantities
from policy.cluster.objects import CSINode, Node
from policy.cluster.snapshot import Delta, Snapshot
from policy.cluster.tables import Bools, Ints
from policy.filters.base import (
    UNSCHEDULABLE,
    Filter,
    FilterInfo,
    Incoming,
    LinearFilter,
    Nodes,
    Parameters,
    Verdicts,
)
from policy.filters.volume_claims import CLAIMS, VolumeTable, claim_references, csi_volume

REASON = "node(s) exceed max volume count"
_UNLIMITED: Final = 2**62
_ON_NODE: Final = "attachable-volumes-csi-"
_LABEL_LENGTH: Final = 63


def limit_key(driver: str) -> str:
    """Name under which old kubelets list a driver's limit in the node's allocatable."""
    if len(_ON_NODE) + len(driver) <= _LABEL_LENGTH:
        return _ON_NODE + driver
    kept = _LABEL_LENGTH - len(_ON_NODE) - 32
    digest = hashlib.sha256(driver.encode()).hexdigest()
    return f"{_ON_NODE}{driver[:kept]}{digest[:32]}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Limits:
    """Most volumes of one driver per node, kept until a node or a CSINode changes."""

    most: Ints  #: (nodes,)

    @staticmethod
    def of(snapshot: Snapshot, driver: str) -> Ints:
        build = partial(_Limits._build, driver=driver)
        return snapshot.derived(("volume limits", driver), build).most

    @staticmethod
    def _build(snapshot: Snapshot, *, driver: str) -> _Limits:
        return _Limits(most=_limits(snapshot, driver))

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Limits | None:
        return None if delta.nodes_changed or "CSINode" in delta.other_kinds else self


def _limits(snapshot: Snapshot, driver: str) -> Ints:
    key = limit_key(driver)

    def allocatable(node: Node) -> int:
        quantity = (node.status.allocatable or {}).get(key)
        if quantity is None:
            return _UNLIMITED
        return quantities.nano_to_units(quantities.nano(quantity))

    coded = snapshot.nodes.coded(("volume limit", driver), allocatable)
    if not coded.values:
        return np.zeros(0, dtype=np.int64)
    limits = np.array(coded.values, dtype=np.int64)[coded.codes]
    for name, csi_node in snapshot.of_kind("CSINode").items():
        at = snapshot.nodes.index.get(name)
        if at is None or not isinstance(csi_node, CSINode):
            continue
        for found in csi_node.spec.drivers or ():
            if found.name == driver and found.allocatable and found.allocatable.count is not None:
                limits[at] = found.allocatable.count
    return limits


class VolumeLimits(LinearFilter):
    def __init__(
        self,
        incoming: Incoming,
        *,
        holds: Ints,
        own: Sequence[int],
        shared: Sequence[int],
        limits: Ints,
    ) -> None:
        """Columns as in the module's text; `holds` gives them per set of claims, one slot more.

        own, shared: driver of each own and of each shared volume; limits: (nodes, drivers).
        """
        self._snapshot = incoming.snapshot
        self._holds = holds
        self._limits = limits
        drivers = np.arange(limits.shape[1])
        self._own = np.array(own, dtype=np.int64)[:, None] == drivers
        self._shared = np.array(shared, dtype=np.int64)[:, None] == drivers
        self.width = holds.shape[1]

    def base(self) -> Ints:
        snapshot = self._snapshot
        load = np.zeros((len(snapshot.nodes), self.width), dtype=np.int64)
        rows = np.flatnonzero((snapshot.column(CLAIMS) >= 0) & (snapshot.node >= 0))
        nodes = snapshot.node[rows].astype(np.int64)
        np.add.at(load, nodes, self.demand(rows, nodes))
        return load

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.asarray(self._holds[self._snapshot.column(CLAIMS)[rows]])

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        own, shared = len(self._own), len(self._shared)
        absent = load[:, :own] <= 0
        attached = load[:, own + shared :] + (load[:, own : own + shared] > 0) @ self._shared
        # Each own volume is attached already or comes with the pod: it counts one either way.
        total = attached + self._own.sum(axis=0)
        # A driver of which the pod brings no volume is not asked.
        brings = absent @ self._own
        return np.asarray(~(brings & (total > self._limits[nodes])).any(axis=1))

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        failed = ~self.passes(load, nodes)
        return Verdicts.single((failed * UNSCHEDULABLE).astype(np.int8), REASON)


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.volumes:
        return None
    snapshot = incoming.snapshot
    wanted = {csi_volume(snapshot, reference) for reference in claim_references(incoming.pod)}
    volumes = sorted(volume for volume in wanted if volume is not None)
    limits = {driver: _Limits.of(snapshot, driver) for driver, _ in volumes}
    limited = [d for d in limits if (limits[d] != _UNLIMITED).any()]
    if not limited:
        return None
    own = [volume for volume in volumes if volume[0] in limited]
    references = VolumeTable.references(snapshot)
    pool = snapshot.pools.named("csi volumes")
    driver_of = _driver_of(pool.values, limited)
    # A pod counts once for a volume that it names twice.
    pairs = np.unique(np.stack([references.sets, references.volumes], axis=1), axis=0)
    pairs = pairs[pairs[:, 1] >= 0]
    pairs = pairs[driver_of[pairs[:, 1]] >= 0]
    own_ids = np.array([pool.ids[v] for v in own], dtype=np.int64)
    shared_ids = np.setdiff1d(_shared(incoming, pairs), own_ids)
    column = len(own) + shared_ids.size + driver_of
    column[own_ids] = np.arange(len(own))
    column[shared_ids] = len(own) + np.arange(shared_ids.size)
    holds = np.zeros(
        (references.done + 1, len(own) + shared_ids.size + len(limited)), dtype=np.int64
    )
    np.add.at(holds, (pairs[:, 0], column[pairs[:, 1]]), 1)
    return VolumeLimits(
        incoming,
        holds=holds,
        own=[limited.index(driver) for driver, _ in own],
        shared=driver_of[shared_ids].tolist(),
        limits=np.stack([limits[d] for d in limited], axis=1),
    )


def _driver_of(volumes: Sequence[tuple[str, str]], limited: Sequence[str]) -> Ints:
    """Position of each volume's driver among the limited ones, NOWHERE for other drivers."""
    at = {driver: i for i, driver in enumerate(limited)}
    return np.array([at.get(driver, -1) for driver, _ in volumes], dtype=np.int64)


def _shared(incoming: Incoming, pairs: Ints) -> Ints:
    """Volumes that two pods on one node use, or may use; pairs: (set of claims, volume).

    Nominated pods count where they wait, and those in flight with the incoming pod everywhere.
    """
    snapshot = incoming.snapshot
    place = np.where(snapshot.node >= 0, snapshot.node, snapshot.nominated)
    claims = snapshot.column(CLAIMS)
    rows = np.flatnonzero((place >= 0) & (claims >= 0))
    # Pairs are sorted by set: the volumes of one set stand side by side.
    first = np.searchsorted(pairs[:, 0], claims[rows], side="left")
    count = np.searchsorted(pairs[:, 0], claims[rows], side="right") - first
    start = np.cumsum(count) - count
    at = np.arange(int(count.sum())) - np.repeat(start - first, count)
    used = np.stack([np.repeat(place[rows], count), pairs[at, 1]], axis=1)
    distinct, times = np.unique(used, axis=0, return_counts=True)
    shared = distinct[times > 1, 1]
    if incoming.in_flight is not None:
        flying = np.isin(pairs[:, 0], claims[incoming.in_flight.pods])
        shared = np.concatenate([shared, pairs[flying, 1]])
    return np.unique(shared)


INFO = FilterInfo(
    name="volume-limits",
    plugin="NodeVolumeLimits",
    doc="Number of volumes of one CSI driver that may be attached to a node (CSINode, or the "
    "node's allocatable). Eviction resolves it.",
    build=build,
)
