"""Sessions one after the other, until there is nothing left to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy.batch.changes import passed
from policy.batch.result import SessionResult
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One session of several."""

    number: int  #: from 1
    before: Snapshot
    result: SessionResult
    after: Snapshot  #: with the session's changes, and evicted pods still leaving


def until_settled(snapshot: Snapshot, rules: BatchRules, *, limit: int = 100) -> Iterator[Round]:
    """Sessions until one sends nothing and nobody is leaving, at most `limit`.

    Between two sessions leaving pods go and placed pods start; nobody makes new pods in their
    stead. Every round places or removes pods, so it comes to an end.
    """
    for number in range(1, limit + 1):
        result = run_session(snapshot, rules)
        after = snapshot.apply(result.changes)
        yield Round(number=number, before=snapshot, result=result, after=after)
        between = list(passed(after))
        if not between:
            return
        snapshot = after.apply(between)
