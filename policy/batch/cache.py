"""The snapshot as kube-batch's cache sees it: which pods count, and which jobs they form.

Source: kube-batch `pkg/scheduler/cache`. The cache keeps sums of its own beside the session's:
a task is sent to its node only where the cache, too, finds room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policy.batch.model import OVER, BatchQueue, Job, Task, TaskStatus, status_of
from policy.batch.nodes import Nodes
from policy.batch.notes import Note, Oddity
from policy.batch.priority_classes import GroupPriorities
from policy.batch.resources import Amounts, Resource, from_quantities, total
from policy.batch.settings import Naming
from policy.batch.shapes import Shapes
from policy.cluster import times
from policy.cluster.objects import (
    ObjectMeta,
    PodDisruptionBudget,
    PodGroup,
    Queue,
)
from policy.cluster.selectors import go_integer
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE

GROUP_NAME: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
MINIMUM: Final = "scheduling.k8s.io/group-min-member"
_DEFAULT_PRIORITY: Final = 1


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """What a session starts from."""

    snapshot: Snapshot
    tasks: list[Task]
    shapes: Shapes
    jobs: dict[str, Job]  #: of the session, in order of uid
    queues: dict[str, BatchQueue]  #: in order of name
    nodes: Nodes
    outbox: Outbox
    left_out: list[Job] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


class Outbox:
    """The cache's own sums, and what the session sends to the cluster."""

    def __init__(self, nodes: Nodes) -> None:
        self._idle = nodes.idle.copy()
        self._index = nodes.index
        self.binds: dict[str, str] = {}
        self.evicts: list[str] = []

    def bind(self, task: Task) -> bool:
        """Sends a task to the node that it names; False where the cache refuses."""
        i = self._index.get(task.node, NOWHERE)
        if i == NOWHERE or task.key in self.binds or not self._idle.covers(i, task.request):
            return False
        self._idle.sub(i, task.request)
        self.binds[task.key] = task.node
        return True

    def evict(self, task: Task) -> bool:
        """Sends an eviction; False where the cache has no such node."""
        if task.node not in self._index:
            return False
        self.evicts.append(task.key)
        return True


def load(snapshot: Snapshot, naming: Naming, *, promise_idle: bool = False) -> World:
    """Everything of the snapshot that a session sees."""
    notes: list[Note] = []
    shapes = Shapes()
    tasks, jobs = _tasks_and_jobs(snapshot, naming, shapes, notes)
    _groups(snapshot, naming, jobs)
    queues = _queues(snapshot)
    notes.extend(_unread_fields(queues))
    _budgets(snapshot, naming, jobs, notes)
    inside, outside = _of_session(snapshot, naming, jobs, queues, notes)
    nodes = _nodes(snapshot, tasks, shapes, notes)
    nodes.promise_idle = promise_idle
    return World(
        snapshot=snapshot,
        tasks=tasks,
        shapes=shapes,
        jobs=inside,
        queues=queues,
        nodes=nodes,
        outbox=Outbox(nodes),
        left_out=outside,
        notes=notes,
    )


# --- pods ------------------------------------------------------------------------------------


def _tasks_and_jobs(
    snapshot: Snapshot, naming: Naming, shapes: Shapes, notes: list[Note]
) -> tuple[list[Task], dict[str, Job]]:
    tasks: list[Task] = []
    jobs: dict[str, Job] = {}
    uids: set[str] = set()
    for row, key, pod in snapshot.in_order():
        spec = pod.spec
        ours = spec.scheduler_name == naming.scheduler
        if not ours and pod.status.phase in {"Pending", ""}:
            continue
        uid = pod.metadata.uid or key
        if uid in uids:
            notes.append(Note(oddity=Oddity.SAME_UID, subject=key, detail=uid))
            uid = key
        uids.add(uid)
        shape = shapes.of(pod)
        task = Task(
            index=len(tasks),
            shape=shape,
            row=row,
            key=key,
            uid=uid,
            job="",
            priority=_DEFAULT_PRIORITY if spec.priority is None else spec.priority,
            created_ms=times.parse_optional(pod.metadata.creation_timestamp),
            request=shapes.requests[shape],
            start_request=shapes.start_requests[shape],
            pod=pod,
            status=status_of(pod),
            node=spec.node_name,
        )
        tasks.append(task)
        job = _job_of(task, jobs, naming, ours=ours)
        if job is not None:
            task.job = job.uid
            job.add(task)
    return tasks, jobs


