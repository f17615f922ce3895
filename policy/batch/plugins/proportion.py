"""proportion: every queue deserves a part of the cluster by its weight, up to what it asks for.

Source: kube-batch `plugins/proportion`. The sums are float64 and are built up in the original's
order (queues by name), because shares are compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policy.batch.figures import QueueFigures
from policy.batch.limits import Limit, LimitKind
from policy.batch.model import HOLDING, BatchQueue, Task, TaskStatus
from policy.batch.nodes import Crash, CrashKind
from policy.batch.plugins.base import Plugin
from policy.batch.recording import Protection
from policy.batch.resources import Resource, difference, minimum, share
from policy.batch.views import PluginView
from policy.cluster.tables import Bools


@dataclass(slots=True)
class _Account:
    """What a queue has, wants and deserves."""

    queue: BatchQueue
    allocated: Resource = field(default_factory=Resource)
    request: Resource = field(default_factory=Resource)
    deserved: Resource = field(default_factory=Resource)
    share: float = 0.0

    def refresh(self) -> None:
        shares = (
            share(self.allocated.get(name), self.deserved.get(name))
            for name in self.deserved.names()
        )
        self.share = max(0.0, *shares)


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is said of a task that another queue wants to see gone."""

    task: Task
    account: _Account
    held: Resource  #: by its queue, while the task is still there
    goes: bool
    overdrawn: bool = False  #: it asks for more than its queue holds

    def limit(self, plugin: str) -> Limit:
        asked, deserved = self.task.request.amounts(), self.account.deserved.amounts()
        used = self.held.amounts()
        return Limit(
            plugin=plugin,
            rule=LimitKind.BELOW_DESERVED,
            subject=self.account.queue.name,
            exceeded=tuple(
                name
                for name, amount in asked.items()
                if used.get(name, 0.0) - amount < deserved.get(name, 0.0)
            ),
            asked=asked,
            used=used,
            allowed=deserved,
        )


class Proportion(Plugin):
    name = "proportion"
    doc = "Gives queues parts of the cluster by weight; reclaims from queues above their part."

    def open(self, session: PluginView) -> None:
        self._session = session
        self._accounts = self._open_accounts()
        self._divide(session.nodes.total.copy())
        session.figures.queue_share = self.shares
        session.figures.queues_at_open = {
            name: QueueFigures(
                weight=account.queue.weight,
                share=account.share,
                deserved=account.deserved.copy(),
                allocated=account.allocated.copy(),
                request=account.request.copy(),
            )
            for name, account in self._accounts.items()
        }
        session.register(
            self.name,
            queue_order=self.queue_order,
            overused=self.overused,
            reclaimable=self.reclaimable,
            reclaimable_jobs=self.reclaimable_jobs,
            reclaimable_limits=self.reclaimable_limits,
        )
        session.on_events(allocate=self._allocate, deallocate=self._deallocate)

    def shares(self) -> Mapping[str, float]:
        return {name: account.share for name, account in self._accounts.items()}

    # --- dividing ------------------------------------------------------------------------------

    def _open_accounts(self) -> dict[str, _Account]:
        """One account per queue that has a job in the session, in order of name."""
        accounts: dict[str, _Account] = {}
        holding = self._session.requests_of(HOLDING)
        pending = self._session.requests_of({TaskStatus.PENDING})
        for job in self._session.jobs.values():
            queue = self._session.queue_of(job)
            account = accounts.get(queue.name)
            if account is None:
                account = accounts[queue.name] = _Account(queue)
            account.allocated.add(holding[job.uid])
            account.request.add(holding[job.uid]).add(pending[job.uid])
        return dict(sorted(accounts.items()))

    def _divide(self, remaining: Resource) -> None:
        open_accounts = list(self._accounts.values())
        # Every round satisfies a queue or hands out what is left, so there are hardly more rounds
        # than queues; only with negative weights could it go on for ever.
        for _ in range(2 * len(open_accounts) + 2):
            weights = sum(a.queue.weight for a in open_accounts)
            if weights == 0:
                return
            more, less = Resource(), Resource()
            unmet = []
            for account in open_accounts:
                before = account.deserved.copy()
                account.deserved.add(remaining.times(account.queue.weight / weights))
                if account.request.less(account.deserved):
                    account.deserved = minimum(account.deserved, account.request)
                else:
                    unmet.append(account)
                account.refresh()
                up, down = difference(account.deserved, before)
                more.add(up)
                less.add(down)
            open_accounts = unmet
            if not remaining.sub(more):
                self._crash("")
            remaining.add(less)
            if remaining.is_empty:
                return
        self._session.nodes.crashes.append(Crash(kind=CrashKind.NO_END, subject=""))

    # --- deciding ------------------------------------------------------------------------------

    def queue_order(self, queue: BatchQueue) -> float:
        return self._accounts[queue.name].share

    def overused(self, queue: BatchQueue) -> bool:
        account = self._accounts[queue.name]
        return account.deserved.less_equal(account.allocated)

    def reclaimable(self, reclaimer: Task, tasks: Sequence[Task]) -> list[Task]:
        victims = []
        for judged in self._judged(tasks):
            if judged.overdrawn:
                self._crash(judged.account.queue.name)
            if judged.goes:
                victims.append(judged.task)
        return victims

    def reclaimable_limits(self, reclaimer: Task, tasks: Sequence[Task]) -> list[Protection]:
        return [
            Protection(task=judged.task.key, limit=judged.limit(self.name))
            for judged in self._judged(tasks)
            if not judged.goes
        ]

    def _judged(self, tasks: Sequence[Task]) -> Iterator[_Judged]:
        """Each task in turn, after those before it have left their queues."""
        left: dict[str, Resource] = {}
        for task in tasks:
            account = self._account_of(task)
            rest = left.get(account.queue.name)
            if rest is None:
                rest = left[account.queue.name] = account.allocated.copy()
            before = rest.copy()
            if rest.less(task.request):
                yield _Judged(task, account, before, goes=False)
                continue
            overdrawn = not rest.sub(task.request)
            goes = account.deserved.less_equal(rest)
            yield _Judged(task, account, before, goes=goes, overdrawn=overdrawn)

    def reclaimable_jobs(self, reclaimer: Task) -> Bools:
        # What a queue keeps without one of its tasks is never more than what it has.
        above = np.zeros(len(self._session.queues), dtype=np.bool_)
        for account in self._accounts.values():
            above[account.queue.index] = account.deserved.less_equal(account.allocated)
        return np.asarray(above[self._session.job_queue])

    # --- events --------------------------------------------------------------------------------

    def _account_of(self, task: Task) -> _Account:
        return self._accounts[self._session.jobs[task.job].queue]

    def _allocate(self, task: Task) -> None:
        account = self._account_of(task)
        account.allocated.add(task.request)
        account.refresh()

    def _deallocate(self, task: Task) -> None:
        account = self._account_of(task)
        if not account.allocated.sub(task.request):
            self._crash(account.queue.name)
        account.refresh()

    def _crash(self, queue: str) -> None:
        self._session.nodes.crashes.append(
            Crash(kind=CrashKind.SUBTRACTION, subject=queue, of="proportion")
        )
