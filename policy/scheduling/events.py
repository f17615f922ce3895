"""What changes of a cluster mean for the pods that wait in the scheduling queue.

Source: kube-scheduler's event handlers and hints; specification, section 8. A change that frees
room or may lift another obstacle moves every pod that failed; a placed pod moves only those whose
own requirements it may meet, and members of pod groups. Those are popped together.

kube-scheduler tries the members of a group that failed again after each backoff, whatever happened.
Here a cycle that changed nothing is made again when something happened, or after
`queue.unschedulableSeconds`: on an equal cluster it would end the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeGuard

from msgspec.structs import replace

from policy.cluster.members import groups_of
from policy.cluster.objects import Pod, PodAffinityTerm, PodStatus, TopologySpreadConstraint
from policy.cluster.pod_groups import KIND as POD_GROUP
from policy.cluster.pod_groups import group_key
from policy.cluster.requests import pod_requests
from policy.cluster.selectors import compile_selector
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import LabelSet
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision, NominationChange, Outcome
from policy.filters import default_spread
from policy.filters.affinity_terms import compile_term, required_terms
from policy.rules.group_rules import GroupRules
from policy.rules.ruleset import QueueOrder, QueueRules
from policy.scheduling.order import QueueHead, arrival_ms, head_of, pending, waiting
from policy.scheduling.queue import SchedulingQueue
from policy.scheduling.state import Transition

# They spread pods, and free nothing.
_SPREADING = default_spread.KINDS
_ENDED = frozenset({"Succeeded", "Failed"})


class QueueFeed:
    """Keeps the queue of one scheduler in step with the cluster."""

    def __init__(
        self,
        rules: QueueRules,
        *,
        scheduler: str,
        clock: Callable[[], int],
        groups: GroupRules | None = None,
    ) -> None:
        """clock: milliseconds since 1970 UTC, by which backoffs end.

        scheduler: the pods that name it take part. groups: how members of pod groups are scheduled
        together; without it every pod is scheduled by itself.
        """
        self.queue = SchedulingQueue(rules)
        self._order = rules.order
        self._scheduler = scheduler
        self._clock = clock
        self._groups = groups
        self._in_cycle: tuple[str, ...] = ()
        self._tried_elsewhere = False
        self._tried: set[str] = set()  # since anything happened that may help
        self._choosy: set[str] = set()  # waiting pods that a placed one may help

    def fill(self, snapshot: Snapshot) -> None:
        """Queue every pod that waits, also those that failed before."""
        for key in pending(snapshot, scheduler=self._scheduler, order=self._order):
            pod = snapshot.pod(key)
            assert pod is not None
            self._note(key, pod)
            self._add(key, pod)

    def pop(self) -> str | None:
        """The pod to try next, until `decided` or `dropped` says what came of it."""
        self._tried_elsewhere = False
        key = self.queue.pop(without=self._tried)
        self._in_cycle = () if key is None else (key,)
        return key

    def pass_over(self, fails: Callable[[str], bool], *, cycle_ms: int, until_ms: int) -> int:
        """Try the next pods for as long as each is certain to fail; see `SchedulingQueue`."""
        return self.queue.pass_over(
            fails, tried=self._tried, now_ms=self._clock(), cycle_ms=cycle_ms, until_ms=until_ms
        )

    @property
    def grouped(self) -> bool:
        """Are members of pod groups scheduled together?"""
        return self._groups is not None

    def gather(self, key: str, snapshot: Snapshot) -> QueueHead | None:
        """The cycle of the popped pod: members of its group are taken out with it.

        None where the gate of the group is closed; the pod waits until its group changes.
        """
        head = head_of(key, snapshot, self._groups)
        if key not in head.pods:
            self.queue.hold_back(key)
            self._in_cycle = ()
            return None
        for other in head.pods:
            if other != key:
                self.queue.take(other)
        self._in_cycle = head.pods
        return head

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
        key, self._in_cycle = decision.preemptor, ()
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

    def group_decided(self, decision: GroupDecision, snapshot: Snapshot) -> None:
        """What the cycle of a group means for its members; `snapshot` is what it led to."""
        keys, self._in_cycle = self._in_cycle, ()
        done = decision.effects
        for key in keys:
            pod = snapshot.pod(key)
            if pod is None or not waiting(pod, scheduler=self._scheduler):
                self.queue.delete(key)
                continue
            self.queue.failed_with_group(
                key,
                priority=pod.spec.priority or 0,
                now_ms=self._clock(),
                nominated=pod.status.nominated_node_name,
                moved=bool(done.bind or done.evict or done.nominate or done.clear_nominations),
            )
            if key in self.queue.active():
                self._tried.add(key)

    def failed_again(self, key: str, snapshot: Snapshot) -> None:
        """The popped pod failed as it did before, and keeps its nomination."""
        self._in_cycle = ()
        self._tried.add(key)
        pod = snapshot.pod(key)
        assert pod is not None
        self.queue.failed_again(key, priority=pod.spec.priority or 0, now_ms=self._clock())

    def dropped(self, snapshot: Snapshot) -> None:
        """The popped pods were not decided: others placed, removed, or tried them in vain."""
        keys, self._in_cycle = self._in_cycle, ()
        for key in keys:
            pod = snapshot.pod(key)
            if pod is None or not waiting(pod, scheduler=self._scheduler):
                self.queue.delete(key)
            else:
                self._failed_elsewhere(key, pod)

    def follow(self, step: Transition) -> None:
        """Take over what a step of the cluster means: who comes, who goes, whom it may help."""
        freed = False
        placed: list[tuple[Pod | None, Pod]] = []  # as it was, and as it is
        arrived: list[str] = []
        for kind, key, _ in step.changes:
            if kind == POD_GROUP:
                freed |= self._groups is not None and _another_group(step, key)
                continue
            if kind != "Pod":
                freed |= kind not in _SPREADING
                continue
            before = step.before.pod(key)
            after = step.after.pod(key)
            freed |= _frees(before, after)
            if after is not None and _fills(before, after):
                placed.append((before, after))
            waits = after is not None and waiting(after, scheduler=self._scheduler)
            self._note(key, after if waits else None)
            if after is not None and waits:
                if key not in self._in_cycle:
                    if key not in self.queue or before is None or _another(before, after):
                        arrived.append(key)
                    else:
                        self._updated(key, before, after)
                elif before is not None and _failed_since(before, after):
                    self._tried_elsewhere = True
            elif key not in self._in_cycle:
                self.queue.delete(key)
        arrived = list(dict.fromkeys((*arrived, *self._gates_touched(step))))
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

    def _gates_touched(self, step: Transition) -> list[str]:
        """Pods behind a gate whose group, or a member of it, has changed: it may be open now."""
        gated = self.queue.gated()
        if not gated:
            return []
        touched = set()
        for kind, key, _ in step.changes:
            if kind == POD_GROUP:
                touched.add(key)
            elif kind == "Pod":
                pods = (step.before.pod(key), step.after.pod(key))
                touched.update(group_key(pod) for pod in pods if pod is not None)
        found = ((key, step.after.pod(key)) for key in gated)
        return [key for key, pod in found if pod is not None and group_key(pod) in touched]

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

    def _may_fit_beside(
        self, placed: Iterable[tuple[Pod | None, Pod]], snapshot: Snapshot
    ) -> set[str]:
        """Waiting pods with a required affinity, anti-affinity or spread that may be met by now.

        placed: pods that were placed, or got other labels, each as it was and as it is. Members of
        groups are tried again for every placed pod.
        """
        sets = [
            (_label_set(before) if _occupies(before) else None, _label_set(after))
            for before, after in placed
        ]
        found = set()
        waiting_now = self.queue.unschedulable()
        for key in self._choosy:
            pod = snapshot.pod(key) if key in waiting_now else None
            if pod is None:
                continue
            if self._member(pod) or any(_meets(pod, *one, snapshot) for one in sets):
                found.add(key)
        return found

    def _member(self, pod: Pod) -> bool:
        """Is the pod scheduled with others of its group?"""
        return self._groups is not None and bool(group_key(pod))

    def _note(self, key: str, pod: Pod | None) -> None:
        """Remember of a waiting pod whether a placed one may help it; None: it does not wait."""
        if pod is not None and (
            pod.spec.affinity or pod.spec.topology_spread_constraints or self._member(pod)
        ):
            self._choosy.add(key)
        else:
            self._choosy.discard(key)


def _in_queue_order(keys: list[str], snapshot: Snapshot, order: QueueOrder) -> list[str]:
    """Those that come at once: higher priority, earlier arrival, namespace and name."""

    def place(key: str) -> tuple[int, int, tuple[str, ...]]:
        pod = snapshot.pod(key)
        assert pod is not None
        arrival = arrival_ms(pod, now_ms=snapshot.now_ms, order=order)
        return -(pod.spec.priority or 0), arrival, tuple(key.split("/", 1))

    return sorted(keys, key=place)


def _label_set(pod: Pod) -> LabelSet:
    meta = pod.metadata
    return LabelSet(namespace=meta.namespace or "default", labels=meta.labels or {})


def _meets(pod: Pod, was: LabelSet | None, placed: LabelSet, snapshot: Snapshot) -> bool:
    """May the placed pod satisfy a requirement of the waiting one, or no longer stand in its way?

    was: what it was called where it was placed already; None where it was not.
    """
    namespace = pod.metadata.namespace or "default"
    labels = snapshot.namespace_labels.get(placed.namespace, {})

    def selected(term: PodAffinityTerm, one: LabelSet) -> bool:
        return compile_term(term, namespace=namespace).selects(one, labels)

    def counted(constraint: TopologySpreadConstraint, one: LabelSet) -> bool:
        return compile_selector(constraint.label_selector).matches(one.labels)

    return (
        any(selected(term, placed) for term in required_terms(pod, anti=False))
        or (
            was is not None
            and any(
                selected(term, was) and not selected(term, placed)
                for term in required_terms(pod, anti=True)
            )
        )
        or any(
            placed.namespace == namespace
            and (counted(constraint, placed) or (was is not None and counted(constraint, was)))
            for constraint in pod.spec.topology_spread_constraints or ()
            if constraint.when_unsatisfiable == "DoNotSchedule"
        )
    )


def _occupies(pod: Pod | None) -> TypeGuard[Pod]:
    return pod is not None and bool(pod.spec.node_name) and pod.status.phase not in _ENDED


def _another(before: Pod, after: Pod) -> bool:
    """Is it another pod of the same name?"""
    return before.metadata.uid != after.metadata.uid


def _another_group(step: Transition, key: str) -> bool:
    """Does the pod group say anything else than before, beside its conditions?"""
    before, after = groups_of(step.before).get(key), groups_of(step.after).get(key)
    return before is None or after is None or before.spec != after.spec


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
        or _resized_down(before, after)
    )


def _resized_down(before: Pod, after: Pod) -> bool:
    """Does the pod hold less of anything, as its status says while its spec stays?"""
    says = (before.status, after.status)  # only with one of these more or less than the spec
    if says[0] == says[1] or not any(one.container_statuses or one.resources for one in says):
        return False
    holds = pod_requests(after, on_node=True)
    return any(holds.get(name, 0) < n for name, n in pod_requests(before, on_node=True).items())


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
