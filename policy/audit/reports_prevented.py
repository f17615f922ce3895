"""What each shipped rule would have prevented in a recorded history.

Every rule is evaluated alone, on every pod that was evicted, with the objects and the past of then.
It is evaluated on what happened: after an eviction that had not taken place, history would have
gone on differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from policy.cluster.snapshot import Snapshot
from policy.filters.base import Incoming
from policy.preemption.columns import (
    Lazy,
    preemptor_variables,
    run_seconds,
    victim_variables,
)
from policy.preemption.tally import Tally
from policy.rules.expressions import BoolColumn, Columns
from policy.rules.expressions.variables import LOOK_BACK_SECONDS
from policy.rules.files import shipped_rules
from policy.rules.ruleset import Rule, RuleSet, Verdict
from policy.store.read.evictions import Eviction, EvictionOrder, PastPreemption

_UNKNOWN = ("nominated.", "cluster.", "candidate.", "node.", "victim.pdbMatches")
"""Variables that the evicted pods alone do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreventedRow:
    """What a rule would have denied; None where its condition reads what was not kept."""

    rules: str  #: name of the shipped rule file
    rule: str  #: id of the rule; `maxVictims` for the limit
    evictions: int | None
    preemptions: int | None
    seconds_saved: int | None  #: run time of those pods


@dataclass(frozen=True, slots=True)
class _Asked:
    file: str
    id: str
    rule: Rule | None  #: None: the limit of victims
    limit: int = 0

    @property
    def known(self) -> bool:
        when = None if self.rule is None else self.rule.when
        return when is None or not any(name.startswith(_UNKNOWN) for name in when.variables)


def shipped() -> list[_Asked]:
    """The rules that the shipped rule files add to their base, in the order of their names."""
    found = []
    for name in shipped_rules():
        rules = RuleSet.load(name)
        own = f"rules/{name}/"
        deny = (*rules.eligibility, *rules.victims.eligible, *rules.victims.forbid)
        found += [
            _Asked(name, rule.id, rule)
            for rule in deny
            if rule.verdict is not Verdict.ALLOW and rules.origins[rule.id].startswith(own)
        ]
        if rules.victims.max_victims is not None:
            found.append(_Asked(name, "maxVictims", None, rules.victims.max_victims))
    return found


def look_back_seconds() -> int:
    """How far before a history the shipped rules look."""
    needs = (need for name in shipped_rules() for need in RuleSet.load(name).history_needs)
    return max((window or LOOK_BACK_SECONDS for _, window in needs), default=0)


def prevented(
    preemptions: Iterable[PastPreemption], evictions: Sequence[Eviction]
) -> list[PreventedRow]:
    """A row per shipped rule.

    evictions: those of the preemptions, and the ones before them that the rules look back to.
    """
    asked = shipped()
    saved = [(0, 0, 0)] * len(asked)
    past = _Past(evictions)
    for preemption in preemptions:
        past.go_on_to(preemption)
        scene = _Scene(preemption, past)
        for i, question in enumerate(asked):
            if question.known:
                pods, seconds = scene.denied(question)
                before = saved[i]
                saved[i] = (before[0] + pods, before[1] + (pods > 0), before[2] + seconds)
    return [
        PreventedRow(
            rules=question.file,
            rule=question.id,
            evictions=pods if question.known else None,
            preemptions=hit if question.known else None,
            seconds_saved=seconds if question.known else None,
        )
        for question, (pods, hit, seconds) in zip(asked, saved, strict=True)
    ]


class _Scene:
    """One past preemption: the pods that were evicted, as rows of variables."""

    def __init__(self, preemption: PastPreemption, past: _Past) -> None:
        snapshot = Snapshot.from_objects(preemption.objects, now_ms=preemption.now_ms)
        row, pod = snapshot.row(preemption.preemptor), snapshot.pod(preemption.preemptor)
        assert row is not None
        assert pod is not None
        incoming = Incoming(snapshot=snapshot, pod=pod, key=preemption.preemptor, row=row)
        violating = np.array([preemption.victims.get(k, False) for k in snapshot.keys], np.bool_)
        self._variables = Lazy(
            *victim_variables(snapshot),
            preemptor_variables(incoming),
            providers={"victim.pdbViolating": lambda: BoolColumn(violating)},
        )
        self._victims = np.array([k in preemption.victims for k in snapshot.keys], np.bool_)
        self._seconds = run_seconds(snapshot)
        self._count = preemption.victim_count
        self._past = past

    def denied(self, question: _Asked) -> tuple[int, int]:
        """Evicted pods that would have stayed, and their run time."""
        size = self._victims.size
        held = np.full(size, self._count > question.limit)
        if question.rule is not None:
            when = question.rule.when
            columns = Columns(size, self._variables, self._past)
            held = np.ones(size, np.bool_)
            if when is not None:
                held = when.evaluate(columns).holds(size, question.rule.on_error)
        stays = self._victims & held
        return int(stays.sum()), int(self._seconds[stays].sum())


class _Past:
    """The figures at a moment that moves forward through a recorded history."""

    def __init__(self, evictions: Sequence[Eviction]) -> None:
        self._ahead = sorted(evictions, key=attrgetter("order"))
        self._next = 0
        self._now_ms = 0
        self._tally = Tally()

    def go_on_to(self, preemption: PastPreemption) -> None:
        """The moment before a preemption: everything decided earlier has happened."""
        self._now_ms = preemption.now_ms
        last: EvictionOrder | None = None
        while self._next < len(self._ahead) and self._ahead[self._next].order < preemption.order:
            eviction = self._ahead[self._next]
            self._next += 1
            now_ms = eviction.now_ms
            self._tally.evicted(now_ms=now_ms, pod=eviction.pod, owner=eviction.owner)
            if eviction.order != last:
                self._tally.preempted(now_ms=now_ms, namespace=eviction.preemptor_namespace)
            last = eviction.order

    def figures(self, function: str, window_seconds: int | None) -> Mapping[str, int]:
        return self._tally.figures(function, window_seconds, now_ms=self._now_ms)
