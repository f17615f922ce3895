"""capacity: every queue has a part that it deserves, and a limit that it never passes.

With `enableHierarchy` queues form a tree: a limit holds for a queue and for all above it.

Source: Volcano `pkg/scheduler/plugins/capacity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cmp_to_key, partial
from typing import ClassVar

from policy.batch.limits import Limit, LimitKind
from policy.batch.recording import Protection
from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.functions import Vote
from policy.batch.volcano.framework.model import BatchQueue, Job, Task
from policy.batch.volcano.framework.resources import Amount
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins import accounts as of_queues
from policy.batch.volcano.plugins.accounts import Account, Spared
from policy.batch.volcano.plugins.base import Arguments, Plugin
from policy.batch.volcano.plugins.queue_tree import QueueTree
from policy.cluster.requests import PODS


class Capacity(Plugin):
    name = "capacity"
    doc = "Keeps queues below their capability; reclaims what they hold beyond what they deserve."
    arguments: ClassVar = {"ancestorReclaimLevel": int}

    def __init__(self, arguments: Arguments) -> None:
        self._level = max(0, arguments.integer("ancestorReclaimLevel", default=0))

    def open(self, session: Session) -> None:
        self._session = session
        self._tree: QueueTree | None = None
        if self.hierarchical(session):
            self._accounts = of_queues.accounts_of(session, session.queues)
            self._tree = QueueTree(session, self._accounts)
        else:
            queues = {job.queue for job in session.jobs.values()}
            self._accounts = of_queues.accounts_of(session, queues)
            self._open_flat()
            self._level = 0
        for account in self._accounts.values():
            _refresh(account)
        session.figures.queue_share = self.shares
        session.figures.queues_at_open = of_queues.figures(self._accounts)
        session.register(
            self.name,
            queue_order=self._order if self._tree is None else cmp_to_key(self._compare_in_tree),
            allocatable=self.allocatable,
            preemptive=self.preemptive,
            reclaimable=self.reclaimable,
            reclaimable_limits=self.reclaimable_limits,
            job_enqueueable=self.job_enqueueable,
            job_enqueued=self.job_enqueued,
        )
        if self._tree is not None:
            session.register(self.name, victim_queue_order=self._victim_queues)
        session.on_events(allocate=self._allocate, deallocate=self._deallocate)

    def _open_flat(self) -> None:
        session = self._session
        guaranteed = resources.total(q.guarantee for q in session.queues.values())
        free = resources.exceeded(session.nodes.total, guaranteed)
        for account in self._accounts.values():
            most = resources.plus(free, account.guarantee)
            account.real = resources.lowest(most, account.capability, unlimited=True)
            deserved = resources.lowest(account.queue.deserved, account.real, unlimited=True)
            account.deserved = resources.highest(deserved, account.guarantee)

    def shares(self) -> Mapping[str, float]:
        return {name: account.share for name, account in self._accounts.items()}

    # --- orders --------------------------------------------------------------------------------

    def _order(self, queue: BatchQueue) -> tuple[int, float, bool]:
        account = self._accounts.get(queue.name)
        if account is None:
            return -queue.priority, 0.0, False
        return -queue.priority, *_by_share(account)

    def _compare_in_tree(self, left: BatchQueue, right: BatchQueue) -> int:
        assert self._tree is not None
        if left.priority != right.priority:
            return right.priority - left.priority
        if self._tree.broken is not None:
            return 0
        leaves = self._tree.is_leaf(left.name), self._tree.is_leaf(right.name)
        if leaves[0] != leaves[1]:
            return -1 if leaves[0] else 1
        if not leaves[0]:
            return 0
        one, other = self._tree.below_common(left.name, right.name)
        mine, theirs = _by_share(self._accounts[one]), _by_share(self._accounts[other])
        return -1 if mine < theirs else 1 if theirs < mine else 0

    def _victim_queues(self, left: BatchQueue, right: BatchQueue, own: BatchQueue | None) -> int:
        """The queue that is closer to the reclaimer's in the tree goes first."""
        assert self._tree is not None
        if own is None or self._tree.broken is not None:
            return 0
        one = self._tree.common_depth(left.name, own.name)
        other = self._tree.common_depth(right.name, own.name)
        return other - one

    # --- limits --------------------------------------------------------------------------------

    def _closed(self, queue: BatchQueue) -> Limit | None:
        """What stands against the queue whatever is asked for."""
        if self._tree is not None:
            if self._tree.broken is not None:
                return Limit(plugin=self.name, rule=LimitKind.HIERARCHY, subject=self._tree.broken)
            if not self._tree.is_leaf(queue.name):
                return Limit(plugin=self.name, rule=LimitKind.NOT_A_LEAF, subject=queue.name)
        return of_queues.closed(queue, self.name)

    def _up(self, queue: BatchQueue) -> Iterator[Account]:
        """The queue's account, and those of all above it."""
        yield self._accounts[queue.name]
        if self._tree is not None:
            for name in self._tree.above(queue.name):
                yield self._accounts[name]

    def allocatable(self, queue: BatchQueue, task: Task) -> Limit | None:
        limit = self._closed(queue)
        for account in self._up(queue) if limit is None else ():
            limit = account.beyond_capability(task.request, self.name)
            if limit is not None:
                return limit
        return limit

    def preemptive(self, queue: BatchQueue, tasks: Sequence[Task]) -> Limit | None:
        request = of_queues.sum_of(tasks)
        limit = self._closed(queue)
        if limit is None:
            limit = self._accounts[queue.name].beyond_capability(request, self.name)
        if limit is not None:
            return limit
        candidates = [queue.name]
        if self._tree is not None:
            candidates += self._tree.near(queue.name, self._level)
        for name in candidates:
            account = self._accounts[name]
            used = resources.plus(account.allocated, request)
            if resources.partly_within(used, account.deserved, request):
                return None
        account = self._accounts[queue.name]
        return Limit(
            plugin=self.name,
            rule=LimitKind.DESERVED,
            subject=queue.name,
            exceeded=tuple(name for name in request if name != PODS and request[name] > 0),
            asked=request,
            used=dict(account.allocated),
            allowed=dict(account.deserved),
        )

    def job_enqueueable(self, job: Job) -> Vote | Limit:
        queue = self._session.queues[job.queue]
        limit = self._closed(queue)
        if limit is None and job.least is not None:
            for account in self._up(queue):
                limit = account.entry_limit(job.least, self.name)
                if limit is not None:
                    break
        return of_queues.vote(limit)

    def job_enqueued(self, job: Job) -> None:
        for account in self._up(self._session.queues[job.queue]):
            of_queues.reserve(account, job)

    # --- victims -------------------------------------------------------------------------------

    def reclaimable(self, reclaimer: Task, tasks: list[Task]) -> list[Task]:
        return [task for task, spared in self._judged(reclaimer, tasks) if spared is None]

    def reclaimable_limits(self, reclaimer: Task, tasks: list[Task]) -> list[Protection]:
        return of_queues.protections(self._judged(reclaimer, tasks))

    def _judged(self, reclaimer: Task, tasks: list[Task]) -> Iterator[tuple[Task, Spared | None]]:
        """Each task in victim order, after those before it that may go; with what spares it."""
        if self._tree is not None and self._tree.broken is not None:
            broken = Limit(plugin=self.name, rule=LimitKind.HIERARCHY, subject=self._tree.broken)
            yield from ((task, lambda: broken) for task in tasks)
            return
        session = self._session
        left: dict[str, Amount] = {}
        ordered = session.dispatch.in_victim_order(
            tasks, reclaimer, jobs=session.jobs, queues=session.queues
        )
        while ordered:
            task = ordered.pop()
            queue = session.jobs[task.job].queue
            involved = [queue]
            if self._tree is not None:
                involved += self._tree.above(queue)
            for name in involved:
                left.setdefault(name, dict(self._accounts[name].allocated))
            spared = self._spares(reclaimer, task, queue, left)
            if spared is None:
                for name in involved:
                    resources.subtract(left[name], task.request)
            yield task, spared

    def _spares(
        self, reclaimer: Task, task: Task, queue: str, left: Mapping[str, Amount]
    ) -> Spared | None:
        """What spares a task, None where it may go.

        left: queue -> what it holds without the victims so far.
        """
        account, held = self._accounts[queue], left[queue]
        if not _overlap(task.request, reclaimer.request, pods=False):
            rule, allowed = LimitKind.FREES_NOTHING, reclaimer.request
        elif not resources.less_equal(account.guarantee, resources.minus(held, task.request)):
            rule, allowed = LimitKind.GUARANTEE, account.guarantee
        elif not _above_deserved(account, held, task):
            rule, allowed = LimitKind.AT_DESERVED, account.deserved
        elif self._level == 0:
            return None
        else:
            return self._spared_by_ancestor(reclaimer, task, queue, left)
        return partial(account.protects, rule, allowed, held, task, self.name)

    def _spared_by_ancestor(
        self, reclaimer: Task, task: Task, queue: str, left: Mapping[str, Amount]
    ) -> Spared | None:
        assert self._tree is not None
        own = self._session.jobs[reclaimer.job].queue
        theirs, ours = (self._tree.ancestors(q)[: self._level] for q in (queue, own))
        if not _overlap(task.request, self._accounts[queue].deserved, pods=True):
            shared = {a for a in theirs if a in ours and a != self._tree.root}
            if shared and not _overlap(reclaimer.request, self._accounts[own].deserved, pods=False):
                nearest = next(name for name in theirs if name in shared)
                return partial(
                    Limit, plugin=self.name, rule=LimitKind.SHARED_ANCESTOR, subject=nearest
                )
        for depth, name in enumerate(theirs):
            if name == self._tree.root or (depth < len(ours) and ours[depth] == name):
                continue
            above = self._accounts[name]
            if not _above_deserved(above, left[name], task):
                rule, allowed = LimitKind.AT_DESERVED, above.deserved
                return partial(above.protects, rule, allowed, left[name], task, self.name)
        return None

    # --- events --------------------------------------------------------------------------------

    def _allocate(self, task: Task) -> None:
        for account in self._up(self._session.queue_of(self._session.jobs[task.job])):
            resources.add(account.allocated, task.request)
            _refresh(account)

    def _deallocate(self, task: Task) -> None:
        for account in self._up(self._session.queue_of(self._session.jobs[task.job])):
            resources.subtract(account.allocated, task.request)
            _refresh(account)


def _refresh(account: Account) -> None:
    if resources.is_empty(account.deserved):
        account.share = 1.0
        return
    names = resources.names(account.deserved)
    account.share = resources.dominant_share(account.allocated, account.deserved, names)


def _by_share(account: Account) -> tuple[float, bool]:
    """Smaller shares first; of equal ones queues that deserve something."""
    return account.share, resources.is_empty(account.deserved)


def _overlap(one: Amount, other: Amount, *, pods: bool) -> bool:
    """Do both amounts have something of the same resource?"""
    among = set(resources.names(one)) & set(resources.names(other))
    return bool(among if pods else among - {PODS})


def _above_deserved(account: Account, held: Amount, task: Task) -> bool:
    """Does the queue hold more than it deserves of what the task would give back?

    Of resources of which it deserves nothing, everything it holds is more.
    """
    if not _overlap(task.request, account.deserved, pods=True):
        return True
    return resources.exceeds_relevant(held, account.deserved, task.request)
