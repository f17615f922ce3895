"""resource-claims: devices that a pod claims. Eviction resolves none of it.

A claim that is missing, on its way out or another pod's rejects the pod; one that is allocated
keeps it on the nodes of its devices. Which devices a claim would get is not modelled: a pod with a
claim that is not allocated cannot be decided, nor one whose claims the snapshot does not show.

Source: DynamicResources' PreEnqueue, PreFilter and Filter (1.34, where it is on by default).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from policy.cluster.objects import ResourceClaim
from policy.cluster.selectors import RequiredNodes, compile_node_selector
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
from policy.filters.node_affinity import matching_nodes
from policy.filters.volume_claims import IGNORED, namespaces_of, not_shown

CLAIM: Final = "ResourceClaim"
NOT_THERE: Final = "resourceclaim not available on the node"
IN_USE: Final = "resourceclaim in use"
_MOST_CONSUMERS: Final = 256


class _Devices(StaticFilter):
    """Pods of one class may have claims of their own, which other objects hold."""

    local = False


def _names(incoming: Incoming) -> Iterator[tuple[str, str, bool]]:
    """Name in the pod, name of the claim ("": not made yet), and whether it was made for the pod.

    Where a template gave no claim, there is none to wait for.
    """
    made = {s.name: s for s in incoming.pod.status.resource_claim_statuses or ()}
    for entry in incoming.pod.spec.resource_claims or ():
        if entry.resource_claim_name is not None:
            yield entry.name, entry.resource_claim_name, False
        elif entry.name not in made:
            yield entry.name, "", True
        elif made[entry.name].resource_claim_name is not None:
            yield entry.name, made[entry.name].resource_claim_name or "", True


def _claim(incoming: Incoming, name: str) -> ResourceClaim | None:
    found = incoming.snapshot.of_kind(CLAIM).get(f"{incoming.namespace}/{name}")
    return found if isinstance(found, ResourceClaim) else None


def narrow(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    unknown = ""
    for entry, name, own in _names(incoming):
        if not name:
            text = f'pod "{incoming.key}": pod claim {entry}: ResourceClaim not created yet'
            return Narrowing(rejected=(text,))
        claim = _claim(incoming, name)
        if claim is None:
            if parameters["missingClaims"] == IGNORED:
                continue
            key = f"{incoming.namespace}/{name}"
            if incoming.namespace in namespaces_of(incoming.snapshot, CLAIM):
                return Narrowing(rejected=(f'resourceclaim.resource.k8s.io "{name}" not found',))
            unknown = unknown or not_shown(CLAIM, key, "resourceclaims")
            continue
        refused = _refused(incoming, claim, own=own)
        if refused:
            return Narrowing(rejected=(refused,))
        if claim.status.allocation is None and parameters["missingClaims"] != IGNORED:
            key = f"{incoming.namespace}/{name}"
            unknown = unknown or f"{CLAIM} `{key}` is not allocated, and devices are not modelled"
    return Narrowing(error=f"cannot be decided: {unknown}") if unknown else None


def _refused(incoming: Incoming, claim: ResourceClaim, *, own: bool) -> str:
    """Why a claim that is there does not serve the pod; "" where it may."""
    meta, uid = claim.metadata, incoming.pod.metadata.uid
    if meta.deletion_timestamp:
        return f'resourceclaim "{meta.name}" is being deleted'
    if own and not any(o.controller and o.uid == uid for o in meta.owner_references or ()):
        key = f"{incoming.namespace}/{meta.name}"
        return f"ResourceClaim {key} was not created for pod {incoming.key} (pod is not owner)"
    consumers = claim.status.reserved_for or ()
    if len(consumers) >= _MOST_CONSUMERS and all(c.uid != uid for c in consumers):
        return IN_USE
    return ""


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    if not incoming.pod.spec.resource_claims:
        return None
    nodes = incoming.snapshot.nodes
    usable = np.ones(len(nodes), dtype=np.bool_)
    for _, name, _ in _names(incoming):
        claim = _claim(incoming, name)
        allocation = None if claim is None else claim.status.allocation
        terms = compile_node_selector(None if allocation is None else allocation.node_selector)
        if terms is not None:
            usable &= matching_nodes(nodes, RequiredNodes(selector=(), terms=terms))
    if usable.all():
        return None
    codes = np.where(usable, 0, UNRESOLVABLE).astype(np.int8)
    return _Devices(Verdicts.single(codes, NOT_THERE))


INFO = FilterInfo(
    name="resource-claims",
    plugin="DynamicResources",
    doc="Claims to devices: missing ones reject the pod, allocated ones keep it on the nodes of "
    "their devices. A claim that is not allocated cannot be decided. Eviction resolves nothing.",
    build=build,
    narrow=narrow,
    parameters={
        "missingClaims": Parameter(
            doc="a claim that is not shown, or has no devices yet: it rejects the pod where the "
            "snapshot holds claims of its namespace and cannot be decided otherwise, or it is "
            "ignored",
            default="rejected",
            choices=("rejected", IGNORED),
        ),
    },
)
