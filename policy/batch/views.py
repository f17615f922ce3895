"""What plugins and actions see of a session.

The session implements both; it knows neither its plugins nor its actions, and they do not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from policy.batch.cache import Outbox
from policy.batch.choosing import ChosenNode
from policy.batch.figures import SessionFigures
from policy.batch.functions import Consulted, Event, Scores
from policy.batch.model import BatchQueue, Job, Task, TaskStatus
from policy.batch.nodes import Nodes, Refusal
from policy.batch.orders import Order
from policy.batch.recording import NodeAnswer, NodeChoice, Recorder
from policy.batch.resources import Resource
from policy.batch.settings import BatchOptions
from policy.batch.shapes import Shapes
from policy.batch.totals import RunningTasks
from policy.cluster.snapshot import NodeIndex, Snapshot
from policy.cluster.tables import Bools, Ints

if TYPE_CHECKING:
    from policy.batch.victims import VictimSearch


class PluginView(Protocol):
    """The state that plugins read, and where they register their functions.

    jobs and queues are in key order; nodes in name order, as in the snapshot.
    """

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def tasks(self) -> Sequence[Task]: ...
    @property
    def jobs(self) -> Mapping[str, Job]: ...
    @property
    def queues(self) -> Mapping[str, BatchQueue]: ...
    @property
    def nodes(self) -> Nodes: ...
    @property
    def figures(self) -> SessionFigures: ...
    @property
    def task_job(self) -> Ints:
        """(tasks,) index of the job of each task, NOWHERE without one."""

    @property
    def job_queue(self) -> Ints:
        """(jobs,) index of the queue of each job."""

    @property
    def job_ready(self) -> Ints:
        """(jobs,) tasks that count as ready."""

    @property
    def existing(self) -> NodeIndex:
        """(pods of the snapshot,) node of a task in an allocated status, else NOWHERE."""

    @property
    def existing_version(self) -> int:
        """Changes whenever `existing` does."""

    @property
    def unready(self) -> list[str]:
        """Jobs that were called unschedulable when the session closed."""

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None: ...
    def on_events(self, *, allocate: Event, deallocate: Event) -> None: ...
    @property
    def shapes(self) -> Shapes: ...
    @property
    def task_shape(self) -> Ints:
        """(tasks,) index of the shape of each task."""

    def requests_of(self, statuses: Container[TaskStatus]) -> dict[str, Resource]: ...
    def task_amount(self, name: str) -> Scores: ...
    def queue_of(self, job: Job) -> BatchQueue: ...


class ActionView(PluginView, Protocol):
    """What actions ask of a session beside, and how they change it."""

    @property
    def options(self) -> BatchOptions: ...
    @property
    def recorded_nodes(self) -> int:
        """Nodes of which the plugins' answers are kept where a task finds no victims."""

    @property
    def later_actions(self) -> tuple[str, ...]: ...
    @property
    def paid_for(self) -> set[str]:
        """Tasks for which another task is being evicted."""

    @property
    def recorder(self) -> Recorder: ...
    @property
    def running(self) -> RunningTasks: ...
    @property
    def job_order(self) -> Order[Job]: ...
    @property
    def queue_order(self) -> Order[BatchQueue]: ...
    @property
    def task_order(self) -> Order[Task]: ...
    @property
    def outbox(self) -> Outbox: ...

    def watched(self, task: Task, search: VictimSearch | None = None) -> None: ...
    def overused(self, queue: BatchQueue) -> bool: ...
    def ready(self, job: Job) -> bool: ...
    def pipelined(self, job: Job) -> bool: ...

    def passing(self, task: Task) -> Bools: ...
    def rejected(self, task: Task, *, among: Bools | None = None) -> dict[str, int]: ...
    def scores(self, task: Task, nodes: Ints, *, among: Bools) -> Scores: ...
    def best_with_room(self, task: Task) -> ChosenNode | None: ...
    def by_score(self, nodes: Ints, scores: Scores) -> Iterator[int]: ...

    def deciding(self, kind: str) -> tuple[Consulted, ...]: ...
    def hint(self, kind: str, plugin: str) -> Callable[..., Any] | None: ...

    def move(self, task: Task, status: TaskStatus) -> None: ...
    def settle(self, task: Task) -> None: ...
    def allocate_event(self, task: Task) -> None: ...
    def allocate(self, task: Task, node: int, choice: NodeChoice | None = None) -> bool: ...
    def dispatch(self, job: Job) -> bool: ...
    def pipeline(
        self,
        task: Task,
        node: int,
        answer: NodeAnswer | None = None,
        *,
        choice: NodeChoice | None = None,
    ) -> Refusal | None: ...
    def evict(self, victim: Task, claimant: Task) -> bool: ...
    def release(self, victim: Task) -> None: ...
    def withdraw(self, task: Task, *, forget: bool) -> None: ...
