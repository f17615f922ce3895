"""The snapshot as Volcano's cache sees it: which pods count, and which jobs they form.

A job is a pod group. Pods without one are charged to their nodes and are never in a session;
Volcano's controller, not its scheduler, makes groups for them.

Source: Volcano `pkg/scheduler/cache`, `pkg/scheduler/api`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from policy.batch.model import OVER, TaskStatus, status_of
from policy.batch.notes import Note, Oddity
from policy.batch.plugins.base import go_boolean
from policy.batch.priority_classes import GroupPriorities
from policy.batch.settings import Naming
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import OPEN, ROOT, BatchQueue, Job, Task
from policy.batch.volcano.framework.nodes import Floats, Held, Need, Nodes
from policy.batch.volcano.framework.resources import Amount
from policy.cluster import times
from policy.cluster.objects import (
    ObjectMeta,
    Pod,
    PodGroup,
    Queue,
    QueueSpec,
)
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.selectors import go_integer
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE

GROUP_NAME: Final = "scheduling.k8s.io/group-name"
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_PRIORITY: Final = "volcano.sh/task-priority"
PREEMPTABLE: Final = "volcano.sh/preemptable"
REVOCABLE_ZONE: Final = "volcano.sh/revocable-zone"
_DEFAULT_PRIORITY: Final = 1


@dataclass(slots=True, kw_only=True, eq=False)
class World:
    """What a session starts from."""

    tasks: list[Task]
    jobs: dict[str, Job]  #: of the session, in order of uid
    queues: dict[str, BatchQueue]  #: in order of name
    nodes: Nodes
    requests: list[Amount]  #: by shape
    pods: list[Pod]  #: one of each shape
    left_out: list[Job] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def load(snapshot: Snapshot, naming: Naming) -> World:
    """Everything of the snapshot that a session sees."""
    notes: list[Note] = []
    queues = _queues(snapshot, naming)
    jobs = _groups(snapshot, naming)
    shapes = _Shapes()
    tasks = _tasks(snapshot, naming, jobs, shapes, notes)
    inside, outside = _of_session(snapshot, naming, jobs, queues, notes)
    return World(
        tasks=tasks,
        jobs=inside,
        queues=queues,
        nodes=_nodes(snapshot, tasks, shapes, notes),
        requests=shapes.requests,
        pods=shapes.pods,
        left_out=outside,
        notes=notes,
    )


# --- pods --------------------------------------------------------------------------------------


class _Shapes:
    """The distinct requests of the session's pods: read and added up once each."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self.requests: list[Amount] = []
        self.pods: list[Pod] = []

    def of(self, pod: Pod) -> int:
        key = _shape_key(pod)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.pods)
            self.requests.append(resources.of_pod(pod))
            self.pods.append(pod)
        return found


def _shape_key(pod: Pod) -> Hashable:
    spec = pod.spec
    if (
        spec.containers
        and len(spec.containers) == 1
        and not (spec.init_containers or spec.overhead or spec.resources)
    ):
        asked = spec.containers[0].resources
        return tuple(asked.requests.items()) if asked and asked.requests else ()
    parts = [
        [(c.resources, c.restart_policy) for c in spec.containers or ()],
        [(c.resources, c.restart_policy) for c in spec.init_containers or ()],
        spec.overhead,
        spec.resources,
    ]
    return msgspec.json.encode(parts)


