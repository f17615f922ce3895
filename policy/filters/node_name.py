"""node-name: a pod that names its node goes there or nowhere. Eviction cannot help."""

from __future__ import annotations

import numpy as np

from policy.filters.base import (
    UNRESOLVABLE,
    Filter,
    FilterInfo,
    Incoming,
    Parameters,
    StaticFilter,
    Verdicts,
)

REASON = "node(s) didn't match the requested node name"


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    wanted = incoming.pod.spec.node_name
    if not wanted:
        return None
    nodes = incoming.snapshot.nodes
    codes = np.full(len(nodes), UNRESOLVABLE, dtype=np.int8)
    if wanted in nodes.index:
        codes[nodes.index[wanted]] = 0
    return StaticFilter(Verdicts.single(codes, REASON))


INFO = FilterInfo(
    name="node-name",
    plugin="NodeName",
    doc="`spec.nodeName` of the pod. Eviction cannot resolve it.",
    build=build,
)
