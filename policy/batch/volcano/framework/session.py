"""One session: the state that actions change, and the plugin functions that decide.

Source: Volcano `pkg/scheduler/framework`. A session is built from a snapshot, changed by the
actions of the rules, and closed; nothing outside of it is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from policy.batch.figures import SessionFigures
from policy.batch.limits import Limit
from policy.batch.model import TaskStatus
from policy.batch.nodes import Crash, Refusal
from policy.batch.recording import Operation, Recorder
from policy.batch.rules import BatchRules
from policy.batch.volcano.framework.answers import NodeAnswers
from policy.batch.volcano.framework.dispatch import Dispatch, PluginVictims
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.resources import Amount, add, nothing
from policy.batch.volcano.framework.world import World, by_resource, load
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE, Bools, Ints

if TYPE_CHECKING:
    from policy.batch.volcano.framework.victims import VictimSearch

Watch: TypeAlias = "Callable[[Task, VictimSearch | None], None]"

Event: TypeAlias = Callable[[Task], None]


class Session:
    """The state of one session.

    jobs and queues are in key order; nodes in name order, as in the snapshot.
    """

    def __init__(self, snapshot: Snapshot, rules: BatchRules) -> None:
        """Plugins register their functions next; then `arrange` puts these in order."""
        self.rules = rules
        self.snapshot = snapshot
        world: World = load(snapshot, rules.naming)
        self.world = world
        self.tasks = world.tasks
        self.jobs = world.jobs
        self.queues = world.queues
        self.nodes = world.nodes
        self.recorder = Recorder()
        self.figures = SessionFigures()
        self.crashes: list[Crash] = []
        self.binds: dict[str, str] = {}
        self.evicts: list[str] = []
        #: jobs that gang calls unschedulable when the session closes
        self.unready: list[str] = []
        #: does a search try out evictions that it takes back?
        self.simulating = False
        #: called with a task, and the search where it may evict, before a place is looked for
        self.watch: Watch | None = None
        #: task -> nodes on which no eviction helps it, as allocate found
        self.unresolvable: dict[int, Bools] = {}
        #: (pods of the snapshot,) node of each pod as filters and scorers see them
        self.seen = np.full(len(snapshot.pods), NOWHERE, dtype=np.int32)
        self.seen_version = 0
        self.seen[[t.row for t in self.tasks]] = self.nodes.place
        self.task_job: Ints = np.array(
            [self.jobs[t.job].index if t.job in self.jobs else NOWHERE for t in self.tasks],
            dtype=np.int64,
        )
        self.task_shape: Ints = np.array([t.shape for t in self.tasks], dtype=np.int64)
        self.task_requests = by_resource(self.nodes)
        #: (tasks,) may the task be evicted at all?
        self.task_preemptable: Bools = np.array([t.preemptable for t in self.tasks], dtype=np.bool_)
        self.job_queue: Ints = np.array(
            [self.queues[j.queue].index for j in self.jobs.values()], dtype=np.int64
        )
        self._on_allocate: list[Event] = []
        self._on_deallocate: list[Event] = []
        self.dispatch = Dispatch(
            rules.tiers, jobs=len(self.jobs), queues=len(self.queues), tasks=len(self.tasks)
        )
        self.arrange()

    # --- opening -------------------------------------------------------------------------------

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None:
        """Names the functions of a plugin.

        job_order (job), queue_order (queue), task_order (task): a key, the least comes first.
        job_ready, job_starving, job_valid (job): yes or no.
        job_enqueueable, job_pipelined (job): a vote, or the limit that stands against it.
        overused (queue), allocatable (queue, task), preemptive (queue, tasks): the limit, or None.
        preemptable, reclaimable (claimant, tasks): which may be evicted, in order; None abstains.
        victims (tasks): which should go, whoever waits.
        victim_queue_order (left, right, queue of the claimant): below 0 where left goes first.
        predicate (task): (nodes,) 0 passes, 1 evictions may help, 2 they cannot.
        node_order (task, nodes): a score for each of the node indices, (n,) float.
        predicate_class, node_order_class (task): a key, where the answer for a node depends on
        nothing but the key and what this node holds; None where it does not.
        predicate_at (task, nodes): the predicate for the given node indices.
        predicate_reasons (task): reason -> which nodes it rejects, (nodes,) bool.
        """
        self.dispatch.register(plugin, **functions)

    def on_events(self, *, allocate: Event, deallocate: Event) -> None:
        """Have a plugin told of every task that takes resources, or gives them up."""
        self._on_allocate.append(allocate)
        self._on_deallocate.append(deallocate)

    def arrange(self) -> None:
        self.dispatch.arrange()
        self.answers = NodeAnswers(self.nodes, self.dispatch)

    def arguments_of(self, action: str) -> dict[str, str]:
        """What `configurations` of the rules give to an action."""
        return dict(self.rules.configurations.get(action, {}))

    # --- asking --------------------------------------------------------------------------------

    def queue_of(self, job: Job) -> BatchQueue:
        return self.queues[job.queue]

    def fits(self, task: Task, node: int) -> bool:
        """May the task use the node once everything that leaves it is gone?"""
        return (
            self.dispatch.allocatable(self.queue_of(self.jobs[task.job]), task) is None
            and self.nodes.has_future(task, node)
            and self.answers.passes_at(task, node)
        )

    def watched(self, task: Task, search: VictimSearch | None = None) -> None:
        """An action is about to look for a place for the task."""
        if self.watch is not None:
            self.watch(task, search)

    def requests_of(self, statuses: Container[TaskStatus]) -> dict[str, Amount]:
        """Queue -> what tasks of its jobs in the statuses ask for; queues without jobs left out."""
        found: dict[str, Amount] = {job.queue: nothing() for job in self.jobs.values()}
        counts: dict[tuple[int, int], int] = {}
        for task, job in zip(self.tasks, self.task_job.tolist(), strict=True):
            if job != NOWHERE and task.status in statuses:
                key = (int(self.job_queue[job]), task.shape)
                counts[key] = counts.get(key, 0) + 1
        names = list(self.queues)
        for (queue, shape), number in counts.items():
            request = self.world.requests[shape]
            add(found[names[queue]], {n: number * v for n, v in request.items()})
        return found

    def evictable(self, kind: str, claimant: Task, tasks: list[Task]) -> PluginVictims:
        return self.dispatch.evictable(kind, claimant, tasks)

    def turn_away(self, queue: BatchQueue, action: str, limit: Limit) -> None:
        """Notes that an action turned a queue away."""
        self.recorder.overused[queue.name] = action
        self.recorder.limits[queue.name] = limit

    # --- operations ----------------------------------------------------------------------------

    def _move(self, task: Task, status: TaskStatus) -> None:
        job = self.jobs[task.job]
        job.move(task, status)
        self.dispatch.forget(task, job, self.queues[job.queue])

    def _allocate_event(self, task: Task) -> None:
        for handler in self._on_allocate:
            handler(task)
        job = self.jobs[task.job]
        self.dispatch.forget(task, job, self.queues[job.queue])

    def _deallocate_event(self, task: Task) -> None:
        for handler in self._on_deallocate:
            handler(task)
        job = self.jobs[task.job]
        self.dispatch.forget(task, job, self.queues[job.queue])

    def put(self, task: Task, node: int, status: TaskStatus) -> Refusal | None:
        """Gives a waiting task a place; where the node refuses it, nothing has changed."""
        self._move(task, status)
        refusal = self.nodes.add(node, task)
        if refusal is not None:
            self._move(task, TaskStatus.PENDING)
            return refusal
        self._allocate_event(task)
        return None

    def withdraw(self, task: Task) -> None:
        """Takes a task off its node: it waits again, and may go to any node."""
        self._move(task, TaskStatus.PENDING)
        self.nodes.remove(self.nodes.index[task.node], task)
        self._deallocate_event(task)
        task.node = ""

    def release(self, victim: Task) -> None:
        """What an eviction changes inside the session."""
        self._move(victim, TaskStatus.RELEASING)
        self.nodes.update(self.nodes.index[victim.node], victim)
        self._deallocate_event(victim)

    def restore(self, victim: Task, status: TaskStatus = TaskStatus.RUNNING) -> None:
        """Takes an eviction back. status: Running also where the task was only bound."""
        self._move(victim, status)
        self.nodes.update(self.nodes.index[victim.node], victim)
        self._allocate_event(victim)

    def bind(self, task: Task) -> None:
        """Sends a placed task to its node."""
        self.binds[task.key] = task.node
        self.recorder.operation(Operation.BIND, task, task.node)
        self._move(task, TaskStatus.BINDING)
