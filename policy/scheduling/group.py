"""Decisions that are recorded together: which pods a group holds, and when it is full.

A commit costs as much as several decisions. Who goes through the pods that wait makes up to 64
decisions before it records them, each on the state that the one before leads to, in one
transaction: all of them are kept or none. None is given to anybody before that, so what was seen
is recorded. While one group is committed, which is to wait for the disk, the next one is decided.

A group holds one decision, and is decided when the one before is committed, where it reads what
only the record tells (figures of the past), or where making it again would query extenders again.
After others were faster the groups begin at one decision once more: as much is made in vain as was
recorded meanwhile, not more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from policy.decision.model import Decision
from policy.rules.ruleset import RuleSet
from policy.scheduling.order import waiting
from policy.scheduling.state import Proposal, State

LARGEST: Final = 64
LONGEST_SECONDS: Final = 0.2
"""After so long a group is recorded, however small: those who wait for it see it soon."""


class DecisionGroups:
    """Pods in queue order, decided group by group."""

    def __init__(
        self,
        keys: Sequence[str],
        decide: Callable[[str, State, RuleSet], Proposal[Decision]],
        *,
        rules: Callable[[], RuleSet],
        scheduler: str,
    ) -> None:
        """decide: one pod on a state. rules: what decides now. scheduler: that pods wait for."""
        self._keys = keys
        self._decide = decide
        self._rules_now = rules
        self._scheduler = scheduler
        self._first = 0  # pod of this group
        self._next = 0
        self._room = 1
        self._group: _Group | None = None
        self._failure: Exception | None = None

    @property
    def done(self) -> bool:
        """Is every pod decided, or did the decision of one fail?"""
        return self._next == len(self._keys) or self._failure is not None

    def begin_alone(self) -> bool:
        """Begin a group; does it need all that was decided before in the record?"""
        return self._begin().alone

    def propose(self, state: State) -> Proposal[Decision] | None:
        """The decision of the next pod that waits in the state, None behind the last one.

        After the end of a group that was not recorded, its first one again.
        """
        group = self._begun()
        if group.ended:
            self._next, self._room = self._first, 1
            group = self._begin()
        while self._next < len(self._keys):
            key = self._keys[self._next]
            pod = state.snapshot.pod(key)
            if pod is not None and waiting(pod, scheduler=self._scheduler):
                try:
                    proposal = self._decide(key, state, group.rules)
                except Exception as exc:
                    if not group.size:
                        raise
                    # What was decided before is recorded first.
                    group.failure = exc
                    break
                self._next += 1
                group.size += 1
                return proposal
            self._next += 1
        group.ended = True
        return None

    def more(self, made: Sequence[Proposal[Decision]]) -> bool:
        """May the group grow?"""
        group = self._begun()
        late = time.monotonic() - group.begun > LONGEST_SECONDS
        group.ended = group.alone or late or len(made) >= self._room
        return not group.ended

    def recorded(self) -> None:
        """The group is recorded; what goes wrong with its commit ends the run."""
        self._failure = self._begun().failure
        self._first, self._room = self._next, min(2 * self._room, LARGEST)

    def fail(self) -> None:
        """Raise what went wrong with the pod behind the last one that was decided."""
        if self._failure is not None:
            raise self._failure

    def _begin(self) -> _Group:
        self._group = _Group(rules=self._rules_now(), begun=time.monotonic())
        return self._group

    def _begun(self) -> _Group:
        assert self._group is not None, "a run begins its groups"
        return self._group


@dataclass(slots=True, kw_only=True)
class _Group:
    """What is known of the group that is being decided."""

    rules: RuleSet
    begun: float
    size: int = 0
    ended: bool = False
    failure: Exception | None = None

    @property
    def alone(self) -> bool:
        """One decision, made when those before are committed?"""
        return bool(self.rules.history_needs or self.rules.extenders)