def _tasks(
    snapshot: Snapshot,
    naming: Naming,
    jobs: dict[str, Job],
    shapes: _Shapes,
    notes: list[Note],
) -> list[Task]:
    tasks: list[Task] = []
    uids: set[str] = set()
    empty = [resources.is_empty(r) for r in shapes.requests]
    for row, key, pod in snapshot.in_order():
        spec, meta = pod.spec, pod.metadata
        ours = spec.scheduler_name == naming.scheduler
        if not ours and not spec.node_name:
            continue
        uid = meta.uid or key
        if uid in uids:
            notes.append(Note(oddity=Oddity.SAME_UID, subject=key, detail=uid))
            uid = key
        uids.add(uid)
        shape = shapes.of(pod)
        if shape == len(empty):
            empty.append(resources.is_empty(shapes.requests[shape]))
        annotations = meta.annotations or {}
        group = annotations.get(GROUP_NAME)
        job = jobs.get(f"{meta.namespace or 'default'}/{group}") if group else None
        if job is None and ours and not spec.node_name:
            oddity = Oddity.GROUP_MISSING if group else Oddity.WITHOUT_GROUP
            notes.append(Note(oddity=oddity, subject=key, detail=group or ""))
        task = Task(
            index=len(tasks),
            shape=shape,
            row=row,
            key=key,
            uid=uid,
            job="" if job is None else job.uid,
            priority=_priority(pod, annotations),
            created_ms=times.parse_optional(meta.creation_timestamp),
            request=shapes.requests[shape],
            best_effort=empty[shape],
            role=annotation_or_label(meta, TASK_SPEC) or "",
            preemptable=marked(meta, PREEMPTABLE, absent=True),
            gated=bool(spec.scheduling_gates),
            revocable=_revocable(annotations),
            pod=pod,
            status=status_of(pod),
            node=spec.node_name,
        )
        tasks.append(task)
        if job is not None:
            job.add(task)
    return tasks


def _priority(pod: Pod, annotations: Mapping[str, str]) -> int:
    own = annotations.get(TASK_PRIORITY)
    number = None if own is None else go_integer(own)
    if number is not None:
        return number
    return _DEFAULT_PRIORITY if pod.spec.priority is None else pod.spec.priority


def annotation_or_label(meta: ObjectMeta, name: str) -> str | None:
    """The annotation, else the label; None where the object has neither."""
    found = (meta.annotations or {}).get(name)
    return (meta.labels or {}).get(name) if found is None else found


def marked(meta: ObjectMeta, name: str, *, absent: bool) -> bool:
    """A mark on an object as Go reads a boolean; what cannot be read is false."""
    text = annotation_or_label(meta, name)
    return absent if text is None else bool(go_boolean(text))


def _revocable(annotations: Mapping[str, str]) -> bool:
    zone = annotations.get(REVOCABLE_ZONE)
    if zone is not None:
        return zone == "*"
    mark = annotations.get(PREEMPTABLE)
    return mark is not None and bool(go_boolean(mark))


# --- jobs and queues ---------------------------------------------------------------------------


def _groups(snapshot: Snapshot, naming: Naming) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for key, group in sorted(snapshot.of_kind("PodGroup").items()):
        assert isinstance(group, PodGroup)
        spec = group.spec
        least = spec.min_resources
        jobs[key] = Job(
            uid=key,
            namespace=group.metadata.namespace or "default",
            queue=spec.queue or naming.default_queue,
            minimum=spec.min_member,
            roles=dict(spec.min_task_member or {}),
            least=None if least is None else resources.from_quantities(least),
            created_ms=times.parse_optional(group.metadata.creation_timestamp),
            phase=group.status.phase,
            preemptable=marked(group.metadata, PREEMPTABLE, absent=False),
            group=group,
        )
    return jobs


