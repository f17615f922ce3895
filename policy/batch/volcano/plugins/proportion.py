"""proportion: every queue deserves a part of the cluster by its weight, up to what it asks for.

Source: Volcano `pkg/scheduler/plugins/proportion`. A request caps what a queue deserves from the
start, in every dimension; what a queue is guaranteed it deserves in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from policy.batch.limits import Limit, LimitKind
from policy.batch.recording import Protection
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.resources import Amount, nothing
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins import accounts as of_queues
from policy.batch.volcano.plugins.accounts import Account, Spared
from policy.batch.volcano.plugins.base import Plugin

_ROUNDS = 1000
"""Every round meets a queue or hands out a part of what is left; far fewer are needed."""


class Proportion(Plugin):
    name = "proportion"
    doc = "Gives queues parts of the cluster by weight; reclaims from queues above their part."

    def open(self, session: Session) -> None:
        self._session = session
        queues = {job.queue for job in session.jobs.values()}
        self._accounts = of_queues.accounts_of(session, queues)
        total = session.nodes.total
        guaranteed = resources.total(q.guarantee for q in session.queues.values())
        for account in self._accounts.values():
            free = resources.exceeded(total, guaranteed)
            most = resources.plus(free, account.guarantee)
            account.real = resources.lowest(most, account.capability, unlimited=True)
        self._divide(dict(total))
        for account in self._accounts.values():
            _refresh(account)
        session.figures.queue_share = self.shares
        session.figures.queues_at_open = of_queues.figures(self._accounts)
        session.register(
            self.name,
            queue_order=self.queue_order,
            overused=self.overused,
            allocatable=lambda queue, task: self._may_take(queue, task.request),
            preemptive=lambda queue, tasks: self._may_take(queue, of_queues.sum_of(tasks)),
            reclaimable=self.reclaimable,
            reclaimable_limits=self.reclaimable_limits,
            job_enqueueable=self.job_enqueueable,
            job_enqueued=lambda job: of_queues.reserve(self._accounts[job.queue], job),
        )
        session.on_events(allocate=self._allocate, deallocate=self._deallocate)

    def shares(self) -> Mapping[str, float]:
        return {name: account.share for name, account in self._accounts.items()}

    def _divide(self, remaining: Amount) -> None:
        unmet = list(self._accounts.values())
        for _ in range(_ROUNDS):
            weights = sum(account.queue.weight for account in unmet)
            if weights == 0:
                return
            more, less, still = nothing(), nothing(), []
            for account in unmet:
                before = account.deserved
                part = resources.times(remaining, account.queue.weight / weights)
                after = resources.plus(before, part)
                after = resources.lowest(after, account.real, unlimited=True)
                after = resources.lowest(after, account.request, unlimited=False)
                after = resources.highest(after, account.guarantee)
                account.deserved = after
                resources.add(more, resources.exceeded(after, before))
                resources.add(less, resources.exceeded(before, after))
                met = resources.less_equal(account.request, after)
                if not met and not _equal(before, after):
                    still.append(account)
            unmet = still
            left = resources.exceeded(resources.plus(remaining, less), more)
            if resources.is_empty(left) or _equal(left, remaining):
                return
            remaining = left

    # --- deciding ------------------------------------------------------------------------------

    def queue_order(self, queue: BatchQueue) -> tuple[int, float]:
        account = self._accounts.get(queue.name)
        return -queue.priority, account.share if account is not None else 0.0

    def overused(self, queue: BatchQueue) -> Limit | None:
        account = self._accounts[queue.name]
        if not resources.less_equal(account.deserved, account.allocated):
            return None
        return Limit(
            plugin=self.name,
            rule=LimitKind.DESERVED,
            subject=queue.name,
            asked=dict(account.deserved),
            used=dict(account.allocated),
            allowed=dict(account.deserved),
        )

    def _may_take(self, queue: BatchQueue, request: Amount) -> Limit | None:
        account = self._accounts[queue.name]
        return of_queues.closed(queue, self.name) or account.beyond_deserved(request, self.name)

    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task]:
        return [task for task, spared in self._judged(tasks) if spared is None]

    def reclaimable_limits(self, reclaimer: Task, tasks: list[Task]) -> list[Protection]:
        return of_queues.protections(self._judged(tasks))

    def _judged(self, tasks: list[Task]) -> Iterator[tuple[Task, Spared | None]]:
        """Each task in turn, after those before it that may go; with the limit that spares it."""
        left: dict[str, Amount] = {}
        for task in tasks:
            account = self._account_of(task)
            rest = left.setdefault(account.queue.name, dict(account.allocated))
            if resources.less_equal(rest, account.deserved):
                allowed = account.deserved
                yield (
                    task,
                    partial(
                        account.protects, LimitKind.AT_DESERVED, allowed, rest, task, self.name
                    ),
                )
            else:
                resources.subtract(rest, task.request)
                yield task, None

    def job_enqueueable(self, job: Job) -> Vote | Limit:
        account = self._accounts[job.queue]
        limit = of_queues.closed(account.queue, self.name)
        if limit is None and job.least is not None:
            limit = account.entry_limit(job.least, self.name)
        return of_queues.vote(limit)

    # --- events --------------------------------------------------------------------------------

    def _account_of(self, task: Task) -> Account:
        return self._accounts[self._session.jobs[task.job].queue]

    def _allocate(self, task: Task) -> None:
        account = self._account_of(task)
        resources.add(account.allocated, task.request)
        _refresh(account)

    def _deallocate(self, task: Task) -> None:
        account = self._account_of(task)
        resources.subtract(account.allocated, task.request)
        _refresh(account)


def _refresh(account: Account) -> None:
    names = resources.names(account.deserved)
    account.share = resources.dominant_share(account.allocated, account.deserved, names)


def _equal(one: Amount, other: Amount) -> bool:
    return all(one.get(n, 0.0) == other.get(n, 0.0) for n in one.keys() | other.keys())
