"""What a session decided, complete enough to be explained, recorded and replayed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

from policy.batch.figures import QueueFigures
from policy.batch.model import TaskGroup, TaskStatus
from policy.batch.nodes import Crash
from policy.batch.notes import Note
from policy.batch.recording import Operation, Reason, Rejection, StatementRecord, TaskStep
from policy.batch.resources import Resource
from policy.cluster import canonical
from policy.cluster.digest import Change

ENGINE_VERSION: Final = "1"
"""Version of the session procedure: it changes when equal inputs may give other results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """Status of a pod group when the session closed."""

    phase: str  #: Pending, Running or Unknown
    running: int
    succeeded: int
    failed: int
    reason: str  #: of the condition Unschedulable; "" where the group has none

    @classmethod
    def of(cls, job: TaskGroup[Any], *, phase: str, unschedulable: bool) -> GroupStatus:
        return cls(
            phase=phase,
            running=job.count(TaskStatus.RUNNING),
            succeeded=job.count(TaskStatus.SUCCEEDED),
            failed=job.count(TaskStatus.FAILED),
            reason="NotEnoughResources" if unschedulable else "",
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFigures:
    """Totals and shares before the first action; empty where no plugin keeps them."""

    total: Resource | None
    drf: Mapping[str, float]
    queues: Mapping[str, QueueFigures]

    def document(self) -> dict[str, Any]:
        return {
            "total": None if self.total is None else _amounts(self.total),
            "drf": _floats(self.drf),
            "queues": {
                name: {
                    "weight": q.weight,
                    "share": repr(q.share),
                    "deserved": _amounts(q.deserved),
                    "allocated": _amounts(q.allocated),
                    "request": _amounts(q.request),
                    **{name: _amounts(limit) for name, limit in q.limits.items()},
                }
                for name, q in self.queues.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReason:
    """Why tasks of a job still wait at the end of a session."""

    job: str
    queue: str
    reason: Reason
    minimum: int
    ready: int
    waiting: int  #: promised room that is being released
    pending: int
    #: the last task for which no node was found, and why
    task: str = ""
    action: str = ""
    rejection: Rejection | None = None

    def document(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "reason": self.reason.value,
            "minimum": self.minimum,
            "ready": self.ready,
            "waiting": self.waiting,
            "pending": self.pending,
            "task": self.task,
            "action": self.action,
            "rejection": None if self.rejection is None else self.rejection.document(),
        }


def placed(jobs: Iterable[TaskGroup[Any]], status: TaskStatus) -> dict[str, str]:
    """The node of each task of a status, by the task's key in its order."""
    found = {task.key: task.node for job in jobs for task in job.having(status)}
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class SessionResult:
    """A session: what it started from, did, and left. Equal inputs give equal digests."""

    rules: str  #: name of the rules
    rules_digest: str
    snapshot_digest: str
    binds: Mapping[str, str]  #: pod (namespace/name) -> node, in the order of sending
    evicts: tuple[str, ...]  #: pods in the order of sending
    pipelined: Mapping[str, str]  #: pod -> node whose resources it is promised
    allocated: Mapping[str, str]  #: pod -> node; not sent, the gang is not ready
    pod_groups: Mapping[str, GroupStatus]  #: namespace/name -> status; written groups only
    drf: Mapping[str, float]  #: job -> share at the end
    queue_share: Mapping[str, float]
    open: OpenFigures
    steps: tuple[TaskStep, ...]
    statements: tuple[StatementRecord, ...]
    reasons: Mapping[str, JobReason]  #: job -> why some of its tasks still wait
    notes: tuple[Note, ...]  #: what of the cluster could not be used as it is
    crashes: tuple[Crash, ...]  #: where the original would have ended its process
    changes: tuple[Change, ...]  #: objects after the session

    def document(self) -> dict[str, Any]:
        """Everything that the session decided, without floats: they are written as text."""
        return {
            "engine": ENGINE_VERSION,
            "rules": self.rules_digest,
            "snapshot": self.snapshot_digest,
            "binds": dict(self.binds),
            "evicts": list(self.evicts),
            "pipelined": dict(self.pipelined),
            "allocated": dict(self.allocated),
            "podGroups": {name: g.document() for name, g in self.pod_groups.items()},
            "drf": _floats(self.drf),
            "queueShare": _floats(self.queue_share),
            "open": self.open.document(),
            "steps": [step.document() for step in self.steps],
            "statements": [
                {
                    "id": s.id,
                    "action": s.action,
                    "turn": s.turn,
                    "job": s.job,
                    "committed": s.committed,
                    "steps": list(s.steps),
                }
                for s in self.statements
            ],
            "reasons": {job: r.document() for job, r in self.reasons.items()},
            "notes": [[n.oddity.value, n.subject, n.detail] for n in self.notes],
            "crashes": [[c.kind.value, c.subject, c.of, c.node] for c in self.crashes],
        }

    @cached_property
    def taken_back(self) -> Mapping[str, Sequence[tuple[str, int]]]:
        """Job -> what was evicted for it in trial, as `evictions_taken_back` has it."""
        evictions = {step.position for step in self.steps if step.operation is Operation.EVICT}
        return evictions_taken_back(self.statements, evictions)

    @cached_property
    def canonical(self) -> str:
        """Complete canonical JSON (`policy.cluster.canonical`)."""
        return canonical.text(self.document())

    @cached_property
    def digest(self) -> str:
        """`sha256:` and the hash of the canonical text."""
        return canonical.sha256(self.canonical.encode())


def evictions_taken_back(
    statements: Iterable[StatementRecord], evictions: Collection[int]
) -> dict[str, list[tuple[str, int]]]:
    """Job -> action and number of evictions of each of its statements that was discarded.

    evictions: positions of all steps that evict. Statements without any are left out.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for statement in statements:
        evicted = sum(position in evictions for position in statement.steps)
        if evicted and not statement.committed:
            found.setdefault(statement.job, []).append((statement.action, evicted))
    return found


def _floats(values: Mapping[str, float]) -> dict[str, str]:
    return {name: repr(float(value)) for name, value in values.items()}


def _amounts(amount: Resource) -> dict[str, str]:
    return _floats(amount.amounts())
