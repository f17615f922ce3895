"""What volume filters share: the claims that pods name, and the CSI volumes behind them.

Nothing here is computed before the first pod with volumes is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from policy.cluster.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    Volume,
)
from policy.cluster.snapshot import Delta, Snapshot
from policy.cluster.tables import NOWHERE, Bools, Ints, PodColumn, Pools
from policy.filters.base import Incoming, Parameter, Parameters

CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"

CLASS: Final = "StorageClass"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
IGNORED: Final = "ignored"

MISSING_CLAIMS: Final = Parameter(
    doc="a claim that is missing rejects the pod where the snapshot holds claims of its namespace; "
    "where it holds none (a dump of pods and nodes often comes without them) the pod cannot be "
    "decided, and the decision says so; or always rejects it; or is taken as fitting, together "
    "with volumes and classes that are not shown",
    default="rejected-if-namespace-has-claims",
    choices=("rejected-if-namespace-has-claims", "rejected", IGNORED),
)


@dataclass(frozen=True, slots=True)
class PodClaimVolume:
    """A volume of a pod that stands for a claim."""

    namespace: str
    name: str
    ephemeral: bool  #: a generic ephemeral volume: the claim is made for the pod

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def claim_references(pod: Pod) -> Iterator[PodClaimVolume]:
    """Claims behind the pod's volumes, in their order."""
    namespace = pod.metadata.namespace or "default"
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield PodClaimVolume(namespace, volume.persistent_volume_claim.claim_name, False)
        elif volume.ephemeral is not None:
            yield PodClaimVolume(namespace, _ephemeral_claim(pod, volume), True)


def _ephemeral_claim(pod: Pod, volume: Volume) -> str:
    return f"{pod.metadata.name}-{volume.name}"


def _claims_id(pod: Pod, pools: Pools) -> int:
    if not pod.spec.volumes:
        return NOWHERE
    claims = tuple(claim_references(pod))
    return pools.named("claims").intern(claims, claims) if claims else NOWHERE


CLAIMS: Final = PodColumn("claims", np.int32, _claims_id)
"""Which set of claims a pod names: index into the pool `claims` of tuples of references."""


def claim_of(snapshot: Snapshot, reference: PodClaimVolume) -> PersistentVolumeClaim | None:
    found = snapshot.of_kind(CLAIM).get(reference.key)
    return found if isinstance(found, PersistentVolumeClaim) else None


