"""What changes of a cluster mean for the pods that wait in the scheduling queue.

Source: kube-scheduler's event handlers and hints; specification, section 8. A change that frees
room or may lift another obstacle moves every pod that failed; a placed pod moves only those whose
own requirements it may meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from policy.cluster.objects import Pod, PodStatus
from policy.cluster.selectors import compile_selector
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import LabelSet
from policy.decision.model import Decision, NominationChange, Outcome
from policy.filters import default_spread
from policy.filters.affinity_terms import compile_term, required_terms
from policy.rules.ruleset import QueueOrder, QueueRules
from policy.scheduling.order import arrival_ms, pending, waiting
from policy.scheduling.queue import SchedulingQueue
from policy.scheduling.state import Transition

# They spread pods, and free nothing.
_SPREADING = default_spread.KINDS
_ENDED = frozenset({"Succeeded", "Failed"})


class QueueFeed:
    """Keeps the queue of one scheduler in step with the cluster."""

    def __init__(self, rules: QueueRules, *, scheduler: str, clock: Callable[[], int]) -> None:
        """clock: milliseconds since 1970 UTC, by which backoffs end.

        scheduler: the pods that name it take part.
        """
        self.queue = SchedulingQueue(rules)
        self._order = rules.order
        self._scheduler = scheduler
        self._clock = clock
        self._in_cycle = ""
        self._tried_elsewhere = False
        self._tried: set[str] = set()  # since anything happened that may help

    def fill(self, snapshot: Snapshot) -> None:
        """Queue every pod that waits, also those that failed before."""
        for key in pending(snapshot, scheduler=self._scheduler, order=self._order):
            pod = snapshot.pod(key)
            assert pod is not None
            self._add(key, pod)

    def pop(self) -> str | None:
        """The pod to try next, until `decided` or `dropped` says what came of it."""
        self._tried_elsewhere = False
        self._in_cycle = self.queue.pop(without=self._tried) or ""
        return self._in_cycle or None

    def ready(self) -> bool:
        """Is there a pod to try?

        A FIFO has a pod that failed back at once, but nothing has happened since that may help.
        """
        return not self._tried.issuperset(self.queue.active())

    def flush(self) -> None:
        """Backoffs that are over end, and pods that have waited for very long become active."""
        self.queue.flush(now_ms=self._clock())

    def time_passed(self) -> None:
        """Enough time for a pod to be tried again that its queue holds ready all the time."""
        self._tried.clear()

    def tried_elsewhere(self) -> bool:
        """Has another scheduler tried the pod in vain since it was popped?"""
        return self._tried_elsewhere

    def decided(self, decision: Decision) -> None:
        """What the decision means for its pod; the changes that it made are followed as all are."""
        key, self._in_cycle = decision.preemptor, ""
        if decision.outcome is Outcome.BIND:
            self.queue.delete(key)
            return
        self._tried.add(key)
        nominated = self.queue.nominator.node_of(key)
        if decision.effects.nomination is NominationChange.SET:
            nominated = decision.node or ""
        elif decision.effects.nomination is NominationChange.CLEAR:
            nominated = ""
        self.queue.failed(
            key,
            priority=decision.preemptor_priority,
            now_ms=self._clock(),
            nominated=nominated,
        )

    def failed_again(self, key: str, snapshot: Snapshot) -> None:
        """The popped pod failed as it did before, and keeps its nomination."""
        self._in_cycle = ""
        self._tried.add(key)
        pod = snapshot.pod(key)
        assert pod is not None
        self.queue.failed(
            key,
            priority=pod.spec.priority or 0,
            now_ms=self._clock(),
            nominated=self.queue.nominator.node_of(key),
        )

    def dropped(self, snapshot: Snapshot) -> None:
        """The popped pod was not decided: others placed it, removed it, or tried it in vain."""
        key, self._in_cycle = self._in_cycle, ""
        pod = snapshot.pod(key)
        if pod is None or not waiting(pod, scheduler=self._scheduler):
            self.queue.delete(key)
        else:
            self._failed_elsewhere(key, pod)

    def follow(self, step: Transition) -> None:
        """Take over what a step of the cluster means: who comes, who goes, whom it may help."""
        freed = False
        placed: list[Pod] = []
        arrived: list[str] = []
        for kind, key, _ in step.changes:
            if kind != "Pod":
                freed |= kind not in _SPREADING
                continue
            before = step.before.pod(key)
            after = step.after.pod(key)
            freed |= _frees(before, after)
            if after is not None and _fills(before, after):
                placed.append(after)
            if after is not None and waiting(after, scheduler=self._scheduler):
                if key != self._in_cycle:
                    if key not in self.queue or before is None or _another(before, after):
                        arrived.append(key)
                    else:
                        self._updated(key, before, after)
                elif before is not None and _failed_since(before, after):
                    self._tried_elsewhere = True
            elif key != self._in_cycle:
                self.queue.delete(key)
        now_ms = self._clock()
        if freed or placed:
            self._tried.clear()
        if freed:  # after that attempt, for all that is known
            self._tried_elsewhere = False
        self._tried.difference_update(arrived)
        if freed:
            self.queue.move_all(now_ms=now_ms)
        elif placed:
            self.queue.move(self._may_fit_beside(placed, step.after), now_ms=now_ms)
        if self._in_cycle:
            # The pod is decided on the state that this leads to: it need not be tried once more.
            self.queue.cycle_restarted()
        for key in _in_queue_order(arrived, step.after, self._order):
            pod = step.after.pod(key)
            assert pod is not None
            self._add(key, pod)

    def _add(self, key: str, pod: Pod) -> None:
        self.queue.add(
            key,
            priority=pod.spec.priority or 0,
            now_ms=arrival_ms(pod, now_ms=self._clock(), order=self._order),
            nominated=pod.status.nominated_node_name,
        )

    def _updated(self, key: str, before: Pod, after: Pod) -> None:
        if _failed_since(before, after):
            self._failed_elsewhere(key, after)
            return
        may_help = _placeable(before) != _placeable(after)
        if may_help:
            self._tried.discard(key)
        self.queue.update(
            key,
            priority=after.spec.priority or 0,
            may_help=may_help,
            now_ms=self._clock(),
            nominated=after.status.nominated_node_name,
            was_nominated=before.status.nominated_node_name,
        )

    def _failed_elsewhere(self, key: str, pod: Pod) -> None:
        self.queue.failed_elsewhere(
            key,
            priority=pod.spec.priority or 0,
            now_ms=self._clock(),
            nominated=pod.status.nominated_node_name,
        )

    def _may_fit_beside(self, placed: Iterable[Pod], snapshot: Snapshot) -> set[str]:
        """Waiting pods whose required affinity or spread one of the placed pods matches."""
        sets = [
            LabelSet(namespace=p.metadata.namespace or "default", labels=p.metadata.labels or {})
            for p in placed
        ]
        found = set()
        for key in self.queue.unschedulable():
            pod = snapshot.pod(key)
            if pod is not None and any(_meets(pod, one, snapshot) for one in sets):
                found.add(key)
        return found


def _in_queue_order(keys: list[str], snapshot: Snapshot, order: QueueOrder) -> list[str]:
    """Those that come at once: higher priority, earlier arrival, namespace and name."""

    def place(key: str) -> tuple[int, int, tuple[str, ...]]:
        pod = snapshot.pod(key)
        assert pod is not None
        arrival = arrival_ms(pod, now_ms=snapshot.now_ms, order=order)
        return -(pod.spec.priority or 0), arrival, tuple(key.split("/", 1))

    return sorted(keys, key=place)


def _meets(pod: Pod, placed: LabelSet, snapshot: Snapshot) -> bool:
    """May the placed pod satisfy a requirement of the waiting one?"""
    namespace = pod.metadata.namespace or "default"
    labels = snapshot.namespace_labels.get(placed.namespace, {})
    return any(
        compile_term(term, namespace=namespace).selects(placed, labels)
        for term in required_terms(pod, anti=False)
    ) or any(
        placed.namespace == namespace
        and compile_selector(constraint.label_selector).matches(placed.labels)
        for constraint in pod.spec.topology_spread_constraints or ()
        if constraint.when_unsatisfiable == "DoNotSchedule"
    )


def _occupies(pod: Pod | None) -> bool:
    return pod is not None and bool(pod.spec.node_name) and pod.status.phase not in _ENDED


def _another(before: Pod, after: Pod) -> bool:
    """Is it another pod of the same name?"""
    return before.metadata.uid != after.metadata.uid


def _frees(before: Pod | None, after: Pod | None) -> bool:
    """Has room become free: a placed pod went, ended, or asks for something else by now?

    The room that is kept for a nominated pod becomes free where that pod goes.
    """
    if before is None:
        return False
    if not _occupies(before):
        gone = after is None or _another(before, after) or bool(after.metadata.deletion_timestamp)
        return gone and bool(before.status.nominated_node_name)
    return (
        after is None
        or not _occupies(after)
        or _another(before, after)
        or before.spec != after.spec
    )


def _fills(before: Pod | None, after: Pod) -> bool:
    """Is the pod newly placed, or placed with other labels?"""
    if not _occupies(after):
        return False
    return (
        before is None
        or not _occupies(before)
        or _another(before, after)
        or before.metadata.labels != after.metadata.labels
    )


def _placeable(pod: Pod) -> Pod:
    """The pod without what says nothing about where it fits."""
    return replace(pod, status=PodStatus())


def _failed_since(before: Pod, after: Pod) -> bool:
    """Has a scheduler tried the pod in vain between the two?"""
    return _failed(after) and not _failed(before)


def _failed(pod: Pod) -> bool:
    return any(
        condition.type == "PodScheduled" and condition.status == "False"
        for condition in pod.status.conditions or ()
    )
