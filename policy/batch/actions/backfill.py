"""backfill: places tasks that ask for nothing on the first node that may take them.

Source: kube-batch `actions/backfill`. Neither order, queue nor score plays a part; whether the
tasks are sent still depends on their gang.
"""

from __future__ import annotations

import numpy as np

from policy.batch.actions.base import Action
from policy.batch.choosing import by_name
from policy.batch.model import Task, TaskStatus
from policy.batch.recording import Rejection
from policy.batch.safe import roll_back
from policy.batch.views import ActionView


class Backfill(Action):
    name = "backfill"
    doc = "Places tasks without requests on the first node that may take them."

    def run(self, session: ActionView) -> None:
        for job in session.jobs.values():
            for task in job.having(TaskStatus.PENDING):
                if task.start_request.is_empty and not _place(session, task):
                    session.recorder.reject(task, Rejection(nodes=session.rejected(task)))
            roll_back(session, job)


def _place(session: ActionView, task: Task) -> bool:
    session.watched(task)
    node = refused = 0
    while True:
        # Asked again after every refusal: it may have changed what predicates look at.
        passing = np.flatnonzero(session.passing(task)[node:])
        if not passing.size:
            return False
        node += int(passing[0])
        usable = refused + int(passing.size)
        if session.allocate(task, node, by_name(node, nodes=usable, passed_over=refused).choice):
            return True
        node += 1
        refused += 1