def _queues(snapshot: Snapshot, naming: Naming) -> dict[str, BatchQueue]:
    """The queues, with those that the scheduler creates where they are missing."""
    given = dict(snapshot.of_kind("Queue"))
    for name, reclaimable in ((ROOT, False), (naming.default_queue, True)):
        if name not in given:
            spec = QueueSpec(weight=1, reclaimable=reclaimable)
            given[name] = Queue(metadata=ObjectMeta(name=name), spec=spec)
    found: dict[str, BatchQueue] = {}
    for name, queue in sorted(given.items()):
        assert isinstance(queue, Queue)
        spec = queue.spec
        guarantee = spec.guarantee.resource if spec.guarantee else None
        found[name] = BatchQueue(
            name=name,
            index=len(found),
            # What the API server fills in where the manifest names none.
            weight=spec.weight or 1,
            priority=spec.priority,
            capability=resources.from_quantities(spec.capability) if spec.capability else None,
            deserved=resources.from_quantities(spec.deserved),
            guarantee=resources.from_quantities(guarantee),
            reclaimable=spec.reclaimable is not False,
            # The controller opens a queue that has no state yet.
            state=queue.status.state or OPEN,
            parent=spec.parent,
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
    for uid, job in jobs.items():
        if job.queue not in queues:
            notes.append(Note(oddity=Oddity.QUEUE_MISSING, subject=uid, detail=job.queue))
            outside.append(job)
            continue
        assert job.group is not None
        job.priority = priorities.priority(job.group.spec.priority_class_name)
        job.index = len(inside)
        inside[uid] = job
    return inside, outside


# --- nodes -------------------------------------------------------------------------------------


def _nodes(snapshot: Snapshot, tasks: list[Task], shapes: _Shapes, notes: list[Note]) -> Nodes:
    table = snapshot.nodes
    lists = [resources.from_quantities(n.status.allocatable) for n in table.nodes]
    names = _resource_names(lists, shapes.requests)
    row = {name: i for i, name in enumerate(names)}
    needs: list[Need] = [
        tuple((row[name], value) for name, value in request.items()) for request in shapes.requests
    ]
    allocatable = np.zeros((len(names), len(lists)))
    for i, amount in enumerate(lists):
        for name, value in amount.items():
            allocatable[row[name], i] = value
    nodes = Nodes(
        names=table.names,
        resources=names,
        allocatable=allocatable,
        idle=allocatable.copy(),
        releasing=np.zeros_like(allocatable),
        used=np.zeros_like(allocatable),
        future=allocatable.copy(),
        needs=needs,
        held=[{} for _ in lists],
        place=np.full(len(tasks), NOWHERE, dtype=np.int64),
        running=np.zeros(len(tasks), dtype=np.bool_),
        total=resources.total(lists),
    )
    _place(nodes, tasks, notes)
    return nodes


def _resource_names(*groups: Iterable[Amount]) -> tuple[str, ...]:
    scalars = {name for group in groups for amount in group for name in resources.scalars(amount)}
    return (CPU, MEMORY, *sorted(scalars))


def _place(nodes: Nodes, tasks: Sequence[Task], notes: list[Note]) -> None:
    """Puts the tasks on the nodes that they name; a node takes them whatever room it has."""
    placed: list[Task] = []
    where: list[int] = []
    for task in tasks:
        if not task.node or task.status in OVER:
            continue
        i = nodes.index.get(task.node)
        if i is None:
            notes.append(Note(oddity=Oddity.NODE_MISSING, subject=task.key, detail=task.node))
            continue
        nodes.held[i][task.key] = Held(task=task, status=task.status)
        placed.append(task)
        where.append(i)
    at = np.array(where, dtype=np.int64)
    indices = np.array([t.index for t in placed], dtype=np.int64)
    shape = np.array([t.shape for t in placed], dtype=np.int64)
    leaving = np.array([t.status is TaskStatus.RELEASING for t in placed], dtype=np.bool_)
    nodes.place[indices] = at
    nodes.running[indices] = [t.status in {TaskStatus.RUNNING, TaskStatus.BOUND} for t in placed]
    by_shape = by_resource(nodes)
    size = len(nodes.names)
    for row in range(len(nodes.resources)):
        amounts = by_shape[row][shape]
        charged = np.bincount(at, amounts, size)
        freed = np.bincount(at[leaving], amounts[leaving], size)
        nodes.idle[row] -= charged
        nodes.used[row] += charged
        nodes.releasing[row] += freed
        nodes.future[row] += freed - charged


def by_resource(nodes: Nodes) -> Floats:
    """Requests of every shape; shape (resources, shapes)."""
    found = np.zeros((len(nodes.resources), len(nodes.needs)))
    for shape, need in enumerate(nodes.needs):
        for row, value in need:
            found[row, shape] = value
    return found
