"""taints: NoSchedule and NoExecute taints must be tolerated. Eviction cannot help."""

from __future__ import annotations

from policy.cluster.selectors import DO_NOT_SCHEDULE, first_untolerated
from policy.filters.base import (
    Filter,
    FilterInfo,
    Incoming,
    Parameters,
    unresolvable,
)
from policy.filters.messages import Messages, text_of

#: `{key: value}` is the first taint that the pod does not tolerate.
UNTOLERATED = {
    Messages.V1_14: "node(s) had taints that the pod didn't tolerate",
    Messages.V1_20: "node(s) had taint {{{key}: {value}}}, that the pod didn't tolerate",
    Messages.V1_27: "node(s) had untolerated taint {{{key}: {value}}}",
    Messages.V1_34_2: "node(s) had untolerated taint(s)",
}


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    tainted = incoming.snapshot.nodes.coded("taints", lambda n: tuple(n.spec.taints or ()))
    tolerations = incoming.pod.spec.tolerations or ()
    text = text_of(UNTOLERATED, incoming.messages)
    reasons: list[tuple[str, ...]] = []
    for taints in tainted.values:
        taint = first_untolerated(taints, tolerations, effects=DO_NOT_SCHEDULE)
        reasons.append(() if taint is None else (text.format(key=taint.key, value=taint.value),))
    return unresolvable(tainted, reasons)


INFO = FilterInfo(
    name="taints",
    plugin="TaintToleration",
    doc="NoSchedule and NoExecute taints not tolerated. Eviction cannot resolve it.",
    build=build,
)
