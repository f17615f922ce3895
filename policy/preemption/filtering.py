"""The filters over all nodes: which nodes take the pod as it is, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.cluster.tables import Bools
from policy.decision.model import Code, NodeStatuses, Status
from policy.filters.base import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, Incoming, Narrowing
from policy.filters.pipeline import Judged, Use
from policy.preemption import messages
from policy.preemption.context import Context


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Filtered:
    """Result of the filters for every node."""

    codes: NDArray[np.int8]  #: (nodes,)
    statuses: NodeStatuses
    filtered: Bools  #: nodes that the filters looked at

    @property
    def passing(self) -> Rows:
        """Indexes of the nodes that pass every filter."""
        return np.flatnonzero((self.codes == SUCCESS) & self.filtered)

    @property
    def failed_count(self) -> int:
        return int((self.codes != SUCCESS).sum())


def filter_nodes(context: Context, narrowed: Narrowing | None) -> Filtered:
    """Judge every node; `narrowed` is what the filters said before looking at nodes."""
    size = len(context.names)
    every = np.arange(size)
    if narrowed is not None and narrowed.rejected:
        plugin = next(u.info.name for u in context.uses if _rejects(u, context.incoming))
        status = Status(code=Code.UNRESOLVABLE, filter=plugin, reasons=narrowed.rejected)
        return Filtered(
            codes=np.full(size, UNRESOLVABLE, dtype=np.int8),
            statuses=NodeStatuses(nodes=context.names, index=(0,) * size, statuses=(status,)),
            filtered=np.zeros(size, dtype=np.bool_),
        )
    judged = context.pipeline.judge(context.pipeline.base, every)
    inside = np.ones(size, dtype=np.bool_)
    if narrowed is not None and narrowed.names is not None:
        # A nominated node is filtered before the narrowing is looked at.
        names = narrowed.names | {context.incoming.pod.status.nominated_node_name}
        inside = np.array([name in names for name in context.names], dtype=np.bool_)
        judged = _outside(judged, inside, resolvable=narrowed.outside == "no-status")
    shown = every if narrowed is None or narrowed.outside != "no-status" else every[inside]
    return Filtered(
        codes=judged.codes,
        statuses=context.statuses(shown, judged, positions=shown),
        filtered=inside,
    )


def _rejects(use: Use, incoming: Incoming) -> bool:
    found = use.info.narrow(incoming, use.parameters)
    return found is not None and bool(found.rejected)


def _outside(judged: Judged, inside: Bools, *, resolvable: bool) -> Judged:
    """Statuses with those of nodes outside the narrowed set replaced."""
    status = (
        (UNSCHEDULABLE, "", ()) if resolvable else (UNRESOLVABLE, "", (messages.NOT_SATISFIED,))
    )
    return Judged(
        codes=np.where(inside, judged.codes, status[0]).astype(np.int8),
        index=np.where(inside, judged.index, len(judged.statuses)),
        statuses=(*judged.statuses, status),
    )
