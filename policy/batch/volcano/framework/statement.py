"""A statement: placements, promises and evictions that take effect together, or not at all.

The session changes at once, so that the next question sees it; nothing is sent before the commit.
A statement that ends in neither (a gang that only waits for room to be freed) keeps what it holds
until the session is over, and sends nothing.

Source: Volcano `pkg/scheduler/framework/statement.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from policy.batch.choosing import ChosenNode
from policy.batch.model import TaskStatus
from policy.batch.recording import NodeAnswer, Operation, Rejection, StepOutcome
from policy.batch.volcano.framework.model import Job, Task

if TYPE_CHECKING:
    from policy.batch.volcano.framework.session import Session


@dataclass(slots=True)
class _Done:
    operation: Operation
    task: Task
    position: int  #: of its step


class Statement:
    """What one job tries."""

    def __init__(self, session: Session, job: Job) -> None:
        self._session = session
        self._job = job
        self._done: list[_Done] = []
        self._undone: list[int] = []  #: positions of steps that were taken back or in vain
        self.id = session.recorder.next_statement()

    # --- changing ------------------------------------------------------------------------------

    def evict(self, victim: Task, claimant: Task) -> None:
        position = self._session.recorder.operation(
            Operation.EVICT, victim, victim.node, statement=self.id, claimant=claimant
        )
        self._session.release(victim)
        self._done.append(_Done(Operation.EVICT, victim, position))

    def pipeline(self, task: Task, chosen: ChosenNode, answer: NodeAnswer | None = None) -> bool:
        """Promises the task room of a node; False where the node refuses it."""
        return self._put(Operation.PIPELINE, TaskStatus.PIPELINED, task, chosen, answer)

    def allocate(self, task: Task, chosen: ChosenNode) -> bool:
        """Gives the task idle room of a node; False where the node refuses it."""
        return self._put(Operation.ALLOCATE, TaskStatus.ALLOCATED, task, chosen, None)

    def _put(
        self,
        operation: Operation,
        status: TaskStatus,
        task: Task,
        chosen: ChosenNode,
        answer: NodeAnswer | None,
    ) -> bool:
        session = self._session
        refusal = session.put(task, chosen.node, status)
        position = session.recorder.operation(
            operation,
            task,
            session.nodes.names[chosen.node],
            statement=self.id,
            refusal=refusal,
            answer=answer,
            choice=chosen.choice,
        )
        if refusal is not None:
            self._undone.append(position)
            return False
        self._done.append(_Done(operation, task, position))
        return True

    def reject(self, task: Task, rejection: Rejection) -> None:
        self._undone.append(len(self._session.recorder.steps))
        self._session.recorder.reject(task, rejection, statement=self.id)

    # --- taking back ---------------------------------------------------------------------------

    def mark(self) -> int:
        """A point to which `back_to` returns."""
        return len(self._done)

    def back_to(self, mark: int) -> None:
        """Takes back what was done since the mark, the last first."""
        session = self._session
        while len(self._done) > mark:
            done = self._done.pop()
            if done.operation is Operation.EVICT:
                session.restore(done.task)
            else:
                session.withdraw(done.task)
            session.recorder.outcome(done.position, StepOutcome.DISCARDED)
            self._undone.append(done.position)

    # --- ending --------------------------------------------------------------------------------

    def commit(self) -> None:
        """Sends evictions and placements. A promise is not sent: the next session meets it."""
        for done in self._done:
            if done.operation is Operation.EVICT:
                self._session.evicts.append(done.task.key)
            elif done.operation is Operation.ALLOCATE:
                self._session.bind(done.task)
        self._close(committed=True)

    def discard(self) -> None:
        """Takes everything back."""
        self.back_to(0)
        self._close(committed=False)

    def keep(self) -> None:
        """Neither: what it holds stays held until the session is over, and nothing is sent."""
        self._close(committed=False)

    def _close(self, *, committed: bool) -> None:
        positions = sorted([*self._undone, *(done.position for done in self._done)])
        self._session.recorder.close_statement(
            self.id, self._job.uid, tuple(positions), committed=committed
        )
