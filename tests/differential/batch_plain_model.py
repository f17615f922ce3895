"""Resources, tasks, jobs and nodes of the plain session, and how they are read from objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy.cluster import quantities, times
from policy.cluster.objects import (
    ClusterObject,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Queue,
    key_of,
)
from policy.cluster.requests import is_scalar
from policy.cluster.selectors import (
    go_integer,
)

ALLOCATED = ("Bound", "Binding", "Running", "Allocated")
READY = (*ALLOCATED, "Succeeded")
MI = 1024.0 * 1024


class Crash(Exception):
    """The original would have ended its process."""


# --- resources ---------------------------------------------------------------------------------


@dataclass
class R:
    cpu: float = 0.0
    memory: float = 0.0
    scalars: dict[str, float] | None = None

    def copy(self) -> R:
        return R(self.cpu, self.memory, None if self.scalars is None else dict(self.scalars))

    def get(self, name: str) -> float:
        plain = {"cpu": self.cpu, "memory": self.memory}
        return plain[name] if name in plain else (self.scalars or {}).get(name, 0.0)

    def names(self) -> list[str]:
        return ["cpu", "memory", *(self.scalars or {})]

    def empty(self) -> bool:
        scalars = (self.scalars or {}).values()
        return self.cpu < 10 and self.memory < 10 * MI and all(v < 10 for v in scalars)

    def fits(self, other: R) -> bool:
        def near(left: float, right: float, eps: float) -> bool:
            return left < right or abs(left - right) < eps

        if not near(self.cpu, other.cpu, 10) or not near(self.memory, other.memory, 10 * MI):
            return False
        for name, value in (self.scalars or {}).items():
            if value <= 10:
                continue
            if other.scalars is None or not near(value, other.scalars.get(name, 0.0), 10):
                return False
        return True

    def less(self, other: R) -> bool:
        if not (self.cpu < other.cpu and self.memory < other.memory):
            return False
        if self.scalars is None:
            return not any(v <= 10 for v in (other.scalars or {}).values())
        if other.scalars is None:
            return False
        return all(v < other.scalars.get(n, 0.0) for n, v in self.scalars.items())

    def add(self, other: R) -> R:
        self.cpu += other.cpu
        self.memory += other.memory
        for name, value in (other.scalars or {}).items():
            if self.scalars is None:
                self.scalars = {}
            self.scalars[name] = self.scalars.get(name, 0.0) + value
        return self

    def sub(self, other: R) -> R:
        if not other.fits(self):
            raise Crash
        self.cpu -= other.cpu
        self.memory -= other.memory
        for name, value in (other.scalars or {}).items():
            if self.scalars is not None:
                self.scalars[name] = self.scalars.get(name, 0.0) - value
        return self


def parse(amounts: Mapping[str, Any] | None) -> R:
    found = R()
    for name, quantity in (amounts or {}).items():
        if name == "cpu":
            found.cpu += quantities.milli(quantity)
        elif name == "memory":
            found.memory += quantities.units(quantity)
        elif is_scalar(name):
            found.add(R(scalars={name: float(quantities.milli(quantity))}))
    return found


def ratio(part: float, whole: float) -> float:
    return (0.0 if part == 0 else 1.0) if whole == 0 else part / whole


def top_share(part: R, whole: R) -> float:
    return max([0.0, *(ratio(part.get(n), whole.get(n)) for n in whole.names())])


# --- model -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Task:
    pod: Pod
    uid: str
    key: str
    need: R
    start: R
    priority: int
    created: int
    status: str
    node: str
    job: str = ""


@dataclass(eq=False)
class Job:
    uid: str
    queue: str = ""
    minimum: int = 0
    priority: int = 0
    created: int = times.MISSING
    group: PodGroup | None = None
    shadow: bool = False
    budget: bool = False
    klass: str = ""
    tasks: list[Task] = field(default_factory=list)

    def of(self, *statuses: str) -> list[Task]:
        return sorted((t for t in self.tasks if t.status in statuses), key=lambda t: t.uid)

    def ready(self) -> bool:
        return len(self.of(*READY)) >= self.minimum

    def pipelined(self) -> bool:
        return len(self.of(*READY, "Pipelined")) >= self.minimum


class PlainNode:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels or {}
        self.allocatable = parse(node.status.allocatable)
        self.pods = quantities.units((node.status.allocatable or {}).get("pods", 0))
        self.idle, self.used, self.releasing = self.allocatable.copy(), R(), R()
        self.held: dict[str, tuple[Task, str]] = {}

    def add(self, task: Task) -> bool:
        if (task.node and task.node != self.name) or task.key in self.held:
            return False
        if task.status == "Pipelined":
            self.releasing.sub(task.need)
        else:
            if not task.need.fits(self.idle):
                return False
            self.idle.sub(task.need)
            if task.status == "Releasing":
                self.releasing.add(task.need)
        self.used.add(task.need)
        task.node = self.name
        self.held[task.key] = (task, task.status)
        return True

    def remove(self, task: Task) -> None:
        if task.key not in self.held:
            return
        _, status = self.held.pop(task.key)
        if status == "Releasing":
            self.releasing.sub(task.need)
            self.idle.add(task.need)
        elif status == "Pipelined":
            self.releasing.add(task.need)
        else:
            self.idle.add(task.need)
        self.used.sub(task.need)

    def update(self, task: Task) -> None:
        self.remove(task)
        self.add(task)

    def tasks(self) -> list[tuple[Task, str]]:
        return [self.held[key] for key in sorted(self.held)]


class Heap:
    """container/heap, in Go's own words."""

    def __init__(self, less: Callable[[Any, Any], bool]) -> None:
        self.items: list[Any] = []
        self.less = less

    def __len__(self) -> int:
        return len(self.items)

    def _swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def push(self, item: Any) -> None:
        self.items.append(item)
        j = len(self.items) - 1
        while True:
            i = (j - 1) // 2 if j > 0 else 0
            if i == j or not self.less(self.items[j], self.items[i]):
                break
            self._swap(i, j)
            j = i

    def pop(self) -> Any:
        n = len(self.items) - 1
        self._swap(0, n)
        i = 0
        while True:
            j1 = 2 * i + 1
            if j1 >= n:
                break
            j = j1
            if j1 + 1 < n and self.less(self.items[j1 + 1], self.items[j1]):
                j = j1 + 1
            if not self.less(self.items[j], self.items[i]):
                break
            self._swap(i, j)
            i = j
        return self.items.pop()


