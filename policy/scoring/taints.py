"""taints: nodes with few PreferNoSchedule taints that the pod does not tolerate.

Source: TaintToleration's Score (1.35).
"""

from __future__ import annotations

import numpy as np

from policy.cluster.selectors import tolerates
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.scoring.base import Scope, ScorerInfo, normalised


def score(incoming: Incoming, _: Parameters, nodes: Nodes) -> Ints:
    tainted = incoming.snapshot.nodes.coded("taints", lambda n: tuple(n.spec.taints or ()))
    tolerations = incoming.pod.spec.tolerations or ()
    counts = [
        sum(
            taint.effect == "PreferNoSchedule" and not any(tolerates(t, taint) for t in tolerations)
            for taint in taints
        )
        for taints in tainted.values
    ]
    return normalised(np.array(counts, dtype=np.int64)[tainted.codes[nodes]], reverse=True)


INFO = ScorerInfo(
    name="taints",
    plugin="TaintToleration",
    doc="Avoids nodes with PreferNoSchedule taints that the pod does not tolerate.",
    score=score,
    scope=Scope.FITTING,
)
