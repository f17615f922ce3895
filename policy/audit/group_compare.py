"""What other rules would have decided in the recorded cycles of pod groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.audit.compare import ComparedVictim, Comparison, DecisionResult, change_of
from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import Incomplete, MissingInput
from policy.audit.recorded import Skipped
from policy.audit.replay import Replayer
from policy.cluster import canonical
from policy.decision.groups import GroupOutcome
from policy.groups.decide import decide_group
from policy.preemption.columns import history_key
from policy.preemption.decide import DecisionError
from policy.rules import RuleSet
from policy.store import Store, StoredSession
from policy.store.record.groups import KIND, document_of

PREFIX: Final = "group:"
"""Before the number of a group's cycle, where decisions are named by their numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult(DecisionResult):
    """What a group's cycle came to, without how."""

    bound: tuple[tuple[str, str], ...]  #: (member, node)
    nominated: tuple[tuple[str, str], ...]  #: (member, node)

    @property
    def places(self) -> object:
        return self.bound

    @property
    def promises(self) -> object:
        return self.nominated


@dataclass(frozen=True, slots=True)
class ComparingCycles:
    """Recorded cycles of pod groups under other rules, each on its state of then, with its seed."""

    rules: RuleSet

    def __call__(self, store: Store, ids: Sequence[int]) -> Iterator[Comparison | Skipped]:
        """ids: of the cycles; ascending order within a cluster is cheap."""
        replayer = GroupReplayer(store)
        for number in ids:
            stored = store.read.session(number, kind=KIND)
            try:
                yield _compared(replayer, stored, self.rules)
            except Incomplete as exc:
                yield Skipped(id=f"{PREFIX}{number}", missing=exc.missing, detail=exc.detail)
            except DecisionError as exc:
                missing = (MissingInput.GROUPS,)
                yield Skipped(id=f"{PREFIX}{number}", missing=missing, detail=str(exc))

    def compared(self, replayer: Replayer, ids: Sequence[int]) -> Iterator[Comparison | Skipped]:
        """The same on the store of a replayer; work for `decisions.over`."""
        return self(replayer.store, ids)


def _compared(replayer: GroupReplayer, stored: StoredSession, rules: RuleSet) -> Comparison:
    row = stored.row
    snapshot, _ = replayer.situation(row)
    recorded = document_of(stored)
    known = snapshot.history or {}
    unread = {need for need in rules.history_needs if history_key(*need) not in known}
    if unread:
        detail = f"`{rules.name}` reads figures of the past that the cycle did not read"
        raise Incomplete((MissingInput.HISTORY,), detail)
    decision = decide_group(snapshot, rules, row.subject, seed=row.seed)
    before = _result(recorded)
    after = _result(canonical.parse(decision.canonical.decode()))
    return Comparison(
        id=f"{PREFIX}{row.id}",
        now_ms=row.now_ms,
        preemptor=row.subject,
        priority=recorded["group_priority"],
        change=change_of(before, after),
        before=before,
        after=after,
    )


def _result(document: Mapping[str, Any]) -> GroupResult:
    effects = document["effects"]
    # Of members that preempt for themselves, victims may leave although the group does not start.
    leaves = set(effects["evict"])
    preempting = document["outcome"] == GroupOutcome.PREEMPTING
    return GroupResult(
        outcome=GroupOutcome(document["outcome"]),
        node=None,
        victims=tuple(
            ComparedVictim(
                pod=victim["pod"],
                priority=victim["priority"],
                lost_seconds=0 if victim["already_terminating"] else victim["run_seconds"],
                pdb_violating=victim["pdb_violating"],
            )
            for victim in document["victims"]
            if preempting or victim["pod"] in leaves
        ),
        decided_by="",
        message=document["message"],
        bound=tuple(sorted(effects["bind"].items())),
        nominated=tuple(sorted((pod, node) for pod, node in effects["nominate"].items() if node)),
    )
