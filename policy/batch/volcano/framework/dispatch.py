"""How the answers of plugins are combined.

Orders: the first plugin that tells two apart. Overused: any plugin. Preemptive, allocatable,
ready: all. Starving: all of the first tier that has such a plugin. Votes (enqueueable, pipelined):
a rejection ends it; a permission, at the end of its tier. Victims: by intersection inside a tier,
and a tier that yields none hands over to the next.

Source: Volcano `pkg/scheduler/framework/session_plugins.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key, lru_cache
from itertools import groupby
from typing import Any

from policy.batch.heap import Heap
from policy.batch.limits import Limit, LimitKind
from policy.batch.orders import Order
from policy.batch.recording import Protection
from policy.batch.settings import PluginUse
from policy.batch.volcano.framework.functions import FLAGS, HINTS, KINDS, Consulted, Vote
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.cluster.selectors import go_integer


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginVictims:
    """What the plugins said about some tasks of a node."""

    tasks: list[Task]  #: accepted, in the order of the list
    tier: int  #: which decided; -1 where no plugin has such a function
    spared: dict[str, list[Task]]  #: plugin -> tasks that it did not accept


class Dispatch:
    """The functions of a session's plugins, in the order of the tiers."""

    def __init__(
        self, tiers: Sequence[Sequence[PluginUse]], *, jobs: int, queues: int, tasks: int
    ) -> None:
        """jobs, queues, tasks: how many there are."""
        self._tiers = tiers
        self._sizes = (jobs, queues, tasks)
        self._registered: dict[str, dict[str, Callable[..., Any]]] = {
            kind: {} for kind in KINDS | HINTS
        }
        self.arrange()

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None:
        """Names the functions of a plugin: any of KINDS and HINTS."""
        for kind, function in functions.items():
            self._registered[kind][plugin] = function

    def plugins_with(self, kind: str) -> Collection[str]:
        """Plugins that registered a function of the kind, switched off or not."""
        return self._registered[kind].keys()

    def arrange(self) -> None:
        """Puts the functions that are registered by now in the order of the tiers."""
        self._chains = {kind: tuple(self._chain(kind)) for kind in KINDS}
        jobs, queues, tasks = self._sizes
        by_plugins = self.functions("job_order")
        self.job_order: Order[Job] = Order(
            [*by_plugins, lambda job: job.created_ms, lambda job: job.uid], size=jobs
        )
        #: without the age and the name that settle every tie
        self._job_order_of_plugins: Order[Job] = Order(by_plugins, size=jobs)
        self.queue_order: Order[BatchQueue] = Order(
            [*self.functions("queue_order"), lambda q: q.created_ms, lambda q: q.name],
            size=queues,
        )
        self.task_order: Order[Task] = Order(
            [*self.functions("task_order"), cmp_to_key(_by_ordinal)], size=tasks
        )

    def _chain(self, kind: str) -> Iterator[Consulted]:
        flag = FLAGS.get(kind)
        known = self._registered[kind]
        for number, tier in enumerate(self._tiers):
            for use in tier:
                if use.name in known and (flag is None or use.enabled(flag)):
                    yield Consulted(number, use.name, known[use.name])

    def consulted(self, kind: str) -> tuple[Consulted, ...]:
        return self._chains[kind]

    def functions(self, kind: str) -> tuple[Callable[..., Any], ...]:
        return tuple(consulted.function for consulted in self._chains[kind])

    def hint(self, kind: str, plugin: str) -> Callable[..., Any] | None:
        return self._registered[kind].get(plugin)

    def forget(self, task: Task, job: Job, queue: BatchQueue) -> None:
        """Something has happened to the task that orders may depend on."""
        self.job_order.forget(job)
        self._job_order_of_plugins.forget(job)
        self.queue_order.forget(queue)
        self.task_order.forget(task)

    # --- limits --------------------------------------------------------------------------------

    def overused(self, queue: BatchQueue) -> Limit | None:
        """The first plugin for which the queue has enough; None where there is none."""
        return self._first_limit("overused", queue)

    def allocatable(self, queue: BatchQueue, task: Task) -> Limit | None:
        """The first limit by which the queue may not take the task; None where it may."""
        return self._first_limit("allocatable", queue, task)

    def preemptive(self, queue: BatchQueue, tasks: Sequence[Task]) -> Limit | None:
        """The first limit by which the queue may not reclaim for the tasks."""
        return self._first_limit("preemptive", queue, tasks)

    def _first_limit(self, kind: str, *asked: Any) -> Limit | None:
        for consulted in self._chains[kind]:
            limit: Limit | None = consulted.function(*asked)
            if limit is not None:
                return replace(limit, tier=consulted.tier)
        return None

    # --- jobs ----------------------------------------------------------------------------------

    def valid(self, job: Job) -> bool:
        return all(function(job) for function in self.functions("job_valid"))

    def ready(self, job: Job) -> bool:
        return all(consulted.function(job) for consulted in self._chains["job_ready"])

    def starving(self, job: Job) -> bool:
        """Does the job need more? The first tier with such a function decides; none: no."""
        chain = self._chains["job_starving"]
        return bool(chain) and all(c.function(job) for c in chain if c.tier == chain[0].tier)

    def pipelined(self, job: Job) -> bool:
        return self._rejected("job_pipelined", job) is None

    def not_enqueueable(self, job: Job) -> Limit | None:
        """What keeps the job out of its queue; None where it may enter."""
        return self._rejected("job_enqueueable", job)

    def _rejected(self, kind: str, job: Job) -> Limit | None:
        for _, of_tier in groupby(self._chains[kind], key=lambda c: c.tier):
            permitted = False
            for consulted in of_tier:
                answer: Vote | Limit = consulted.function(job)
                if isinstance(answer, Limit):
                    return replace(answer, tier=consulted.tier)
                if answer is Vote.REJECT:
                    return Limit(
                        plugin=consulted.plugin,
                        rule=LimitKind.VOTE,
                        subject=job.queue,
                        tier=consulted.tier,
                    )
                permitted |= answer is Vote.PERMIT
            if permitted:
                return None
        return None

    def enqueued(self, job: Job) -> None:
        for function in self.functions("job_enqueued"):
            function(job)

    # --- victims -------------------------------------------------------------------------------

    def evictable(self, kind: str, claimant: Task, tasks: list[Task]) -> PluginVictims:
        """Which of the tasks may be evicted for the claimant. kind: preemptable, reclaimable."""
        spared: dict[str, list[Task]] = {}
        for tier, of_tier in groupby(self._chains[kind], key=lambda c: c.tier):
            victims: list[Task] = []
            for consulted in of_tier:
                answer: list[Task] | None = consulted.function(claimant, tasks)
                if answer is None:
                    continue
                among = {task.index for task in answer}
                missing = [t for t in tasks if t.index not in among]
                if missing:
                    spared[consulted.plugin] = missing
                if not answer:
                    victims = []
                    break
                # An empty intersection is no answer: the next plugin of the tier starts afresh.
                victims = [t for t in victims if t.index in among] if victims else answer
            if victims:
                return PluginVictims(tasks=victims, tier=tier, spared=spared)
        return PluginVictims(tasks=[], tier=-1, spared=spared)

    def protections(
        self, kind: str, claimant: Task, tasks: list[Task], said: PluginVictims
    ) -> tuple[Protection, ...]:
        """The limits, with numbers, for which plugins spared some of the tasks."""
        found: list[Protection] = []
        for plugin in said.spared:
            limits = self.hint(f"{kind}_limits", plugin)
            found += () if limits is None else limits(claimant, tasks)
        return tuple(found)

    def victims(self, tasks: list[Task]) -> list[Task]:
        """Tasks that plugins want gone, whoever waits: those of the first tier that names any."""
        for _, of_tier in groupby(self._chains["victims"], key=lambda c: c.tier):
            found = {t.index: t for consulted in of_tier for t in consulted.function(tasks)}
            if found:
                return [found[index] for index in sorted(found)]
        return []

    def in_victim_order(
        self,
        victims: Sequence[Task],
        claimant: Task,
        *,
        jobs: dict[str, Job],
        queues: dict[str, BatchQueue],
    ) -> Heap[Task]:
        """The victims as a heap: who is evicted first comes out first, as things are then."""
        own = queues.get(jobs[claimant.job].queue) if claimant.job in jobs else None

        def compare(left: Task, right: Task) -> int:
            # Tasks of which the job is not known go first.
            if left.job not in jobs or right.job not in jobs:
                return (left.job in jobs) - (right.job in jobs)
            one, other = jobs[left.job], jobs[right.job]
            if one is not other:
                if one.queue != other.queue:
                    return self._victim_queues(queues[one.queue], queues[other.queue], own)
                order = self._job_order_of_plugins
                found = _compare(order.key(other), order.key(one))
                if found:
                    return found
            return _compare(self.task_order.key(right), self.task_order.key(left))

        heap: Heap[Task] = Heap(cmp_to_key(compare))
        for victim in victims:
            heap.push(victim)
        return heap

    def _victim_queues(self, one: BatchQueue, other: BatchQueue, own: BatchQueue | None) -> int:
        for function in self.functions("victim_queue_order"):
            found: int = function(one, other, own)
            if found:
                return found
        return _compare(self.queue_order.key(other), self.queue_order.key(one))


def _compare(left: Any, right: Any) -> int:
    return -1 if left < right else 1 if right < left else 0


@lru_cache(65536)
def _ordinal(name: str) -> int | None:
    """The number at the end of a replica's name (`job-role-3`), None without one."""
    parts = name.split("-")
    return go_integer(parts[-1]) if len(parts) >= 3 else None


def _by_ordinal(left: Task, right: Task) -> int:
    """Replicas in the order of their numbers; others by age and uid."""
    one, other = _ordinal(left.pod.metadata.name), _ordinal(right.pod.metadata.name)
    if one is not None and other is not None and one != other:
        return one - other
    return _compare((left.created_ms, left.uid), (right.created_ms, right.uid))
