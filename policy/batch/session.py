"""One session: the state that actions change, and the plugin functions that decide.

Source: kube-batch `pkg/scheduler/framework`. A session is built from a snapshot, changed by the
actions of the rule set, and closed; nothing outside of it is touched. The functions that plugins
register are consulted in the order of the tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from policy.batch.cache import World, load
from policy.batch.choosing import ChosenNode
from policy.batch.classes import NodeAnswers
from policy.batch.figures import SessionFigures
from policy.batch.functions import FLAGS, HINTS, KINDS, Consulted, Event, Scores
from policy.batch.model import HOLDING, BatchQueue, Job, Task, TaskStatus
from policy.batch.nodes import Refusal
from policy.batch.orders import Order
from policy.batch.recording import NodeAnswer, NodeChoice, Operation, Recorder, StepOutcome
from policy.batch.resources import Resource
from policy.batch.rules import BatchRules
from policy.batch.totals import RunningTasks
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE, Bools, Ints

if TYPE_CHECKING:
    from policy.batch.victims import VictimSearch

_LEVELS: Final = 3

Watch: TypeAlias = "Callable[[Task, VictimSearch | None], None]"


class Session:
    """The state of one session.

    jobs and queues are in key order; nodes in name order, as in the snapshot.
    """

    def __init__(self, snapshot: Snapshot, rules: BatchRules) -> None:
        """Plugins register their functions next; then `arrange` puts these in order."""
        self.rules = rules
        self.options = rules.options
        self.recorded_nodes = rules.recorded_nodes
        self.snapshot = snapshot
        world: World = load(snapshot, rules.naming, promise_idle=rules.options.count_room)
        self.world = world
        self.tasks = world.tasks
        self.shapes = world.shapes
        self.jobs = world.jobs
        self.queues = world.queues
        self.nodes = world.nodes
        self.outbox = world.outbox
        self.recorder = Recorder()
        self.figures = SessionFigures()
        #: actions that come after the one that runs
        self.later_actions: tuple[str, ...] = ()
        #: called with a task, and the search where it may evict, before a place is looked for
        self.watch: Watch | None = None
        self.unready: list[str] = []  #: jobs that gang called unschedulable when the session closed
        #: tasks for which a pod is being evicted
        self.paid_for: set[str] = set()
        self._order_jobs()
        self.running = RunningTasks(
            self.nodes, self.task_job, jobs=len(self.jobs), amount=self.task_amount
        )
        self._registered: dict[str, dict[str, Callable[..., Any]]] = {
            kind: {} for kind in KINDS | HINTS
        }
        self._task_amounts: dict[str, Scores] = {}
        self._on_allocate: list[Event] = []
        self._on_deallocate: list[Event] = []
        self.arrange()

    # --- opening -------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Puts the functions that are registered by now in the order of the tiers."""
        self._chains = {kind: self._chain(kind) for kind in sorted(KINDS)}
        # Where no plugin decides: age, then the name.
        self.job_order: Order[Job] = Order(
            [*self._functions("job_order"), lambda job: job.created_ms, lambda job: job.uid],
            size=len(self.jobs),
        )
        self.queue_order: Order[BatchQueue] = Order(
            [*self._functions("queue_order"), lambda q: q.created_ms, lambda q: q.name],
            size=len(self.queues),
        )
        self.task_order: Order[Task] = Order(
            [*self._functions("task_order"), lambda task: task.created_ms, lambda task: task.uid],
            size=len(self.tasks),
        )
        self._answers = NodeAnswers(
            self.nodes,
            self.hint,
            predicates=self._chains["predicate"],
            orders=self._chains["node_order"],
        )

    def _order_jobs(self) -> None:
        """Columns over tasks and jobs, for questions about all of them at once."""
        jobs, queues = self.jobs, self.queues
        self.task_job: Ints = np.array(
            [jobs[t.job].index if t.job in jobs else NOWHERE for t in self.tasks], dtype=np.int64
        )
        #: (tasks,) index of the shape of each task
        self.task_shape: Ints = np.array([t.shape for t in self.tasks], dtype=np.int64)
        self.job_queue: Ints = np.array(
            [queues[j.queue].index for j in jobs.values()], dtype=np.int64
        )
        self.job_ready: Ints = np.array([j.ready for j in jobs.values()], dtype=np.int64)
        #: per row of the snapshot, the node of a task in an allocated status, for affinity
        self.existing = np.full(len(self.snapshot.pods), NOWHERE, dtype=np.int32)
        self.existing_version = 0
        for job in jobs.values():
            for task in job.in_statuses(HOLDING):
                self.existing[task.row] = self.nodes.index_of(task.node)

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None:
        """Names the functions of a plugin: any of KINDS and HINTS.

        job_order (job), queue_order (queue), task_order (task): a key, the least comes first; it
        may depend on the item and its own tasks only (`policy.batch.orders`).
        job_ready, job_pipelined (job), overused (queue): yes or no.
        preemptable, reclaimable (claimant, tasks): which of the tasks may be evicted, in order.
        predicate (task): which nodes may take the task, (nodes,) bool.
        node_order (task, nodes): a finite score for each of the node indices, (n,) float.
        predicate_reasons (task): reason -> which nodes it rejects, (nodes,) bool.
        preemptable_jobs, reclaimable_jobs (claimant): (jobs,) bool, false only for jobs none of
        whose tasks may be evicted; preemptable_tasks, reclaimable_tasks: the same over tasks, in
        arrays that do not change afterwards.
        preemptable_limits, reclaimable_limits (claimant, tasks): of the tasks that may not be
        evicted those for which the plugin has numbers, with these (`recording.Protection`).
        predicate_class, node_order_class (task): a key, where the answer for a node depends on
        nothing but the key and what this node holds; None where it does not.
        predicate_at (task, nodes): the predicate for the given node indices, (n,) bool.
        """
        for kind, function in functions.items():
            self._registered[kind][plugin] = function

    def plugins_with(self, kind: str) -> Collection[str]:
        """Plugins that registered a function of the kind, switched off or not."""
        return self._registered[kind].keys()

    def on_events(self, *, allocate: Event, deallocate: Event) -> None:
        """Have a plugin told of every task that takes resources, or gives them up."""
        self._on_allocate.append(allocate)
        self._on_deallocate.append(deallocate)

    def _chain(self, kind: str) -> tuple[Consulted, ...]:
        flag = FLAGS.get(kind)
        return tuple(
            Consulted(number, use.name, self._registered[kind][use.name])
            for number, tier in enumerate(self.rules.tiers)
            for use in tier
            if use.name in self._registered[kind] and (flag is None or use.enabled(flag))
        )

    def _functions(self, kind: str) -> tuple[Callable[..., Any], ...]:
        return tuple(consulted.function for consulted in self._chains[kind])

    # --- columns over tasks --------------------------------------------------------------------

    def task_amount(self, name: str) -> Scores:
        """Requests of one resource; shape (tasks,)."""
        found = self._task_amounts.get(name)
        if found is None:
            found = self._task_amounts[name] = self.shapes.amounts(name)[self.task_shape]
        return found

    def requests_of(self, statuses: Container[TaskStatus]) -> dict[str, Resource]:
        """Per job, in order of uid, the sum of what its tasks in the statuses ask for."""
        tasks = np.array([t.index for t in self.tasks if t.status in statuses], dtype=np.int64)
        tasks = tasks[self.task_job[tasks] != NOWHERE]
        jobs, shapes = self.task_job[tasks], self.task_shape[tasks]
        sums = self.shapes.sums(jobs, shapes, size=len(self.jobs), names=())
        amounts = zip(self.jobs, sums.cpu.tolist(), sums.memory.tolist(), strict=True)
        found = {uid: Resource(cpu, memory) for uid, cpu, memory in amounts}
        # A sum has the scalars that its tasks name, and none where they name none.
        for task in tasks[self.shapes.named[shapes]].tolist():
            scalars = self.tasks[task].request.scalars
            found[self.tasks[task].job].add(Resource(scalars=scalars))
        return found

    def watched(self, task: Task, search: VictimSearch | None = None) -> None:
        """An action is about to look for a place for the task."""
        if self.watch is not None:
            self.watch(task, search)

    # --- yes or no -----------------------------------------------------------------------------

    def overused(self, queue: BatchQueue) -> bool:
        return any(c.function(queue) for c in self._chains["overused"])

    def ready(self, job: Job) -> bool:
        return all(c.function(job) for c in self._chains["job_ready"])

    def pipelined(self, job: Job) -> bool:
        return all(c.function(job) for c in self._chains["job_pipelined"])

    # --- nodes ---------------------------------------------------------------------------------

    def passing(self, task: Task) -> Bools:
        """Nodes on which every predicate lets the task; shape (nodes,)."""
        return self._answers.passing(task)

    def rejected(self, task: Task, *, among: Bools | None = None) -> dict[str, int]:
        """Reason of the first predicate that rejects -> number of nodes; by number, then name."""
        open_nodes = self.nodes.present.copy()
        if among is not None:
            open_nodes &= among
        counts: dict[str, int] = {}
        for reason, rejects in self.rejecting(task):
            number = int((rejects & open_nodes).sum())
            if number:
                counts[reason] = counts.get(reason, 0) + number
                open_nodes &= ~rejects
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def rejecting(self, task: Task) -> Iterator[tuple[str, Bools]]:
        """Every reason to reject the task, and the nodes that do; shape (nodes,)."""
        for consulted in self._chains["predicate"]:
            reasons = self._registered["predicate_reasons"].get(consulted.plugin)
            if reasons is not None:
                yield from reasons(task).items()
            else:
                yield consulted.plugin, ~consulted.function(task)

    def scores_by_plugin(self, task: Task, nodes: Ints) -> dict[str, Scores]:
        """Scores of the nodes, which compete with one another alone."""
        return {c.plugin: c.function(task, nodes) for c in self._chains["node_order"]}

    def scores(self, task: Task, nodes: Ints, *, among: Bools) -> Scores:
        """Scores of the given nodes, relative to all nodes of `among`, to which they belong."""
        return self._answers.scores(task, nodes, among=among)

    def best_with_room(self, task: Task) -> ChosenNode | None:
        """The best node that passes and has idle or released room; None where none has."""
        return self._answers.best_with_room(task)

    # --- victims -------------------------------------------------------------------------------

    def deciding(self, kind: str) -> tuple[Consulted, ...]:
        """The functions of the one tier that decides about victims: the first with any.

        The original goes on to later tiers where a tier yields nothing, but intersects with what
        it has, which is nothing: no later tier can add a victim.
        """
        chain = self._chains[kind]
        return tuple(c for c in chain if c.tier == chain[0].tier) if chain else ()

    def hint(self, kind: str, plugin: str) -> Callable[..., Any] | None:
        return self._registered[kind].get(plugin)

    # --- operations ----------------------------------------------------------------------------

    def move(self, task: Task, status: TaskStatus) -> None:
        """Gives a task of one of the session's jobs another status."""
        job = self.jobs[task.job]
        job.move(task, status)
        self.job_ready[job.index] = job.ready
        self._forget(task)

    def _forget(self, task: Task) -> None:
        job = self.jobs[task.job]
        self.job_order.forget(job)
        self.queue_order.forget(self.queues[job.queue])
        self.task_order.forget(task)

    def settle(self, task: Task) -> None:
        """Notes where affinity sees the task after a change of its status or node."""
        node = self.nodes.index_of(task.node) if task.status in HOLDING else NOWHERE
        if self.existing[task.row] != node:
            self.existing[task.row] = node
            self.existing_version += 1

    def allocate_event(self, task: Task) -> None:
        for handler in self._on_allocate:
            handler(task)
        self._forget(task)

    def deallocate_event(self, task: Task) -> None:
        for handler in self._on_deallocate:
            handler(task)
        self._forget(task)

    def allocate(self, task: Task, node: int, choice: NodeChoice | None = None) -> bool:
        """Gives a task idle room of a node; sends its whole gang where that is now ready.

        False where the node refuses the task, or the cluster one of the gang.
        """
        self.move(task, TaskStatus.ALLOCATED)
        refusal = self.nodes.add(node, task)
        self.settle(task)
        self.recorder.operation(
            Operation.ALLOCATE, task, self.nodes.names[node], refusal=refusal, choice=choice
        )
        if refusal is not None:
            # The status stays: what the original does, see `Statement.discard`.
            return False
        self.allocate_event(task)
        return self.dispatch(self.jobs[task.job])

    def dispatch(self, job: Job) -> bool:
        """Sends every allocated task of a job that is ready; stops where one is refused."""
        if not self.ready(job):
            return True
        for task in job.having(TaskStatus.ALLOCATED):
            sent = self.outbox.bind(task)
            self.recorder.operation(
                Operation.BIND, task, task.node, outcome=None if sent else StepOutcome.FAILED
            )
            if not sent:
                return False
            self.move(task, TaskStatus.BINDING)
        return True

    def pipeline(
        self,
        task: Task,
        node: int,
        answer: NodeAnswer | None = None,
        *,
        choice: NodeChoice | None = None,
    ) -> Refusal | None:
        """Promises a task resources of a node that are being released."""
        self.move(task, TaskStatus.PIPELINED)
        refusal = self.nodes.add(node, task)
        self.settle(task)
        self.recorder.operation(
            Operation.PIPELINE,
            task,
            self.nodes.names[node],
            refusal=refusal,
            answer=answer,
            choice=choice,
        )
        if refusal is None:
            self.allocate_event(task)
        return refusal

    def evict(self, victim: Task, claimant: Task) -> bool:
        """Evicts a task for another, at once; False where the cluster refuses."""
        sent = self.outbox.evict(victim)
        self.recorder.operation(
            Operation.EVICT,
            victim,
            victim.node,
            claimant=claimant,
            outcome=None if sent else StepOutcome.FAILED,
        )
        if sent:
            self.release(victim)
            self.paid_for.add(claimant.key)
        return sent

    def release(self, victim: Task) -> None:
        """What an eviction changes inside the session."""
        self.move(victim, TaskStatus.RELEASING)
        self.nodes.update(self.nodes.index[victim.node], victim)
        self.settle(victim)
        self.deallocate_event(victim)

    def withdraw(self, task: Task, *, forget: bool) -> None:
        """Takes a placed task back: it waits again. forget: and may go to any node."""
        self.move(task, TaskStatus.PENDING)
        node = self.nodes.index_of(task.node)
        if node != NOWHERE:
            self.nodes.remove(node, task)
        if forget:
            task.node = ""
        self.settle(task)
        self.deallocate_event(task)

    def queue_of(self, job: Job) -> BatchQueue:
        return self.queues[job.queue]

    def by_score(self, nodes: Ints, scores: Scores) -> Iterator[int]:
        """Best first; of equal ones the last in name order first. nodes: in name order."""
        # Mostly one of the best is taken: these are found without sorting all.
        for _ in range(_LEVELS):
            if not nodes.size:
                return
            best = scores == scores.max()
            yield from map(int, nodes[best][::-1])
            nodes, scores = nodes[~best], scores[~best]
        yield from map(int, nodes[np.lexsort((-nodes, -scores))])
