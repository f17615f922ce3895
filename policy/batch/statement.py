"""A statement: evictions and promises that take effect together, or not at all.

Source: kube-batch `framework.Statement`. The session changes at once, so that the next question
sees it; nothing is sent before the commit. Whatever becomes of it, the recorder keeps what was
tried.
"""

from __future__ import annotations

from dataclasses import dataclass

from policy.batch.model import Job, Task, TaskStatus
from policy.batch.recording import NodeAnswer, NodeChoice, Operation, Rejection, StepOutcome
from policy.batch.views import ActionView


@dataclass(slots=True)
class _Done:
    operation: Operation
    task: Task
    position: int  #: of its step


class Statement:
    """What one job tries."""

    def __init__(self, session: ActionView, job: Job) -> None:
        self._session = session
        self._job = job
        self._done: list[_Done] = []
        self._rejected: list[int] = []
        self.id = session.recorder.next_statement()

    # --- changing ------------------------------------------------------------------------------

    def evict(self, victim: Task, claimant: Task) -> None:
        position = self._session.recorder.operation(
            Operation.EVICT, victim, victim.node, statement=self.id, claimant=claimant
        )
        self._session.release(victim)
        self._session.paid_for.add(claimant.key)
        self._done.append(_Done(Operation.EVICT, victim, position))

    def pipeline(
        self, task: Task, node: int, answer: NodeAnswer | None, choice: NodeChoice | None = None
    ) -> None:
        """Promises the task room that its victims leave.

        That the node refuses is no error here: the original notes it and goes on.
        """
        session = self._session
        session.move(task, TaskStatus.PIPELINED)
        refusal = session.nodes.add(node, task)
        session.settle(task)
        session.allocate_event(task)
        position = session.recorder.operation(
            Operation.PIPELINE,
            task,
            session.nodes.names[node],
            statement=self.id,
            refusal=refusal,
            answer=answer,
            choice=choice,
        )
        self._done.append(_Done(Operation.PIPELINE, task, position))

    def allocate(self, task: Task, node: int, choice: NodeChoice | None = None) -> bool:
        """Gives the task idle room; False where the node refuses, and nothing has changed."""
        session = self._session
        session.move(task, TaskStatus.ALLOCATED)
        refusal = session.nodes.add(node, task)
        if refusal is not None:
            session.move(task, TaskStatus.PENDING)
            return False
        session.settle(task)
        session.allocate_event(task)
        position = session.recorder.operation(
            Operation.ALLOCATE,
            task,
            session.nodes.names[node],
            statement=self.id,
            choice=choice,
        )
        self._done.append(_Done(Operation.ALLOCATE, task, position))
        return True

    def reject(self, task: Task, rejection: Rejection) -> None:
        self._rejected.append(len(self._session.recorder.steps))
        self._session.recorder.reject(task, rejection, statement=self.id)

    # --- ending --------------------------------------------------------------------------------

    def commit(self) -> None:
        """Sends the evictions. A promise is not sent: the next session meets the task again.

        An eviction that the cluster refuses is taken back, and the rest stands.
        """
        for done in self._done:
            if done.operation is Operation.EVICT and not self._session.outbox.evict(done.task):
                self._restore(done.task)
                self._session.recorder.outcome(done.position, StepOutcome.FAILED)
        self._close(committed=True)
        if any(done.operation is Operation.ALLOCATE for done in self._done):
            self._session.dispatch(self._job)

    def discard(self) -> None:
        """Takes everything back, the last first.

        The original leaves a withdrawn task its node; no other node then takes it in this
        session. Rules that roll back (`rollBack`) let it go.
        """
        for done in reversed(self._done):
            if done.operation is Operation.EVICT:
                self._restore(done.task)
            else:
                self._session.withdraw(done.task, forget=self._session.options.roll_back)
                self._session.paid_for.discard(done.task.key)
            self._session.recorder.outcome(done.position, StepOutcome.DISCARDED)
        self._close(committed=False)

    def _restore(self, victim: Task) -> None:
        session = self._session
        session.move(victim, TaskStatus.RUNNING)
        session.nodes.update(session.nodes.index[victim.node], victim)
        session.settle(victim)
        session.allocate_event(victim)

    def _close(self, *, committed: bool) -> None:
        positions = sorted([*self._rejected, *(done.position for done in self._done)])
        self._session.recorder.close_statement(
            self.id, self._job.uid, tuple(positions), committed=committed
        )
