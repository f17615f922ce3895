"""Why tasks still wait when a session of Volcano is over."""

from __future__ import annotations

from collections.abc import Iterator

from policy.batch.model import VALID, TaskStatus
from policy.batch.recording import Reason, Rejection, TaskStep
from policy.batch.result import JobReason
from policy.batch.volcano.framework.model import Job
from policy.batch.volcano.framework.session import Session


def why_waiting(session: Session) -> Iterator[JobReason]:
    """Every job with tasks that wait, and why; in order of uid."""
    rejections: dict[str, list[TaskStep]] = {}
    for step in session.recorder.steps:
        if step.rejection is not None:
            rejections.setdefault(step.job, []).append(step)
    outside = {job.uid for job in session.world.left_out}
    for job in sorted([*session.jobs.values(), *session.world.left_out], key=lambda j: j.uid):
        pending = job.count(TaskStatus.PENDING)
        if not pending and not job.count(TaskStatus.ALLOCATED) and not job.waiting:
            continue
        steps = rejections.get(job.uid, []) if pending else []
        last = steps[-1] if steps else None
        reason = Reason.LEFT_OUT if job.uid in outside else _reason(session, job, steps)
        rejection = None if last is None else last.rejection
        limit = session.recorder.limits.get(job.queue)
        if reason is Reason.QUEUE_OVERUSED and limit is not None:
            rejection = Rejection(nodes={}, limit=limit)
        yield JobReason(
            job=job.uid,
            queue=job.queue,
            reason=reason,
            minimum=job.minimum,
            ready=job.ready,
            waiting=job.waiting,
            pending=pending,
            task="" if last is None else last.task,
            action="" if last is None else last.action,
            rejection=rejection,
        )


def _reason(session: Session, job: Job, rejections: list[TaskStep]) -> Reason:
    """The first of these that holds.

    1. The group was not let into its queue: no action looked at it.
    2. There are too few pods: nothing else matters until there are more.
    3. Enough tasks have a node or a promise, and nothing but the release is missing.
    4. The queue was turned away, and no action has tried the job.
    5. The last try ended at a limit of the queue.
    6. A task found no node.
    """
    if job.pending:
        return Reason.NOT_ENQUEUED
    if job.count(*VALID) < job.minimum:
        return Reason.TOO_FEW_TASKS
    pending = job.count(TaskStatus.PENDING)
    if job.waiting and job.is_pipelined and not (pending and job.is_ready):
        return Reason.WAITS_FOR_RELEASE
    if pending and job.queue in session.recorder.overused and not rejections:
        return Reason.QUEUE_OVERUSED
    if not rejections:
        return Reason.GANG_INCOMPLETE if job.count(TaskStatus.ALLOCATED) else Reason.NOT_TRIED
    last = rejections[-1].rejection
    if last is not None and last.limit is not None:
        return Reason.QUEUE_LIMIT
    return Reason.NO_NODE
