"""tdm: nodes that the cluster has at some hours only, and tasks that may be thrown off them.

The hours are those of the snapshot's instant in UTC; the original takes the clock of its machine.

Source: Volcano `pkg/scheduler/plugins/tdm` (time division multiplexing).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import ClassVar, Final

import numpy as np

from policy.batch.model import OVER, TaskStatus
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import Job, Task
from policy.batch.volcano.framework.nodes import Floats
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.framework.world import REVOCABLE_ZONE
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.cluster.selectors import go_integer
from policy.cluster.tables import Ints
from policy.filters.base import SUCCESS, UNRESOLVABLE, Codes

_ZONE: Final = "tdm.revocable-zone."
_HOURS: Final = re.compile(r"(\d{1,2}):(\d\d)-(\d{1,2}):(\d\d)")
_SCORE: Final = 100.0
_MIN_AVAILABLE: Final = "volcano.sh/jdb-min-available"
_MAX_UNAVAILABLE: Final = "volcano.sh/jdb-max-unavailable"


class Tdm(Plugin):
    name = "tdm"
    doc = "Opens revocable nodes at their hours; evicts preemptable tasks from them afterwards."
    arguments: ClassVar = {f"{_ZONE}*": str}

    def __init__(self, arguments: Arguments) -> None:
        self._hours = {
            name.removeprefix(_ZONE): hours
            for name, hours in arguments.items()
            if name.startswith(_ZONE)
        }

    def open(self, session: Session) -> None:
        self._session = session
        now = datetime.fromtimestamp(session.snapshot.now_ms / 1000, tz=UTC)
        self._open = {z for z, hours in self._hours.items() if _within(hours, now)}
        self._zones = [
            (node.metadata.labels or {}).get(REVOCABLE_ZONE, "")
            for node in session.snapshot.nodes.nodes
        ]
        session.register(
            self.name,
            predicate=lambda task: self._judge(task, self._every()),
            predicate_class=lambda task: task.revocable,
            predicate_at=self._judge,
            node_order=self.node_order,
            node_order_class=lambda task: task.revocable,
            preemptable=self.preemptable,
            victims=self.victims,
            job_order=lambda job: job.preemptable,
            job_pipelined=self.job_pipelined,
            job_starving=lambda job: not job.preemptable and bool(job.count(TaskStatus.PENDING)),
        )

    def _every(self) -> Ints:
        return np.arange(len(self._zones), dtype=np.int64)

    def _judge(self, task: Task, nodes: Ints) -> Codes:
        zones = [self._zones[i] for i in nodes.tolist()]
        passes = [not z or (z in self._open and task.revocable) for z in zones]
        return np.where(passes, SUCCESS, UNRESOLVABLE).astype(np.int8)

    def node_order(self, task: Task, nodes: Ints) -> Floats:
        zones = [self._zones[i] for i in nodes.tolist()]
        return np.array([_SCORE * (z in self._open and task.revocable) for z in zones])

    def preemptable(self, preemptor: Task, tasks: list[Task]) -> list[Task]:
        """Tasks off the revocable nodes; who may be evicted itself evicts no other."""
        if preemptor.preemptable or preemptor.revocable:
            return []
        nodes = self._session.nodes
        found = [
            task
            for task in tasks
            if task.preemptable
            and task.status is TaskStatus.RUNNING
            and not self._zones[nodes.index[task.node]]
        ]
        return self._within_budgets(found)

    def victims(self, tasks: list[Task]) -> list[Task]:
        """Preemptable tasks on nodes of a zone that is closed now."""
        nodes = self._session.nodes
        closed = self._hours.keys() - self._open
        found = [
            task
            for task in tasks
            if task.preemptable and self._zones[nodes.index[task.node]] in closed
        ]
        return self._within_budgets(found)

    def _within_budgets(self, tasks: list[Task]) -> list[Task]:
        left: dict[str, int] = {}
        found = []
        for task in tasks:
            job = self._session.jobs[task.job]
            left.setdefault(job.uid, _budget(job))
            if left[job.uid] > 0:
                left[job.uid] -= 1
                found.append(task)
        return found

    def job_pipelined(self, job: Job) -> Vote:
        return Vote.PERMIT if job.ready + job.waiting >= job.minimum else Vote.REJECT


def _within(hours: str, now: datetime) -> bool:
    """Is it between the hours? Where the end is not after the start, it is on the next day."""
    found = _HOURS.fullmatch(hours.strip())
    if found is None:
        return False
    start, end = (int(found[i]) * 60 + int(found[i + 1]) for i in (1, 3))
    if start >= end:
        end += 24 * 60
    minutes = now.hour * 60 + now.minute + now.second / 60
    return start <= minutes <= end


def _budget(job: Job) -> int:
    """How many of the job's tasks may go at once."""
    assert job.group is not None
    annotations = job.group.metadata.annotations or {}
    running = job.count(TaskStatus.RUNNING)
    if annotations.get(_MAX_UNAVAILABLE):
        gone = len(job.tasks) - job.count(*OVER) - running
        return max(0, _number(annotations[_MAX_UNAVAILABLE], len(job.tasks)) - gone)
    if annotations.get(_MIN_AVAILABLE):
        least = _number(annotations[_MIN_AVAILABLE], len(job.tasks))
        if running >= least:
            return running - least
    return 1


def _number(text: str, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up; 0 where it is neither."""
    if text.endswith("%"):
        percent = go_integer(text[:-1])
        return 0 if percent is None else -(-percent * whole // 100)
    return go_integer(text) or 0
