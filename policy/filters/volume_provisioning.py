"""Claims that get their volume with their first consumer: a volume that exists, or a new one.

Source: the volume binder's FindPodVolumes, findMatchingVolumes and checkVolumeProvisions, and
FindMatchingVolume of the volume library (1.20 to 1.35; capacities of drivers since 1.21).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster import quantities
from policy.cluster.objects import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Quantity,
    StorageClass,
)
from policy.cluster.selectors import RequiredNodes, compile_node_selector, compile_selector
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import Bools, NodeTable
from policy.filters.node_affinity import matching_nodes
from policy.filters.volume_claims import VOLUME, class_name, storage_class

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_STORAGE: Final = "storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionableNodes:
    """Nodes on which every claim gets a volume; shape (nodes,) each."""

    satisfied: Bools  #: a volume that exists, or a provisioner that may make one there
    sufficient: Bools  #: where one has to be made, its driver has room


def usable_nodes(nodes: NodeTable, volume: PersistentVolume) -> Bools | None:
    """Nodes on which the volume can be used; None for all of them."""
    affinity = volume.spec.node_affinity
    terms = compile_node_selector(None if affinity is None else affinity.required)
    if terms is None:
        return None
    return matching_nodes(nodes, RequiredNodes(selector=(), terms=terms))


def find(snapshot: Snapshot, claims: Sequence[PersistentVolumeClaim]) -> ProvisionableNodes:
    """What becomes of the unbound claims of one pod on each node."""
    size = len(snapshot.nodes)
    satisfied, sufficient = np.ones(size, np.bool_), np.ones(size, np.bool_)
    pinned: list[PersistentVolumeClaim] = []
    free: list[PersistentVolumeClaim] = []
    for claim in claims:
        chosen = (claim.metadata.annotations or {}).get(SELECTED_NODE)
        (free if chosen is None else pinned).append(claim)
        if chosen is not None:
            satisfied &= np.array([name == chosen for name in snapshot.nodes.names], np.bool_)
    undecided = satisfied.copy()
    matched = _matched(snapshot, free)
    for claim in (*pinned, *free):
        made = undecided & ~matched[claim.metadata.name] if claim in free else undecided.copy()
        if not made.any():
            continue
        impossible = made & ~_provisionable(snapshot, claim)
        satisfied &= ~impossible
        full = made & ~impossible & ~_has_room(snapshot, claim)
        sufficient &= ~full
        undecided &= ~(impossible | full)
    return ProvisionableNodes(satisfied=satisfied, sufficient=sufficient)


# --- volumes that exist --------------------------------------------------------------------------


def _matched(snapshot: Snapshot, claims: Sequence[PersistentVolumeClaim]) -> Mapping[str, Bools]:
    """Per claim, the nodes on which a volume is there for it; the smallest claim chooses first."""
    size = len(snapshot.nodes)
    matched = {claim.metadata.name: np.zeros(size, np.bool_) for claim in claims}
    ordered = sorted(claims, key=lambda c: _amount(_requested(c)))
    offers = {c.metadata.name: list(_offers(snapshot, c)) for c in ordered}
    for node in range(size):
        taken: set[str] = set()
        for claim in ordered:
            chosen = _smallest(offers[claim.metadata.name], node, taken)
            if chosen is not None:
                taken.add(chosen)
                matched[claim.metadata.name][node] = True
    return matched


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Offer:
    """A volume that a claim may have."""

    name: str
    amount: int
    usable: Bools | None
    reserved: bool  #: for this claim, which then gets no other one


def _offers(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Iterator[_Offer]:
    wanted = class_name(claim)
    selector = None if claim.spec.selector is None else compile_selector(claim.spec.selector)
    for _, volume in sorted(snapshot.of_kind(VOLUME).items()):
        if not isinstance(volume, PersistentVolume) or class_name(volume) != wanted:
            continue
        reserved = _reserved(volume, claim)
        amount = _amount((volume.spec.capacity or {}).get(_STORAGE))
        if (
            (volume.spec.claim_ref is not None and not reserved)
            or amount < _amount(_requested(claim))
            or (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem")
            or volume.metadata.deletion_timestamp
        ):
            continue
        if not reserved and (
            volume.status.phase != "Available"
            or (selector is not None and not selector.matches(volume.metadata.labels))
            or not set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ())
        ):
            continue
        yield _Offer(
            name=volume.metadata.name,
            amount=amount,
            usable=usable_nodes(snapshot.nodes, volume),
            reserved=reserved,
        )


def _reserved(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.name == claim.metadata.name
        and reference.namespace == (claim.metadata.namespace or "default")
        and reference.uid in {"", claim.metadata.uid}
    )


def _smallest(offers: Sequence[_Offer], node: int, taken: set[str]) -> str | None:
    best: _Offer | None = None
    for offer in offers:
        if offer.name in taken:
            continue
        usable = offer.usable is None or bool(offer.usable[node])
        if offer.reserved:
            return offer.name if usable else None
        if usable and (best is None or offer.amount < best.amount):
            best = offer
    return None if best is None else best.name


# --- volumes that are made -----------------------------------------------------------------------


def _provisionable(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Bools:
    """Nodes for which the claim's class makes volumes."""
    size = len(snapshot.nodes)
    found = storage_class(snapshot, claim)
    if found is None or found.provisioner in {"", NO_PROVISIONER}:
        return np.zeros(size, np.bool_)
    return _in_topologies(snapshot.nodes, found)


