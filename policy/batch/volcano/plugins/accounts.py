"""What every queue has, asks for and may have: kept for the plugins that share out the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from policy.batch.figures import QueueFigures
from policy.batch.limits import Limit, LimitKind
from policy.batch.model import HOLDING, TaskStatus
from policy.batch.recording import Protection
from policy.batch.resources import Resource
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.resources import UNLIMITED, Amount, nothing
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.inqueue import less_gated, reserved_at_open
from policy.cluster.requests import CPU, MEMORY, PODS

Spared: TypeAlias = Callable[[], Limit]
"""Makes the limit that spares a task, as things are while the task is judged."""


@dataclass(slots=True, eq=False)
class Account:
    """A queue's sums."""

    queue: BatchQueue
    allocated: Amount = field(default_factory=nothing)
    request: Amount = field(default_factory=nothing)  #: allocated and waiting
    inqueue: Amount = field(default_factory=nothing)  #: reserved by groups that were let in
    elastic: Amount = field(default_factory=nothing)  #: held beyond the groups' minimums
    guarantee: Amount = field(default_factory=nothing)
    deserved: Amount = field(default_factory=nothing)
    capability: Amount = field(default_factory=nothing)  #: as set, unlimited where nothing is
    real: Amount = field(default_factory=nothing)  #: the most that the queue can come to
    share: float = 0.0

    def beyond_capability(self, request: Amount, plugin: str) -> Limit | None:
        """The limit that the queue would pass with the request."""
        return self.limit(LimitKind.CAPABILITY, self.real, self.allocated, request, plugin)

    def beyond_deserved(self, request: Amount, plugin: str) -> Limit | None:
        return self.limit(LimitKind.DESERVED, self.deserved, self.allocated, request, plugin)

    def limit(
        self, rule: LimitKind, allowed: Amount, used: Amount, request: Amount, plugin: str
    ) -> Limit | None:
        wanted = resources.plus(used, request)
        exceeded = tuple(resources.beyond(wanted, allowed, request))
        if not exceeded:
            return None
        return Limit(
            plugin=plugin,
            rule=rule,
            subject=self.queue.name,
            exceeded=exceeded,
            asked=dict(request),
            used=dict(used),
            allowed=dict(allowed),
        )

    def protects(
        self, rule: LimitKind, allowed: Amount, held: Amount, task: Task, plugin: str
    ) -> Limit:
        """The limit that spares a task of the queue. held: by the queue, the task counted."""
        return Limit(
            plugin=plugin,
            rule=rule,
            subject=self.queue.name,
            exceeded=tuple(n for n in resources.names(task.request) if n != PODS),
            asked=dict(task.request),
            used=dict(held),
            allowed=dict(allowed),
        )

    def entry_limit(self, least: Amount, plugin: str) -> Limit | None:
        """What keeps a group with these minimum resources out of the queue."""
        used = resources.minus(resources.plus(self.allocated, self.inqueue), self.elastic)
        return self.limit(LimitKind.CAPABILITY, self.real, used, least, plugin)


def closed(queue: BatchQueue, plugin: str) -> Limit | None:
    """A queue that is not open takes nothing more."""
    if queue.open:
        return None
    return Limit(plugin=plugin, rule=LimitKind.STATE, subject=queue.name)


def unlimited_where_unset(capability: Amount | None) -> Amount:
    """Cpu and memory that a capability does not name, or sets to 0, are no limit."""
    found = dict(capability or nothing())
    for name in (CPU, MEMORY):
        if found.get(name, 0.0) <= 0:
            found[name] = UNLIMITED
    return found


def accounts_of(session: Session, queues: Iterable[str]) -> dict[str, Account]:
    """What the jobs of the queues hold, ask for and have reserved; in order of name."""
    accounts = {name: Account(session.queues[name]) for name in sorted(queues)}
    holding = session.requests_of(HOLDING)
    pending = session.requests_of({TaskStatus.PENDING})
    for name, account in accounts.items():
        if name in holding:
            resources.add(account.allocated, holding[name])
            resources.add(resources.add(account.request, holding[name]), pending[name])
        account.guarantee = dict(account.queue.guarantee)
        account.capability = unlimited_where_unset(account.queue.capability)
    for job in session.jobs.values():
        account = accounts[job.queue]
        reserved = reserved_at_open(job)
        if reserved is not None:
            resources.add(account.inqueue, reserved)
        resources.add(account.elastic, job.elastic)
    return accounts


def reserve(account: Account, job: Job) -> None:
    """Notes that the job was let into its queue."""
    if job.least is not None:
        resources.add(account.inqueue, less_gated(job))


def protections(judged: Iterable[tuple[Task, Spared | None]]) -> list[Protection]:
    """Of tasks of which it was said whether they may go: those that are spared."""
    return [Protection(task=t.key, limit=spared()) for t, spared in judged if spared is not None]


def vote(limit: Limit | None) -> Vote | Limit:
    return Vote.PERMIT if limit is None else limit


def sum_of(tasks: Iterable[Task]) -> Amount:
    return resources.total(task.request for task in tasks)


def figures(accounts: Mapping[str, Account]) -> dict[str, QueueFigures]:
    return {
        name: QueueFigures(
            weight=account.queue.weight,
            share=account.share,
            deserved=_resource(account.deserved),
            allocated=_resource(account.allocated),
            request=_resource(account.request),
            limits={
                "capability": _resource(account.real),
                "guarantee": _resource(account.guarantee),
                "inqueue": _resource(account.inqueue),
                "elastic": _resource(account.elastic),
            },
        )
        for name, account in accounts.items()
    }


def _resource(amount: Amount) -> Resource:
    scalars = {name: amount[name] for name in resources.scalars(amount)}
    return Resource(amount.get(CPU, 0.0), amount.get(MEMORY, 0.0), scalars or None)


def total_figure(session: Session) -> Resource:
    return _resource(session.nodes.total)