STATUS = {
    "Running": ("Running", "Releasing"),
    "Pending": ("Pending", "Releasing"),
}


def status_of(pod: Pod) -> str:
    phase = pod.status.phase
    leaving = bool(pod.metadata.deletion_timestamp)
    if phase not in STATUS:
        return phase if phase in ("Succeeded", "Failed") else "Unknown"
    if phase == "Pending" and not leaving and pod.spec.node_name:
        return "Bound"
    return STATUS[phase][leaving]


class World:
    """What a session starts from."""

    nodes: dict[str, PlainNode]
    queues: dict[str, Queue]
    jobs: dict[str, Job]

    def load(self, objects: Sequence[ClusterObject]) -> None:
        of = lambda kind: [o for o in objects if isinstance(o, kind)]  # noqa: E731
        self.nodes = {n.metadata.name: PlainNode(n) for n in of(Node)}
        jobs: dict[str, Job] = {}
        tasks = []
        for pod in of(Pod):
            ours = pod.spec.scheduler_name == "kube-batch"
            if pod.status.phase == "Pending" and not ours:
                continue
            need = R()
            for container in pod.spec.containers or ():
                need.add(parse(container.resources.requests if container.resources else None))
            start = need.copy()
            for container in pod.spec.init_containers or ():
                init = parse(container.resources.requests if container.resources else None)
                start.cpu, start.memory = max(start.cpu, init.cpu), max(start.memory, init.memory)
            task = Task(
                pod=pod,
                uid=pod.metadata.uid,
                key=key_of(pod),
                need=need,
                start=start,
                priority=1 if pod.spec.priority is None else pod.spec.priority,
                created=times.parse_optional(pod.metadata.creation_timestamp),
                status=status_of(pod),
                node=pod.spec.node_name,
            )
            self._join(task, jobs, ours=ours)
            tasks.append(task)
        for task in sorted(tasks, key=lambda t: t.key):
            if task.node in self.nodes and task.status not in ("Succeeded", "Failed"):
                self.nodes[task.node].add(task)
        for group in of(PodGroup):
            job = jobs.setdefault(key_of(group), Job(key_of(group)))
            job.group, job.shadow = group, False
            job.queue = group.spec.queue or "default"
            job.minimum = group.spec.min_member
            job.created = times.parse_optional(group.metadata.creation_timestamp)
            job.klass = group.spec.priority_class_name
        self.queues = {q.metadata.name: q for q in of(Queue)}
        values = {c.metadata.name: c.value for c in of(PriorityClass)}
        default = max((c.value for c in of(PriorityClass) if c.global_default), default=0)
        for budget in of(PodDisruptionBudget):
            uid = next((r.uid for r in budget.metadata.owner_references or () if r.controller), "")
            if uid:
                job = jobs.setdefault(uid, Job(uid))
                number = budget.spec.min_available
                job.budget, job.queue = True, "default"
                job.minimum = number if isinstance(number, int) else 0
                job.created = times.parse_optional(budget.metadata.creation_timestamp)
        self.jobs = {}
        for uid, job in sorted(jobs.items()):
            if (job.group or job.shadow or job.budget) and job.queue in self.queues:
                if job.group or job.shadow:
                    job.priority = values.get(job.klass, default)
                self.jobs[uid] = job

    def _join(self, task: Task, jobs: dict[str, Job], *, ours: bool) -> None:
        meta = task.pod.metadata
        group = (meta.annotations or {}).get("scheduling.k8s.io/group-name")
        if group:
            task.job = f"{meta.namespace}/{group}"
            jobs.setdefault(task.job, Job(task.job)).tasks.append(task)
        elif ours:
            owner = next((r.uid for r in meta.owner_references or () if r.controller), "")
            task.job = owner or task.uid
            if task.job not in jobs:
                text = (meta.annotations or {}).get("scheduling.k8s.io/group-min-member", "")
                number = go_integer(text)
                jobs[task.job] = Job(
                    task.job,
                    queue="default",
                    minimum=1 if number is None else number,
                    created=task.created,
                    shadow=True,
                    klass=task.pod.spec.priority_class_name,
                )
            jobs[task.job].tasks.append(task)
