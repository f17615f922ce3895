"""The filters over all nodes: which nodes take the pod as it is, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE, Bools
from policy.decision import messages
from policy.decision.model import Code, NodeStatuses, Status
from policy.filters.base import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, Narrowing
from policy.filters.pipeline import Judged, StatusOfNode
from policy.filters.registry import FILTERS
from policy.lazy import once
from policy.preemption.context import DecisionContext


@dataclass(frozen=True, eq=False, kw_only=True)
class Filtered:
    """Result of the filters for every node."""

    codes: NDArray[np.int8]  #: (nodes,)
    statuses: NodeStatuses
    filtered: Bools  #: nodes that the filters looked at

    @once
    def passing(self) -> Rows:
        """Indexes of the nodes that pass every filter."""
        passing: Rows = ((self.codes == SUCCESS) & self.filtered).nonzero()[0]
        return passing

    @once
    def failed_count(self) -> int:
        return int(np.count_nonzero(self.codes))  # SUCCESS is 0

    @once
    def unschedulable(self) -> Rows:
        """Indexes of the nodes on which evicting pods may help."""
        found: Rows = (self.codes == UNSCHEDULABLE).nonzero()[0]
        return found

    @once
    def resolvable(self) -> Rows:
        """Indexes of the nodes that were not ruled out; those that pass are not among them."""
        tried = self.codes != UNRESOLVABLE
        found: Rows = (tried & ~((self.codes == SUCCESS) & self.filtered)).nonzero()[0]
        return found


def filter_nodes(context: DecisionContext, narrowed: Narrowing | None) -> Filtered:
    """Judge every node; `narrowed` is what the filters said before looking at nodes."""
    size = len(context.names)
    every = context.snapshot.nodes.every
    if narrowed is not None and narrowed.rejected:
        status = Status(code=Code.UNRESOLVABLE, filter=narrowed.by, reasons=narrowed.rejected)
        return Filtered(
            codes=np.full(size, UNRESOLVABLE, dtype=np.int8),
            statuses=NodeStatuses(nodes=context.names, index=(0,) * size, statuses=(status,)),
            filtered=np.zeros(size, dtype=np.bool_),
        )
    if narrowed is None and context.shared is not None:
        return context.shared.filtered(context, partial(_of_every_node, context))
    judged = context.judge_every_node()
    if narrowed is None:
        return _of_every_node(context, judged)
    inside = np.ones(size, dtype=np.bool_)
    if narrowed.names is not None:
        # A nominated node is filtered before the narrowing is looked at.
        names = narrowed.names | {context.incoming.pod.status.nominated_node_name}
        inside = np.array([name in names for name in context.names], dtype=np.bool_)
        judged = _outside(judged, inside, _status_outside(context, judged, narrowed))
    if narrowed.outside not in {"skipped", "dry-run"}:
        statuses = context.statuses(every, judged)
    else:
        statuses = context.statuses(every[inside], judged, positions=every[inside])
    return Filtered(codes=judged.codes, statuses=statuses, filtered=inside)


def _of_every_node(context: DecisionContext, judged: Judged) -> Filtered:
    every = context.snapshot.nodes.every
    return Filtered(
        codes=judged.codes,
        statuses=context.statuses(every, judged),
        filtered=np.ones(every.size, dtype=np.bool_),
    )


def _status_outside(context: DecisionContext, judged: Judged, narrowed: Narrowing) -> StatusOfNode:
    """Code, filter and reasons of a node outside the narrowed set."""
    if narrowed.outside == "dry-run":
        return UNSCHEDULABLE, "", ()
    plugins = {FILTERS[narrowed.by].plugin}
    if context.nominated != NOWHERE:
        # The nominated node is judged first, and what rejects it there is listed with the rest.
        _, rejecting, _ = judged.statuses[judged.index[context.nominated]]
        plugins |= {FILTERS[rejecting].plugin} if rejecting else set()
    text = messages.NOT_SATISFIED.format(plugins=" ".join(sorted(plugins)))
    return UNRESOLVABLE, "", (text,)


def _outside(judged: Judged, inside: Bools, status: StatusOfNode) -> Judged:
    """Statuses with those of nodes outside the narrowed set replaced."""
    return Judged(
        codes=np.where(inside, judged.codes, status[0]).astype(np.int8),
        index=np.where(inside, judged.index, len(judged.statuses)),
        statuses=(*judged.statuses, status),
    )