def _job_of(task: Task, jobs: dict[str, Job], naming: Naming, *, ours: bool) -> Job | None:
    meta = task.pod.metadata
    annotations = meta.annotations or {}
    namespace = meta.namespace or "default"
    for name in GROUP_NAME:
        group = annotations.get(name)
        if group:
            return _named(f"{namespace}/{group}", jobs)
    if not ours:
        return None
    uid = controller_of(meta) or task.uid
    job = jobs.get(uid)
    if job is None:
        minimum = go_integer(annotations.get(MINIMUM, ""))
        job = jobs[uid] = Job(
            uid=uid,
            name=uid,
            namespace=namespace,
            queue=naming.default_queue,
            minimum=1 if minimum is None else minimum,
            created_ms=task.created_ms,
            shadow=True,
            priority_class=task.pod.spec.priority_class_name,
        )
    return job


def _named(uid: str, jobs: dict[str, Job]) -> Job:
    """The job with the uid; a new one where there is none yet."""
    found = jobs.get(uid)
    if found is None:
        found = jobs[uid] = Job(uid=uid)
    return found


def controller_of(meta: ObjectMeta) -> str:
    """The uid of the controlling owner, "" without one."""
    return next((o.uid for o in meta.owner_references or () if o.controller), "")


# --- what describes jobs -----------------------------------------------------------------------


def _groups(snapshot: Snapshot, naming: Naming, jobs: dict[str, Job]) -> None:
    for _, group in sorted(snapshot.of_kind("PodGroup").items()):
        assert isinstance(group, PodGroup)
        meta = group.metadata
        namespace = meta.namespace or "default"
        uid = f"{namespace}/{meta.name}"
        job = _named(uid, jobs)
        job.name, job.namespace = meta.name, namespace
        job.minimum = group.spec.min_member
        job.queue = group.spec.queue or naming.default_queue
        job.created_ms = times.parse_optional(meta.creation_timestamp)
        job.group, job.shadow = group, False
        job.priority_class = group.spec.priority_class_name


def _budgets(snapshot: Snapshot, naming: Naming, jobs: dict[str, Job], notes: list[Note]) -> None:
    for key, budget in sorted(snapshot.of_kind("PodDisruptionBudget").items()):
        assert isinstance(budget, PodDisruptionBudget)
        uid = controller_of(budget.metadata)
        if not uid:
            notes.append(Note(oddity=Oddity.BUDGET_WITHOUT_CONTROLLER, subject=key))
            continue
        minimum = budget.spec.min_available
        if not isinstance(minimum, int):
            notes.append(
                Note(oddity=Oddity.BUDGET_WITHOUT_NUMBER, subject=key, detail=minimum or "")
            )
            minimum = 0
        job = _named(uid, jobs)
        job.name = budget.metadata.name
        job.namespace = budget.metadata.namespace or "default"
        job.minimum = minimum
        job.created_ms = times.parse_optional(budget.metadata.creation_timestamp)
        job.queue = naming.default_queue
        job.budget = budget


_UNREAD: Final = ("capability", "deserved", "guarantee", "priority", "parent", "affinity")


def _unread_fields(queues: Mapping[str, BatchQueue]) -> Iterator[Note]:
    """Fields of Volcano's queues: kube-batch reads a queue's weight, and nothing else."""
    for name, one in queues.items():
        spec = one.queue.spec
        unread = [of_queue for of_queue in _UNREAD if getattr(spec, of_queue)]
        unread += ["reclaimable"] if spec.reclaimable is False else []
        unread += ["state"] if one.queue.status.state not in ("", "Open") else []
        for of_queue in unread:
            yield Note(oddity=Oddity.QUEUE_FIELD_IGNORED, subject=name, detail=of_queue)


def _queues(snapshot: Snapshot) -> dict[str, BatchQueue]:
    found: dict[str, BatchQueue] = {}
    for name, queue in sorted(snapshot.of_kind("Queue").items()):
        assert isinstance(queue, Queue)
        found[name] = BatchQueue(
            name=name,
            index=len(found),
            weight=queue.spec.weight,
            created_ms=times.parse_optional(queue.metadata.creation_timestamp),
            queue=queue,
        )
    return found


