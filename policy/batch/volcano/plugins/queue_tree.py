"""Queues as a tree: parents, what they can come to, and what they deserve.

Source: Volcano `buildHierarchicalQueueAttrs`, `checkHierarchicalQueue`.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.batch.volcano.framework import resources
from policy.batch.volcano.framework.model import ROOT
from policy.batch.volcano.framework.session import Session
from policy.batch.volcano.plugins.accounts import Account


class QueueTree:
    """The tree, with the accounts of its queues filled in."""

    root = ROOT

    def __init__(self, session: Session, accounts: Mapping[str, Account]) -> None:
        self._accounts = accounts
        self._parents = {
            name: account.queue.parent or ROOT for name, account in accounts.items() if name != ROOT
        }
        self._children: dict[str, list[str]] = {name: [] for name in accounts}
        self._ancestors: dict[str, list[str]] = {}
        #: the queue for which the tree is no tree, or that has jobs and children; None: it is fine
        self.broken = self._build(session)
        if self.broken is None:
            self._add_up()
            self._fill(session)

    def _build(self, session: Session) -> str | None:
        if ROOT not in self._accounts:
            return ROOT
        for name, parent in self._parents.items():
            if parent not in self._children:
                return name
            self._children[parent].append(name)
        for name in self._accounts:
            found = self._ancestors[name] = []
            at = name
            while at != ROOT:
                at = self._parents[at]
                if at in found or at == name:
                    return name
                found.append(at)
        for job in session.jobs.values():
            if self._children[job.queue]:
                return job.queue
        return None

    # --- asking --------------------------------------------------------------------------------

    def is_leaf(self, name: str) -> bool:
        return not self._children[name]

    def ancestors(self, name: str) -> list[str]:
        """From the parent to the root."""
        return self._ancestors[name]

    def above(self, name: str) -> list[str]:
        """As `ancestors`; none where the tree is broken."""
        return [] if self.broken is not None else self._ancestors[name]

    def near(self, name: str, level: int) -> list[str]:
        """Ancestors up to a level, without the root."""
        return [a for a in self._ancestors[name][:level] if a != ROOT]

    def _path(self, name: str) -> list[str]:
        """From the root to the queue."""
        return [*reversed(self._ancestors[name]), name]

    def common_depth(self, one: str, other: str) -> int:
        """Number of queues on both paths from the root."""
        depth = 0
        for left, right in zip(self._path(one), self._path(other), strict=False):
            if left != right:
                break
            depth += 1
        return depth

    def below_common(self, one: str, other: str) -> tuple[str, str]:
        """The ancestors of both, or they themselves, just below their lowest common ancestor."""
        depth = self.common_depth(one, other)
        left, right = self._path(one), self._path(other)
        return left[min(depth, len(left) - 1)], right[min(depth, len(right) - 1)]

    # --- building ------------------------------------------------------------------------------

    def _add_up(self) -> None:
        """What a queue holds, asks for and has reserved counts for all above it."""
        own = {
            name: [dict(a.allocated), dict(a.request), dict(a.inqueue), dict(a.elastic)]
            for name, a in self._accounts.items()
        }
        for name, amounts in own.items():
            for ancestor in self._ancestors[name]:
                a = self._accounts[ancestor]
                sums = (a.allocated, a.request, a.inqueue, a.elastic)
                for total, amount in zip(sums, amounts, strict=True):
                    resources.add(total, amount)

    def _fill(self, session: Session) -> None:
        for account in self._accounts.values():
            account.deserved = resources.highest(account.queue.deserved, account.queue.guarantee)
        root = self._accounts[ROOT]
        children = [self._accounts[name] for name in self._children[ROOT]]
        root.deserved = resources.total(child.deserved for child in children)
        root.guarantee = resources.total(child.guarantee for child in children)
        root.real = resources.lowest(session.nodes.total, root.capability, unlimited=True)
        self._fill_below(ROOT)

    def _fill_below(self, name: str) -> None:
        parent = self._accounts[name]
        children = [self._accounts[child] for child in self._children[name]]
        guaranteed = resources.total(child.guarantee for child in children)
        for child in children:
            set_by_owner = child.queue.capability or {}
            for resource, limit in parent.capability.items():
                if set_by_owner.get(resource, 0.0) <= 0:
                    child.capability[resource] = limit
            free = resources.exceeded(parent.real, guaranteed)
            most = resources.plus(free, child.guarantee)
            child.real = resources.lowest(most, child.capability, unlimited=True)
            self._fill_below(child.queue.name)
