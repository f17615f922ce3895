"""What a scheduler's call says of the state that it is decided on: that is behind.

A scheduler sees the cluster a moment before whoever follows it writes what changed. It offers what
is possible as it sees the cluster, so what the state says against an offer may be over by now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from policy.cluster.marked import NominatedByNode
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import PRIORITY, SCHEDULER
from policy.decision import messages
from policy.decision.model import Decision, Outcome
from policy.extenders.protocol import uid_of
from policy.preemption.offers import not_bound_yet
from policy.server.extender.wire import PreemptRequest

KeptOut = frozenset[tuple[str, str]]
"""Nodes that are left out, each with the uid of a pod that it is for, or with the reason."""

_REMEMBERED: Final = 1000
"""Of these, how many are remembered that were waited for in vain."""
_SURE_MS: Final = 10_000
"""How long a node that the state does not have is taken for one that it will not have. It may be
made anew under its name."""
_UNKNOWN: Final = frozenset(
    {messages.UNKNOWN_NODE, messages.UNKNOWN_VICTIM, messages.UNKNOWN_NAMESPACE}
)


class Awaited:
    """What keeps nodes out that a follower may write otherwise in a moment.

    Where another node is answered, its pods may stay then. What is still so after a wait may stay
    so, as where a scheduler was never told what it promised: for each it is waited once. A cluster
    without a follower has no news.
    """

    def __init__(self, *, followed: Callable[[], bool], clock: Callable[[], int]) -> None:
        """followed: does somebody follow the cluster, or did so? Raises StoreError.

        clock: milliseconds since 1970 UTC.
        """
        self._followed = followed
        self._clock = clock
        #: may news come? None where `followed` is to be asked; False from a wait in vain on, until
        #: somebody else has written
        self._news: bool | None = None
        self._in_vain: dict[tuple[str, str], int] = {}  #: since when, newest last

    def of(self, decision: Decision, snapshot: Snapshot, request: PreemptRequest) -> KeptOut:
        """What a decision is worth waiting for. Raises StoreError."""
        if self._news is False:
            return frozenset()
        kept_out = _kept_out(decision, snapshot, request)
        awaited = frozenset(one for one in kept_out if not self._was_in_vain(one))
        if awaited and self._news is None:
            self._news = self._followed()
        return awaited if self._news else frozenset()

    def in_vain(self, awaited: KeptOut) -> None:
        """It is so still, after a wait."""
        for one in sorted(awaited):
            self._in_vain.pop(one, None)
            self._in_vain[one] = self._clock()
        self._in_vain = dict([*self._in_vain.items()][-_REMEMBERED:])
        self._news = False

    def _was_in_vain(self, one: tuple[str, str]) -> bool:
        since = self._in_vain.get(one)
        if since is None or one[1] not in _UNKNOWN:
            return since is not None
        return 0 <= self._clock() - since < _SURE_MS

    def others_write(self) -> None:
        """Somebody else has changed the state."""
        self._news = self._news or None


def is_behind(decision: Decision, snapshot: Snapshot) -> bool:
    """Was the pod refused for what the scheduler, by its call, has seen change already?

    It offers no candidates for a pod that waits for victims to leave, and none that it does not
    know.
    """
    if decision.outcome is Outcome.PREEMPT:
        return False
    return bool(decision.trace.waits_for) or _names_unknown(decision, _to_come(snapshot))


def _to_come(snapshot: Snapshot) -> frozenset[str]:
    """Of `_UNKNOWN`, the reasons that may be none in a moment.

    A state without any namespaces is not one that will have them.
    """
    return _UNKNOWN if snapshot.namespace_labels else _UNKNOWN - {messages.UNKNOWN_NAMESPACE}


def _kept_out(decision: Decision, snapshot: Snapshot, request: PreemptRequest) -> KeptOut:
    """By node, what keeps it out although the scheduler, which offers it, has seen that change.

    Pods that are nominated there, none of them of another scheduler: it offers no room that it has
    promised, so such a pod is gone by now, or goes elsewhere. And a node, or the namespace of a
    victim, that the state does not have. And victims that it may have later: who has left already
    comes no more. The full form brings the victims that the state does not have.
    """
    found = decision.trace.dry_run_statuses
    to_come = _to_come(snapshot) - {messages.UNKNOWN_VICTIM}
    reasons = [status.reasons for status in found.statuses]
    promised = [of == (messages.PROMISED,) for of in reasons]
    unknown = [not to_come.isdisjoint(of) for of in reasons]
    missing = [of == (messages.UNKNOWN_VICTIM,) and not request.full for of in reasons]
    if not any(promised) and not any(unknown) and not any(missing):
        return frozenset()
    kept_out: set[tuple[str, str]] = set()
    lacks_victims = set()
    for node, i in zip(found.nodes, found.index, strict=True):
        if promised[i]:
            kept_out.update((node, uid) for uid in _nominated(decision, snapshot, node))
        elif unknown[i]:
            kept_out.add((node, reasons[i][0]))
        elif missing[i]:
            lacks_victims.add(node)
    for one in request.offer if lacks_victims else ():
        if one.node in lacks_victims:
            kept_out.update((one.node, uid) for uid in not_bound_yet(snapshot, one.victims))
    return frozenset(kept_out)


def _nominated(decision: Decision, snapshot: Snapshot, node: str) -> Sequence[str]:
    """Uids of the pods that a node is kept for; none where one of them is of another scheduler."""
    priority, scheduler = snapshot.column(PRIORITY), snapshot.column(SCHEDULER)
    asks = snapshot.row(decision.preemptor)
    rows = NominatedByNode.of(snapshot).on_one(snapshot.nodes.index[node])
    rows = rows[(priority[rows] >= decision.preemptor_priority) & (rows != asks)]
    if not (scheduler[rows] == scheduler[asks]).all():
        return ()
    return [uid_of(pod) for pod in snapshot.pods.some(rows.tolist()) if pod is not None]


def misses_victims(decision: Decision) -> bool:
    """May it be another one where the state has all the victims that were offered?

    That a pod may not preempt says nothing of them, unless it waits for others to leave.
    """
    if decision.outcome is Outcome.NOT_ELIGIBLE and not decision.trace.waits_for:
        return False
    return decision.outcome is not Outcome.PREEMPT or _names_unknown(decision, _UNKNOWN)


def _names_unknown(decision: Decision, reasons: frozenset[str]) -> bool:
    """Was a candidate left out for one of these reasons, of `_UNKNOWN`?"""
    statuses = decision.trace.dry_run_statuses.statuses
    return any(not reasons.isdisjoint(status.reasons) for status in statuses)
