"""What volume filters share: the claims that pods name, and the CSI volumes behind them.

Nothing here is computed before the first pod with volumes is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Volume,
)
from policy.cluster.snapshot import Delta, Snapshot
from policy.cluster.tables import NOWHERE, Bools, Column, Ints, Pools
from policy.filters.base import Incoming, Parameter, Parameters

CLAIM: Final = "PersistentVolumeClaim"
VOLUME: Final = "PersistentVolume"

MISSING_CLAIMS: Final = Parameter(
    doc="a claim that is missing rejects the pod: only where the snapshot holds any claim "
    "at all (a dump of pods and nodes often comes without them), or always",
    default="rejected-where-claims-are-shown",
    choices=("rejected-where-claims-are-shown", "rejected"),
)


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """A volume of a pod that stands for a claim."""

    namespace: str
    name: str
    ephemeral: bool  #: a generic ephemeral volume: the claim is made for the pod

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def claim_references(pod: Pod) -> Iterator[ClaimReference]:
    """Claims behind the pod's volumes, in their order."""
    namespace = pod.metadata.namespace or "default"
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield ClaimReference(namespace, volume.persistent_volume_claim.claim_name, False)
        elif volume.ephemeral is not None:
            yield ClaimReference(namespace, _ephemeral_claim(pod, volume), True)


def _ephemeral_claim(pod: Pod, volume: Volume) -> str:
    return f"{pod.metadata.name}-{volume.name}"


def _claims_id(pod: Pod, pools: Pools) -> int:
    if not pod.spec.volumes:
        return NOWHERE
    claims = tuple(claim_references(pod))
    return pools.named("claims").intern(claims, claims) if claims else NOWHERE


CLAIMS: Final = Column("claims", np.int32, _claims_id)
"""Which set of claims a pod names: index into the pool `claims` of tuples of references."""


def claim_of(snapshot: Snapshot, reference: ClaimReference) -> PersistentVolumeClaim | None:
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


def is_missing(snapshot: Snapshot, reference: ClaimReference, parameters: Parameters) -> bool:
    shown = bool(snapshot.of_kind(CLAIM)) or parameters["missingClaims"] == "rejected"
    return shown and claim_of(snapshot, reference) is None


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
        return None if delta.other_kinds & {CLAIM, VOLUME} else self

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


def csi_volume(snapshot: Snapshot, reference: ClaimReference) -> tuple[str, str] | None:
    """Driver and handle of the CSI volume behind a claim; None where nothing is attached."""
    claim = claim_of(snapshot, reference)
    volume = None if claim is None else volume_of(snapshot, claim)
    csi = None if volume is None else volume.spec.csi
    if csi is None or not csi.driver or not csi.volume_handle:
        return None
    return csi.driver, csi.volume_handle
