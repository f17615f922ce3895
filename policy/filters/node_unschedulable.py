"""node-unschedulable: cordoned nodes take only pods that tolerate it. Eviction cannot help."""

from __future__ import annotations

import numpy as np

from policy.cluster.selectors import UNSCHEDULABLE_TAINT, tolerates
from policy.filters.base import (
    UNRESOLVABLE,
    Filter,
    FilterInfo,
    Incoming,
    Parameter,
    Parameters,
    StaticFilter,
    Verdicts,
)

REASON = "node(s) were unschedulable"


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    tolerations = incoming.pod.spec.tolerations or ()
    respected = parameters["tolerations"] == "respected"
    if respected and any(tolerates(t, UNSCHEDULABLE_TAINT) for t in tolerations):
        return None
    cordoned = incoming.snapshot.nodes.coded("unschedulable", lambda n: n.spec.unschedulable)
    if True not in cordoned.values:
        return None
    codes = np.where(cordoned.where(bool), UNRESOLVABLE, 0).astype(np.int8)
    return StaticFilter(Verdicts.single(codes, REASON))


INFO = FilterInfo(
    name="node-unschedulable",
    plugin="NodeUnschedulable",
    doc="`spec.unschedulable`, unless tolerated. Eviction cannot resolve it.",
    build=build,
    parameters={
        "tolerations": Parameter(
            doc="`ignored`: not even a pod that tolerates it goes to a cordoned node (kube-batch)",
            default="respected",
            choices=("respected", "ignored"),
        ),
    },
)
