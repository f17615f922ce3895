"""Giving back what a gang took without becoming ready (the rules' option `rollBack`)."""

from __future__ import annotations

from policy.batch.model import Job, Status
from policy.batch.session import Session


def roll_back(session: Session, job: Job) -> None:
    """Takes back the job's placements of this session that were not sent and cannot be.

    Kept are those of a job that only waits for releases, or for tasks without requests that a
    later backfill places.
    """
    if session.ready(job) or session.pipelined(job) or session.awaits_backfill(job):
        return
    for status in (Status.ALLOCATED, Status.PIPELINED):
        for task in job.having(status):
            session.withdraw(task, forget=True)
            session.recorder.taken_back(task)