def volume_of(snapshot: Snapshot, claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """The volume that the claim is bound to, as far as the snapshot shows it."""
    found = snapshot.of_kind(VOLUME).get(claim.spec.volume_name)
    return found if isinstance(found, PersistentVolume) else None


def missing_claim(incoming: Incoming, parameters: Parameters) -> str | None:
    """Name of the first missing claim; claims of ephemeral volumes do not count."""
    for reference in claim_references(incoming.pod):
        if not reference.ephemeral and is_missing(incoming.snapshot, reference, parameters):
            return reference.name
    return None


def is_missing(snapshot: Snapshot, reference: PodClaimVolume, parameters: Parameters) -> bool:
    """Is it known that the claim does not exist?"""
    how = parameters["missingClaims"]
    if how == IGNORED or claim_of(snapshot, reference) is not None:
        return False
    return how == "rejected" or reference.namespace in namespaces_of(snapshot, CLAIM)


def namespaces_of(snapshot: Snapshot, kind: str) -> frozenset[str]:
    """Namespaces of which the snapshot holds objects of the kind."""
    return snapshot.derived(("namespaces of", kind), partial(_Namespaces.build, kind=kind)).names


@dataclass(frozen=True, slots=True, eq=False)
class _Namespaces:
    kind: str
    names: frozenset[str]

    @staticmethod
    def build(snapshot: Snapshot, *, kind: str) -> _Namespaces:
        keys = snapshot.of_kind(kind)
        return _Namespaces(kind, frozenset(key.partition("/")[0] for key in keys))

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Namespaces | None:
        return None if self.kind in delta.other_kinds else self


def not_shown(kind: str, key: str, resource: str) -> str:
    """That an object would have to be looked up which the snapshot does not hold.

    resource: the kind as kubectl names it.
    """
    return f"{kind} `{key}` is not in the state; import `kubectl get {resource} -A -o json`"


def class_name(of: PersistentVolumeClaim | PersistentVolume) -> str:
    """The storage class of a claim or volume, "" without one."""
    old = (of.metadata.annotations or {}).get(_OLD_CLASS)
    return (of.spec.storage_class_name or "") if old is None else old


def storage_class(snapshot: Snapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    found = snapshot.of_kind(CLASS).get(class_name(claim))
    return found if isinstance(found, StorageClass) else None


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Has the volume controller bound the claim? A name alone is a wish."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


def claim_not_found(name: str) -> str:
    return f'persistentvolumeclaim "{name}" not found'


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class References:
    """Every claim reference of every set of claims, as columns: row i belongs to set `sets[i]`."""

    done: int  #: sets that were read
    sets: Ints
    keys: Ints  #: interned namespace/name
    names: Ints  #: interned name alone
    ephemeral: Bools
    volumes: Ints  #: interned CSI volume (driver, handle), NOWHERE where there is none


class VolumeTable:
    """`References` of a snapshot; it grows with the pool of claim sets.

    A set of claims means the same in all snapshots that hold the same claims and volumes, so they
    share the table.
    """

    __slots__ = ("_references",)

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int64)
        self._references = References(
            done=0,
            sets=none,
            keys=none,
            names=none,
            ephemeral=none.astype(np.bool_),
            volumes=none,
        )

    @staticmethod
    def references(snapshot: Snapshot) -> References:
        """References of all pods of the snapshot."""
        snapshot.column(CLAIMS)
        return snapshot.derived("volumes", lambda _: VolumeTable())._grown(snapshot)

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> VolumeTable | None:
        return None if delta.other_kinds & {CLAIM, VOLUME, CLASS} else self

    def _grown(self, snapshot: Snapshot) -> References:
        known = self._references
        sets = snapshot.pools.named("claims").values
        if known.done == len(sets):
            return known
        claims, volumes = snapshot.pools.named("claim keys"), snapshot.pools.named("csi volumes")
        rows: list[tuple[int, int, int, bool, int]] = []
        for i in range(known.done, len(sets)):
            for reference in sets[i]:
                source = csi_volume(snapshot, reference)
                rows.append(
                    (
                        i,
                        claims.intern(reference.key, reference.key),
                        snapshot.pools.name(reference.name),
                        reference.ephemeral,
                        NOWHERE if source is None else volumes.intern(source, source),
                    )
                )
        new = np.array(rows, dtype=np.int64).reshape(len(rows), 5)
        self._references = References(
            done=len(sets),
            sets=np.concatenate([known.sets, new[:, 0]]),
            keys=np.concatenate([known.keys, new[:, 1]]),
            names=np.concatenate([known.names, new[:, 2]]),
            ephemeral=np.concatenate([known.ephemeral, new[:, 3].astype(np.bool_)]),
            volumes=np.concatenate([known.volumes, new[:, 4]]),
        )
        return self._references


def csi_volume(snapshot: Snapshot, reference: PodClaimVolume) -> tuple[str, str] | None:
    """Driver and handle of the CSI volume behind a claim; None where nothing is attached.

    A claim that has no volume yet counts as one of its class's provisioner.
    """
    claim = claim_of(snapshot, reference)
    if claim is None:
        return None
    volume = volume_of(snapshot, claim)
    if volume is None:
        of = storage_class(snapshot, claim)
        if of is None or not of.provisioner:
            return None
        return of.provisioner, f"claim:{reference.key}"
    csi = volume.spec.csi
    if csi is None or not csi.driver or not csi.volume_handle:
        return None
    return csi.driver, csi.volume_handle
