"""What batch-safe rules do beside the original: place without victims, and give back.

Both follow options of the rules (`fitFirst`, `rollBack`); without them nothing here has an effect.
"""

from __future__ import annotations

import numpy as np

from policy.batch.choosing import ChosenNode, best_of
from policy.batch.model import Job, Task, TaskStatus
from policy.batch.views import ActionView
from policy.cluster.tables import Bools


def may_grow(session: ActionView, task: Task) -> bool:
    """May the task's queue take room that none of its own tasks gives up?"""
    return not session.overused(session.queue_of(session.jobs[task.job]))


def idle_node(session: ActionView, task: Task, passing: Bools) -> ChosenNode | None:
    """The best node that has idle room for the task, where rules ask to look for one first."""
    if not session.options.fit_first or not may_grow(session, task):
        return None
    fits = passing & session.nodes.idle.covering(task.start_request)
    nodes = np.flatnonzero(fits)
    rated = np.full(fits.size, -np.inf)
    rated[nodes] = session.scores(task, nodes, among=fits)
    return best_of(rated, session.nodes.names)


def roll_back(session: ActionView, job: Job) -> None:
    """Takes back the job's placements of this session that were not sent and cannot be.

    Kept are those of a job that only waits for releases, or for tasks without requests that a
    later backfill places, and promises for which a pod was evicted.
    """
    if not session.options.roll_back or session.ready(job) or session.pipelined(job):
        return
    if _awaits_backfill(session, job):
        return
    for status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED):
        for task in job.having(status):
            if task.key not in session.paid_for:
                session.withdraw(task, forget=True)
                session.recorder.taken_back(task)


def _awaits_backfill(session: ActionView, job: Job) -> bool:
    """Would the job be ready if a later backfill placed its tasks without requests?"""
    if "backfill" not in session.later_actions:
        return False
    waiting = sum(t.start_request.is_empty for t in job.having(TaskStatus.PENDING))
    return job.ready + job.waiting + waiting >= job.minimum