def _of_session(
    snapshot: Snapshot,
    naming: Naming,
    jobs: Mapping[str, Job],
    queues: Mapping[str, BatchQueue],
    notes: list[Note],
) -> tuple[dict[str, Job], list[Job]]:
    priorities = GroupPriorities.of(snapshot, naming)
    inside: dict[str, Job] = {}
    outside: list[Job] = []
    for uid in sorted(jobs):
        job = jobs[uid]
        if not job.described:
            notes.append(Note(oddity=Oddity.GROUP_MISSING, subject=uid))
            outside.append(job)
        elif job.queue not in queues:
            notes.append(Note(oddity=Oddity.QUEUE_MISSING, subject=uid, detail=job.queue))
            outside.append(job)
        else:
            if job.has_group:
                job.priority = priorities.priority(job.priority_class)
            job.index = len(inside)
            inside[uid] = job
    return inside, outside


# --- nodes -----------------------------------------------------------------------------------


def _nodes(snapshot: Snapshot, tasks: list[Task], shapes: Shapes, notes: list[Note]) -> Nodes:
    table = snapshot.nodes
    size = len(table)
    lists = [from_quantities(n.status.allocatable) for n in table.nodes]
    names = _scalar_names(lists, shapes.requests)
    allocatable = Amounts.zeros(size, names)
    present = np.ones(size, dtype=np.bool_)
    for i, amount in enumerate(lists):
        allocatable.put(i, amount)
        if not Resource().less_equal(amount):
            present[i] = False
            notes.append(Note(oddity=Oddity.NODE_TOO_SMALL, subject=table.names[i]))
    nodes = Nodes(
        names=table.names,
        present=present,
        allocatable=allocatable,
        idle=allocatable.copy(),
        releasing=Amounts.zeros(size, names),
        used=Amounts.zeros(size, names),
        allowed_pods=table.allowed_pods,
        held=[{} for _ in range(size)],
        pods=np.zeros(size, dtype=np.int64),
        place=np.full(len(tasks), NOWHERE, dtype=np.int64),
        running=np.zeros(len(tasks), dtype=np.bool_),
        total=total(amount for amount, ok in zip(lists, present.tolist(), strict=True) if ok),
    )
    placed = []
    for task in tasks:
        if not task.node or task.status in OVER:
            continue
        if task.node in nodes.index:
            placed.append(task)
        else:
            notes.append(Note(oddity=Oddity.NODE_MISSING, subject=task.key, detail=task.node))
    _place(nodes, placed, shapes, notes)
    return nodes


def _scalar_names(*groups: Iterable[Resource]) -> list[str]:
    return sorted({name for group in groups for r in group for name in r.scalars or ()})


def _place(nodes: Nodes, tasks: list[Task], shapes: Shapes, notes: list[Note]) -> None:
    """Puts the tasks on the nodes that they name.

    Where all tasks of a node fit together, each one fits in any order, and their sums are taken
    at once. On an overcommitted node every task is tried in turn.
    """
    tasks = sorted(tasks, key=lambda t: t.key)
    where = np.array([nodes.index[t.node] for t in tasks], dtype=np.int64)
    shape = np.array([t.shape for t in tasks], dtype=np.int64)
    size, names = len(nodes.names), tuple(nodes.idle.scalars)
    asked = shapes.sums(where, shape, size=size, names=names)
    together = (asked.cpu <= nodes.idle.cpu) & (asked.memory <= nodes.idle.memory)
    for name in names:
        together &= (asked.scalars[name] <= 0) | (
            nodes.idle.named & (asked.scalars[name] <= nodes.idle.scalars[name])
        )
    easy = together[where]
    at_once = [t for t, ok in zip(tasks, easy.tolist(), strict=True) if ok]
    leaving = easy & np.array([t.status is TaskStatus.RELEASING for t in tasks], dtype=np.bool_)
    nodes.hold_all(where[easy], at_once)
    for among, amounts, sign in (
        (easy, nodes.idle, -1.0),
        (easy, nodes.used, 1.0),
        (leaving, nodes.releasing, 1.0),
    ):
        added = shapes.sums(where[among], shape[among], size=size, names=names)
        for (_, column), (_, more) in zip(amounts.columns(), added.columns(), strict=True):
            column += sign * more
        if sign > 0:
            amounts.named |= added.named
    for task, i in zip(tasks, where.tolist(), strict=True):
        if not together[i] and nodes.add(i, task) is not None:
            notes.append(Note(oddity=Oddity.NODE_FULL, subject=task.key, detail=task.node))
