"""Nodes on which a task of a role failed, remembered for the other tasks of the role.

Tasks of one role of a job are taken to be alike, so what no node gave to one is not asked for the
next. Tasks without a role are always asked about.

Source: Volcano `pkg/scheduler/util/predicate_helper.go`.
"""

from __future__ import annotations

from policy.batch.plugins.base import go_boolean
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.session import Session
from policy.cluster.tables import Bools

ARGUMENT = "predicateErrorCacheEnable"


def remembers(session: Session, action: str) -> bool:
    return go_boolean(session.arguments_of(action).get(ARGUMENT, "true")) is not False


class RoleErrors:
    """Failed nodes per job and role."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._failed: dict[tuple[str, str], Bools] = {}

    def left(self, task: Task, passing: Bools) -> Bools:
        """The nodes that pass and on which no task of the role failed; the others are kept."""
        if not self._enabled or not task.role:
            return passing
        key = (task.job, task.role)
        known = self._failed.get(key)
        if known is not None:
            passing = passing & ~known
        self._failed[key] = ~passing
        return passing
