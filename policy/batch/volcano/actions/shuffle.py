"""shuffle: evicts what plugins want to see elsewhere, whoever waits.

Source: Volcano `pkg/scheduler/actions/shuffle`.
"""

from __future__ import annotations

from policy.batch.model import TaskStatus
from policy.batch.recording import Operation
from policy.batch.volcano.actions.base import Action
from policy.batch.volcano.framework.session import Session


class Shuffle(Action):
    name = "shuffle"
    doc = "Evicts running tasks that plugins name, for no task in particular."

    def run(self, session: Session) -> None:
        running = [
            task
            for task in session.tasks
            if task.status is TaskStatus.RUNNING and task.job in session.jobs
        ]
        for task in session.dispatch.victims(running):
            session.evicts.append(task.key)
            session.recorder.operation(Operation.EVICT, task, task.node)
            session.release(task)
