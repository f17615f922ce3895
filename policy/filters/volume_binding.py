"""volume-binding: bound volumes must be usable on the node, and unbound claims must get one there.

Eviction resolves none of it: neither the node affinity of a volume nor the room of a provisioner
depends on pods, and a missing claim or volume does not appear because a pod leaves. What the
snapshot does not show (claims of the namespace, volumes, classes) is never taken as fitting: such
a pod cannot be decided.

Source: VolumeBinding's PreFilter and Filter (1.20 to 1.35).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from policy.cluster.objects import PersistentVolumeClaim
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import distinct
from policy.filters import volume_provisioning
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
from policy.filters.volume_claims import (
    CLAIM,
    CLASS,
    IGNORED,
    MISSING_CLAIMS,
    VOLUME,
    PodClaimVolume,
    claim_not_found,
    claim_of,
    claim_references,
    class_name,
    is_bound,
    is_missing,
    not_shown,
    storage_class,
    volume_of,
)
from policy.filters.volume_provisioning import usable_nodes

CONFLICT = {
    Messages.V1_14: "node(s) had volume node affinity conflict",
    Messages.V1_33: "node(s) didn't match PersistentVolume's node affinity",
}
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True)
class _Claims:
    """The claims of a pod by what has to be looked at."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[PersistentVolumeClaim] = field(default_factory=list)  #: with the first consumer
    immediate: list[PersistentVolumeClaim] = field(default_factory=list)


def _claims(incoming: Incoming) -> _Claims:
    snapshot, found = incoming.snapshot, _Claims()
    for reference in claim_references(incoming.pod):
        claim = claim_of(snapshot, reference)
        if claim is None:
            continue
        if is_bound(claim):
            found.bound.append(claim)
        elif not claim.spec.volume_name and _waits(snapshot, claim):
            found.delayed.append(claim)
        else:
            found.immediate.append(claim)
    return found


def _waits(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    of = storage_class(snapshot, claim)
    return of is not None and of.volume_binding_mode == "WaitForFirstConsumer"


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.volumes:
        return None
    snapshot = incoming.snapshot
    size = len(snapshot.nodes)
    claims = _claims(incoming)
    undecided = np.ones(size, dtype=np.bool_)
    bits = np.zeros(size, dtype=np.int64)
    for claim in claims.bound:  # the first one that fails decides
        volume = volume_of(snapshot, claim)
        if volume is None:
            if parameters["missingClaims"] != IGNORED:
                bits[undecided] |= _LOST
                break
            continue
        usable = usable_nodes(snapshot.nodes, volume)
        if usable is not None:
            bits[undecided & ~usable] |= _CONFLICT
            undecided &= usable
    if claims.delayed:
        found = volume_provisioning.find(snapshot, claims.delayed)
        bits[~found.satisfied] |= _UNMATCHED
        bits[~found.sufficient] |= _FULL
    if not bits.any():
        return None
    reasons = (text_of(CONFLICT, incoming.messages), NO_MATCH, NO_SPACE, NO_VOLUME)
    patterns, index = distinct(bits, below=1 << len(reasons))
    texts = tuple(
        tuple(text for i, text in enumerate(reasons) if pattern >> i & 1)
        for pattern in patterns.tolist()
    )
    codes = np.where(bits > 0, UNRESOLVABLE, 0).astype(np.int8)
    return StaticFilter(Verdicts(codes=codes, reasons=index.astype(np.int32), texts=texts))


_CONFLICT, _UNMATCHED, _FULL, _LOST = 1, 2, 4, 8


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    """The first claim that is missing, lost, on its way out or another pod's rejects the pod.

    So does one that should have been bound before. What is not shown ends in an error.
    """
    if not incoming.pod.spec.volumes:
        return None
    for reference in claim_references(incoming.pod):
        found = _about_claim(incoming, reference, parameters)
        if found is not None:
            return found
    unknown = [] if parameters["missingClaims"] == IGNORED else list(_unknown(incoming))
    if unknown:
        return Narrowing(error=f"cannot be decided: {unknown[0]}")
    immediate = _claims(incoming).immediate
    if parameters["missingClaims"] == IGNORED:
        immediate = [c for c in immediate if not _class_not_shown(incoming.snapshot, c)]
    return Narrowing(rejected=(UNBOUND,)) if immediate else None


def _about_claim(
    incoming: Incoming, reference: PodClaimVolume, parameters: Parameters
) -> Narrowing | None:
    snapshot, pod, name = incoming.snapshot, incoming.pod, reference.name
    claim = claim_of(snapshot, reference)
    text = ""
    if claim is None:
        if not is_missing(snapshot, reference, parameters):
            return None
        text = claim_not_found(name)
        if reference.ephemeral:
            text = (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                f'"{name}"'
            )
    elif claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        text = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    elif claim.metadata.deletion_timestamp:
        text = f'persistentvolumeclaim "{name}" is being deleted'
    elif reference.ephemeral and not any(
        o.controller and o.uid == pod.metadata.uid for o in claim.metadata.owner_references or ()
    ):
        text = f"PVC {reference.key} was not created for pod {incoming.key} (pod is not owner)"
    return Narrowing(rejected=(text,)) if text else None


def _unknown(incoming: Incoming) -> Iterator[str]:
    """What a real scheduler would look up and the snapshot does not show."""
    snapshot = incoming.snapshot
    for reference in claim_references(incoming.pod):
        claim = claim_of(snapshot, reference)
        if claim is None:
            yield not_shown(CLAIM, reference.key, "pvc")
        elif is_bound(claim):
            if not snapshot.of_kind(VOLUME):
                yield not_shown(VOLUME, claim.spec.volume_name, "pv")
        elif _class_not_shown(snapshot, claim):
            yield not_shown(CLASS, class_name(claim), "storageclasses")


def _class_not_shown(snapshot: Snapshot, claim: PersistentVolumeClaim) -> bool:
    """Is the binding mode unknown, because no class is shown at all?"""
    return bool(class_name(claim)) and not claim.spec.volume_name and not snapshot.of_kind(CLASS)


INFO = FilterInfo(
    name="volume-binding",
    plugin="VolumeBinding",
    doc="Node affinity of bound volumes; unbound claims, which get a volume that exists or a new "
    "one (allowedTopologies of their class, capacities of its driver) or reject the pod (classes "
    "that bind at once); claims and volumes that are missing. Eviction cannot resolve it.",
    build=build,
    narrow=narrow,
    parameters={"missingClaims": MISSING_CLAIMS},
)
