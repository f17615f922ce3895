"""Why tasks still wait when a session is over."""

from __future__ import annotations

from collections.abc import Iterator

from policy.batch.model import VALID, Job, TaskStatus
from policy.batch.recording import Operation, Reason, TaskStep
from policy.batch.result import JobReason
from policy.batch.session import Session

_OVERUSED_SENSITIVE = frozenset({"allocate", "reclaim"})
"""Actions that turn a queue away which has what it deserves."""


def why_waiting(session: Session) -> Iterator[JobReason]:
    """Every job with tasks that wait, and why; in order of uid."""
    rejections: dict[str, list[TaskStep]] = {}
    for step in session.recorder.steps:
        if step.operation is Operation.REJECT:
            rejections.setdefault(step.job, []).append(step)
    outside = {job.uid for job in session.world.left_out}
    jobs = [*session.jobs.values(), *session.world.left_out]
    for job in sorted(jobs, key=lambda j: j.uid):
        pending = job.count(TaskStatus.PENDING)
        if not pending and not job.count(TaskStatus.ALLOCATED) and not job.waiting:
            continue
        steps = rejections.get(job.uid, []) if pending else []
        last = steps[-1] if steps else None
        yield JobReason(
            job=job.uid,
            queue=job.queue,
            reason=Reason.LEFT_OUT if job.uid in outside else _reason(session, job, steps),
            minimum=job.minimum,
            ready=job.ready,
            waiting=job.waiting,
            pending=pending,
            task="" if last is None else last.task,
            action="" if last is None else last.action,
            rejection=None if last is None else last.rejection,
        )


def _reason(session: Session, job: Job, rejections: list[TaskStep]) -> Reason:
    """The first of these that holds.

    1. There are too few pods: nothing else matters until there are more.
    2. Enough tasks have a node or a promise, and nothing but the release is missing.
    3. The queue was turned away, and no action that does so has tried the job.
    4. Some tasks have a node that they cannot start on without the others.
    5. A task found no node.
    """
    if job.count(*VALID) < job.minimum:
        return Reason.TOO_FEW_TASKS
    pending = job.count(TaskStatus.PENDING)
    if job.waiting and job.is_pipelined and not (pending and job.is_ready):
        return Reason.WAITS_FOR_RELEASE
    tried = any(step.action in _OVERUSED_SENSITIVE for step in rejections)
    if pending and job.queue in session.recorder.overused and not tried:
        return Reason.QUEUE_OVERUSED
    if job.count(TaskStatus.ALLOCATED) and not job.is_ready:
        return Reason.GANG_INCOMPLETE
    return Reason.NO_NODE if rejections else Reason.NOT_TRIED