def _in_topologies(nodes: NodeTable, of: StorageClass) -> Bools:
    terms = of.allowed_topologies or ()
    if not terms:
        return np.ones(len(nodes), np.bool_)
    allowed = np.zeros(len(nodes), np.bool_)
    for term in terms:
        wanted = term.match_label_expressions or ()
        if not wanted:  # selects nothing
            continue
        matches = np.ones(len(nodes), np.bool_)
        for requirement in wanted:
            values = frozenset(requirement.values or ())
            matches &= nodes.label(requirement.key).where(values.__contains__)
        allowed |= matches
    return allowed


def _has_room(snapshot: Snapshot, claim: PersistentVolumeClaim) -> Bools:
    """Nodes where the driver says that it has room, or does not say how much it has."""
    every = np.ones(len(snapshot.nodes), np.bool_)
    of, requested = storage_class(snapshot, claim), _requested(claim)
    if of is None or requested is None:
        return every
    driver = snapshot.of_kind("CSIDriver").get(of.provisioner)
    if not isinstance(driver, CSIDriver) or not driver.spec.storage_capacity:
        return every
    bytes_wanted = quantities.units(requested)
    room = ~every
    for _, capacity in sorted(snapshot.of_kind("CSIStorageCapacity").items()):
        if (
            isinstance(capacity, CSIStorageCapacity)
            and capacity.storage_class_name == of.metadata.name
            and _most(capacity) >= bytes_wanted
        ):
            selector = compile_selector(capacity.node_topology)
            for i, node in enumerate(snapshot.nodes.nodes):
                room[i] |= selector.matches(node.metadata.labels)
    return room


def _most(capacity: CSIStorageCapacity) -> int:
    """Bytes of the largest volume that can be made; -1 where it is not said."""
    limit = capacity.maximum_volume_size
    if limit is None:
        limit = capacity.capacity
    return -1 if limit is None else quantities.units(limit)


def _requested(claim: PersistentVolumeClaim) -> Quantity | None:
    resources = claim.spec.resources
    return None if resources is None else (resources.requests or {}).get(_STORAGE)


def _amount(quantity: Quantity | None) -> int:
    """In thousand-millionths of a byte, so that amounts compare exactly."""
    return 0 if quantity is None else quantities.nano(quantity)
