"""taints: NoSchedule and NoExecute taints must be tolerated. Eviction cannot help."""

from __future__ import annotations

from policy.cluster.selectors import DO_NOT_SCHEDULE, first_untolerated
from policy.filters.base import (
    Filter,
    FilterInfo,
    Incoming,
    Parameter,
    Parameters,
    unresolvable,
)

#: How the generations word the reason; `{key: value}` is the first taint not tolerated.
WORDINGS = {
    "untolerated": "node(s) had untolerated taint(s)",
    "untolerated-named": "node(s) had untolerated taint {{{key}: {value}}}",
    "not-tolerated-named": "node(s) had taint {{{key}: {value}}}, that the pod didn't tolerate",
    "not-tolerated": "node(s) had taints that the pod didn't tolerate",
}


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    tainted = incoming.snapshot.nodes.coded("taints", lambda n: tuple(n.spec.taints or ()))
    tolerations = incoming.pod.spec.tolerations or ()
    wording = WORDINGS[parameters["wording"]]
    reasons: list[tuple[str, ...]] = []
    for taints in tainted.values:
        taint = first_untolerated(taints, tolerations, effects=DO_NOT_SCHEDULE)
        reasons.append(() if taint is None else (wording.format(key=taint.key, value=taint.value),))
    return unresolvable(tainted, reasons)


INFO = FilterInfo(
    name="taints",
    plugin="TaintToleration",
    doc="NoSchedule and NoExecute taints not tolerated. Eviction cannot resolve it.",
    build=build,
    parameters={
        "wording": Parameter(
            doc="how the reason is worded (generations differ)",
            default="untolerated",
            choices=tuple(WORDINGS),
        ),
    },
)
