"""What a session did, step by step, and why: data only, without sentences.

Everything that was tried is kept, also what was taken back: why a gang was not placed is the
question that people ask of a batch scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from policy.batch.limits import Limit
from policy.batch.nodes import Refusal


class NamedTask(Protocol):
    """A task, as far as records tell of it."""

    @property
    def key(self) -> str: ...
    @property
    def job(self) -> str: ...


class Operation(StrEnum):
    """What was done to a task. Values are stored and never renamed."""

    ALLOCATE = "allocate"  # given idle room of the node
    BIND = "bind"  # sent to the node: its gang is ready
    ENQUEUE = "enqueue"  # of a job: let into its queue, or not
    EVICT = "evict"
    PIPELINE = "pipeline"  # promised room of the node that is being released
    REJECT = "reject"  # no node for the task


class StepOutcome(StrEnum):
    """What became of a step. Values are stored and never renamed."""

    DONE = "done"
    DISCARDED = "discarded"  # taken back with its statement
    FAILED = "failed"  # the node or the cluster refused


class Reason(StrEnum):
    """Why a node was no place for a task, or a job was not placed. Values are stored."""

    # of a node
    NO_ROOM = "no-room"  # neither idle nor released room is enough
    NO_POTENTIAL_VICTIMS = "no-potential-victims"  # no running task that the action may ask about
    VICTIMS_VETOED = "victims-vetoed"  # plugins accepted none of them
    NOT_ENOUGH_VICTIMS = "not-enough-victims"  # those accepted do not make enough room
    CHOSEN = "chosen"

    # of a job
    LEFT_OUT = "left-out"  # its queue or its group does not exist
    TOO_FEW_TASKS = "too-few-tasks"  # fewer pods than the minimum: it can never be ready
    QUEUE_OVERUSED = "queue-overused"
    WAITS_FOR_RELEASE = "waits-for-release"  # everything is promised, nothing is free yet
    GANG_INCOMPLETE = "gang-incomplete"  # some tasks have a node, not enough of them
    NO_NODE = "no-node"  # an action found no node for a task
    QUEUE_LIMIT = "queue-limit"  # the queue may not take the task
    NOT_ENQUEUED = "not-enqueued"  # the group was not let into its queue
    SATISFIED = "satisfied"  # the job has its minimum, and may evict for no more
    NOT_TRIED = "not-tried"  # no action came to it


class ChoiceRule(StrEnum):
    """What settled which node a task got. Values are stored and never renamed."""

    ONLY = "only"  # no other node could be used
    NOMINATED = "nominated"  # the pod's nominated node, which is tried before all others
    SCORE = "score"  # no other node scored as high
    FIRST_NAME = "first-name"  # of equal scores the first in name order
    LAST_NAME = "last-name"  # of equal scores the last in name order
    NAME_ORDER = "name-order"  # nodes are tried in name order, whatever their scores
    FEWEST_LOSSES = "fewest-losses"  # its victims matter least (topology-aware preemption)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """Why a task got this node of all that could be used.

    Among equal nodes the schedulers choose at random, or in the order of a Go map; sessions here
    take the one that `rule` names.
    """

    rule: ChoiceRule
    nodes: int  #: that could be used, this one counted
    score: str = ""  #: of the node, a float as text; "" where scores were not looked at
    ties: int = 0  #: other nodes with that score
    equal: tuple[str, ...] = ()  #: the first of these in name order, at most `TIES_SHOWN`
    passed_over: int = 0  #: nodes that came before this one and yielded too little room

    def document(self) -> dict[str, Any]:
        return {
            "rule": self.rule.value,
            "nodes": self.nodes,
            "score": self.score,
            "ties": self.ties,
            "equal": list(self.equal),
            "passed_over": self.passed_over,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """The limit for which a plugin spared a task, with its numbers."""

    task: str
    limit: Limit

    def document(self) -> dict[str, Any]:
        return {"task": self.task, "limit": self.limit.document()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What the plugins said about evicting tasks of one node for another task."""

    node: str
    potential: tuple[str, ...]  #: tasks asked about, namespace/name
    vetoes: Mapping[str, tuple[str, ...]]  #: plugin (or option of the rules) -> tasks it spared
    victims: tuple[str, ...]  #: tasks that everybody accepted
    verdict: Reason
    tier: int | None = None  #: which decided, from 0; None where it can only be one
    #: of tasks that a plugin with numbers spared
    protections: tuple[Protection, ...] = ()

    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "node": self.node,
            "potential": list(self.potential),
            "vetoes": {name: list(tasks) for name, tasks in self.vetoes.items()},
            "victims": list(self.victims),
            "verdict": self.verdict.value,
        }
        if self.tier is not None:
            said["tier"] = self.tier
        if self.protections:
            said["protections"] = [p.document() for p in self.protections]
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why no node was found for a task."""

    #: reason -> number of nodes; predicates name theirs, `Reason` the others
    nodes: Mapping[str, int]
    #: plugin -> potential victims that it spared, on all nodes; of plugins that can tell at once
    vetoes: Mapping[str, int] = field(default_factory=dict)
    #: what was said about the best nodes, as many as the rules want recorded
    answers: tuple[NodeAnswer, ...] = ()
    #: the limit of a queue, or of the whole cluster, for which no node was looked at
    limit: Limit | None = None

    def document(self) -> dict[str, Any]:
        said = {
            "nodes": dict(self.nodes),
            "vetoes": dict(self.vetoes),
            "answers": [a.document() for a in self.answers],
        }
        return said if self.limit is None else {**said, "limit": self.limit.document()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """One operation on one task."""

    position: int  #: from 0
    action: str
    turn: int  #: which of the rule set's actions, from 0: an action may be listed twice
    operation: Operation
    job: str
    task: str  #: namespace/name; "" of an operation on a whole job
    node: str  #: "" where there is none
    statement: int  #: 0 where the operation took effect at once
    outcome: StepOutcome
    claimant: str = ""  #: of an eviction: the task it makes room for
    refusal: Refusal | None = None  #: why the node did not take the task
    answer: NodeAnswer | None = None  #: the plugin answers that chose the victims
    rejection: Rejection | None = None
    choice: NodeChoice | None = None  #: of a placement or promise: why this node

    def document(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "turn": self.turn,
            "operation": self.operation.value,
            "job": self.job,
            "task": self.task,
            "node": self.node,
            "statement": self.statement,
            "outcome": self.outcome.value,
            "claimant": self.claimant,
            "refusal": None if self.refusal is None else self.refusal.value,
            "answer": None if self.answer is None else self.answer.document(),
            "rejection": None if self.rejection is None else self.rejection.document(),
            "choice": None if self.choice is None else self.choice.document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRecord:
    """A group of steps that took effect together, or not at all."""

    id: int  #: from 1
    action: str
    turn: int
    job: str
    committed: bool
    steps: tuple[int, ...]  #: positions


_PLACEMENTS = frozenset({Operation.ALLOCATE, Operation.PIPELINE})


class Recorder:
    """Collects the steps of a session."""

    def __init__(self) -> None:
        self.steps: list[TaskStep] = []
        self.statements: list[StatementRecord] = []
        self.overused: dict[str, str] = {}  #: queue -> the action that turned it away last
        self.limits: dict[str, Limit] = {}  #: queue -> the limit that this was for, with numbers
        self.action = ""  #: that runs
        self._turn = 0
        self._opened = 0
        self._placed: dict[str, int] = {}  #: task -> position of its last placement

    def begin(self, action: str, turn: int) -> None:
        self.action, self._turn = action, turn

    def next_statement(self) -> int:
        self._opened += 1
        return self._opened

    def operation(
        self,
        operation: Operation,
        task: NamedTask,
        node: str,
        *,
        statement: int = 0,
        outcome: StepOutcome | None = None,
        refusal: Refusal | None = None,
        claimant: NamedTask | None = None,
        answer: NodeAnswer | None = None,
        rejection: Rejection | None = None,
        choice: NodeChoice | None = None,
    ) -> int:
        """Adds a step; returns its position."""
        if outcome is None:
            outcome = StepOutcome.DONE if refusal is None else StepOutcome.FAILED
        position = len(self.steps)
        if operation in _PLACEMENTS:
            self._placed[task.key] = position
        self.steps.append(
            TaskStep(
                position=position,
                action=self.action,
                turn=self._turn,
                operation=operation,
                job=task.job,
                task=task.key,
                node=node,
                statement=statement,
                outcome=outcome,
                claimant="" if claimant is None else claimant.key,
                refusal=refusal,
                answer=answer,
                rejection=rejection,
                choice=choice,
            )
        )
        return position

    def reject(self, task: NamedTask, rejection: Rejection, *, statement: int = 0) -> None:
        self.operation(
            Operation.REJECT,
            task,
            "",
            statement=statement,
            outcome=StepOutcome.FAILED,
            rejection=rejection,
        )

    def entry(self, job: str, limit: Limit | None) -> None:
        """Notes that a job was let into its queue, or the limit that kept it out."""
        self.steps.append(
            TaskStep(
                position=len(self.steps),
                action=self.action,
                turn=self._turn,
                operation=Operation.ENQUEUE,
                job=job,
                task="",
                node="",
                statement=0,
                outcome=StepOutcome.DONE if limit is None else StepOutcome.FAILED,
                rejection=None if limit is None else Rejection(nodes={}, limit=limit),
            )
        )

    def close_statement(
        self, number: int, job: str, positions: tuple[int, ...], *, committed: bool
    ) -> None:
        if not positions:
            return
        self.statements.append(
            StatementRecord(
                id=number,
                action=self.action,
                turn=self._turn,
                job=job,
                committed=committed,
                steps=positions,
            )
        )

    def taken_back(self, task: NamedTask) -> None:
        """Notes that the task's last placement was taken back."""
        position = self._placed.get(task.key)
        if position is not None:
            self.outcome(position, StepOutcome.DISCARDED)

    def outcome(self, position: int, outcome: StepOutcome) -> None:
        """Says later what became of a step."""
        self.steps[position] = replace(self.steps[position], outcome=outcome)
