"""The disruption controller's part: how many pods each budget still allows to be disrupted.

Source: Kubernetes' disruption controller. `disruptionsAllowed` is the number of healthy pods beyond
`desiredHealthy`, and that follows from the budget's spec: `minAvailable` as a number is the desired
number itself, a percentage is one of the expected pods; `maxUnavailable` is taken off them.
Percentages are rounded up.

Expected are the pods that the budget selects, from when they come until they end: one that waits,
and one that was evicted and is to come again, too. Kubernetes takes the scales of the pods'
controllers, which traces and dumps do not hold, and which are these pods while no one is scaled.
A budget whose spec holds neither number stays at what its status says when it comes: that many
healthy pods, or, where the status holds the allowed number alone, as many as are healthy then less
that number.

Pods are counted by namespace and labels, and budgets select such groups: a change of a pod costs as
much as there are budgets that select it, and a change of a budget as much as there are groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import Final

from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.objects import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus, key_of
from policy.cluster.selectors import Selector, compile_selector
from policy.scheduling.state import Transition
from policy.simulation.trace import Trace, TraceEvent

_KIND: Final = "PodDisruptionBudget"
_SHOWN: Final = 5


@dataclass(slots=True, kw_only=True)
class _Watched:
    """A budget, and what it selects now."""

    budget: PodDisruptionBudget  #: as the cluster holds it
    selector: Selector
    healthy: int = 0
    expected: int = 0
    given: int = 0  #: desired where the spec does not say it
    fresh: bool = True  #: its status has not been set since it came or changed

    def status(self) -> PodDisruptionBudgetStatus:
        desired = _desired(self.budget, self.expected, self.given)
        return replace(
            self.budget.status,
            disruptions_allowed=max(0, self.healthy - desired),
            current_healthy=self.healthy,
            desired_healthy=desired,
            expected_pods=self.expected,
        )


@dataclass(slots=True, kw_only=True)
class _Alike:
    """The pods of a namespace that have the same labels."""

    labels: dict[str, str]
    healthy: int = 0
    expected: int = 0
    budgets: dict[str, _Watched] = field(default_factory=dict)  #: those that select them


class DisruptionController:
    """Follows the pods of the budgets, and says which statuses have to change."""

    def __init__(
        self,
        budgets: Sequence[PodDisruptionBudget],
        pods: Iterable[Pod],
        later: Iterable[TraceEvent] = (),
    ) -> None:
        """later: what will change; where no budget is there or will come, nothing is counted."""
        self._idle = not budgets and all(event.change[0] != _KIND for event in later)
        self._alike: dict[str, dict[frozenset[tuple[str, str]], _Alike]] = {}  # by namespace
        self._watched: dict[str, _Watched] = {}
        self._there: set[str] = set()  # pods that are expected
        self._touched: dict[str, None] = {}  # budgets that may have another status, in order
        if not self._idle:
            for pod in pods:
                self._count(pod, healthy=_is_healthy(pod))
            for budget in budgets:
                self._watch(key_of(budget), budget)

    def comes(self, key: str, pod: Pod) -> None:
        """The pod is one of those that there should be."""
        if not self._idle and key not in self._there:
            self._there.add(key)
            self._count(pod, expected=1)

    def ends(self, key: str, pod: Pod) -> None:
        """The pod has ended, and none comes in its place."""
        if key in self._there:
            self._there.remove(key)
            self._count(pod, expected=-1)

    def follow(self, step: Transition) -> None:
        """Take over a step of the cluster."""
        if self._idle:
            return
        for key in {key: None for kind, key, _ in step.changes if kind == "Pod"}:
            before, after = step.before.pod(key), step.after.pod(key)
            if before is not None:
                self._count(before, healthy=-_is_healthy(before))
            if after is not None:
                self._count(after, healthy=_is_healthy(after))
        for key in {key: None for kind, key, _ in step.changes if kind == _KIND}:
            budget = step.after.of_kind(_KIND).get(key)
            watched = self._watched.get(key)
            if watched is None or watched.budget != budget:
                self._forget(key)
                if isinstance(budget, PodDisruptionBudget):
                    self._watch(key, budget)

    def changes(self) -> Iterator[Change]:
        """Budgets whose status is another one now."""
        for key in self._touched:
            watched = self._watched[key]
            before, after = watched.budget.status, watched.status()
            # Nothing is decided by the other numbers, and most pods that come change them.
            same = before.disruptions_allowed == after.disruptions_allowed
            if before != after if watched.fresh else not same:
                watched.budget = replace(watched.budget, status=after)
                yield _KIND, key, watched.budget
            watched.fresh = False
        self._touched.clear()

    def _watch(self, key: str, budget: PodDisruptionBudget) -> None:
        selector = compile_selector(budget.spec.selector)
        if selector.nothing or selector.empty:
            return  # it selects nothing for a scheduler
        watched = self._watched[key] = _Watched(budget=budget, selector=selector)
        for alike in self._alike.get(budget.metadata.namespace or "default", {}).values():
            if selector.matches(alike.labels):
                alike.budgets[key] = watched
                watched.healthy += alike.healthy
                watched.expected += alike.expected
        status = budget.status
        counted = status.expected_pods > 0
        allowed = max(0, watched.healthy - status.disruptions_allowed)
        watched.given = status.desired_healthy if counted else allowed
        self._touched[key] = None

    def _forget(self, key: str) -> None:
        if self._watched.pop(key, None) is not None:
            self._touched.pop(key, None)
            for alike in self._alike.get(key.partition("/")[0], {}).values():
                alike.budgets.pop(key, None)

    def _count(self, pod: Pod, *, healthy: int = 0, expected: int = 0) -> None:
        labels = pod.metadata.labels
        if not labels or not (healthy or expected):
            return
        namespace = pod.metadata.namespace or "default"
        groups = self._alike.setdefault(namespace, {})
        name = frozenset(labels.items())
        alike = groups.get(name)
        if alike is None:
            alike = groups[name] = self._group(namespace, labels)
        alike.healthy += healthy
        alike.expected += expected
        for key, watched in alike.budgets.items():
            watched.healthy += healthy
            watched.expected += expected
            self._touched[key] = None

    def _group(self, namespace: str, labels: dict[str, str]) -> _Alike:
        budgets = {
            key: watched
            for key, watched in self._watched.items()
            if key.partition("/")[0] == namespace and watched.selector.matches(labels)
        }
        return _Alike(labels=labels, budgets=budgets)


def noted(trace: Trace) -> Trace:
    """The trace with a note on the budgets whose status is not what will be counted.

    Pods that are not ready, and controllers that want more pods than there are, are in the status
    and nowhere else.
    """
    budgets = {
        key_of(o): o
        for o in trace.objects
        if isinstance(o, PodDisruptionBudget) and o.status != PodDisruptionBudgetStatus()
    }
    counted = DisruptionController(
        list(budgets.values()), (task.pod for task in trace.tasks if task.running)
    )
    for task in trace.tasks:
        if task.arrives_ms <= trace.start_ms and not task.pod.metadata.deletion_timestamp:
            counted.comes(task.key, task.pod)
    found = []
    for _, key, after in counted.changes():
        assert isinstance(after, PodDisruptionBudget)
        said, now = budgets[key].status.disruptions_allowed, after.status.disruptions_allowed
        if said != now:
            found.append(f"`{key}` ({now}, its status says {said})")
    if not found:
        return trace
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    note = (
        "disruptions that budgets allow at the start follow from their spec and the pods that are"
        f" there: {', '.join(found[:_SHOWN])}{more}"
    )
    return replaced(trace, notes=[*trace.notes, note])


def _is_healthy(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not pod.metadata.deletion_timestamp


def _desired(budget: PodDisruptionBudget, expected: int, given: int) -> int:
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, expected - _scaled(spec.max_unavailable, expected))
    if spec.min_available is not None:
        return _scaled(spec.min_available, expected)
    return given


def _scaled(value: int | str, of: int) -> int:
    """A number, or a percentage of another one, rounded up."""
    return value if isinstance(value, int) else -(-int(value.removesuffix("%")) * of // 100)
