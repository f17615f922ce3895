"""What a scheduler's cache may have held when it decided, where no state of the API server fits.

A scheduler counts what it does itself at once: the pods that it has bound or nominated. All else
comes to it by one watch for each kind, and these need not be equally far. So a view is a state
together with what was known earlier than there, and what later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from policy.audit.past import Damaged
from policy.cluster.digest import Change
from policy.cluster.objects import Pod, key_of
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import START
from policy.observing.model import nominated_to
from policy.store import NotFound, StoreError, Unavailable

LAG_REVISIONS: Final = 8
"""How many revisions earlier and later a scheduler's cache may have stood."""

_STARTING_REVISIONS: Final = 2
"""How long the news that a pod runs may take to reach it."""

_PLACED: Final = 24
_MIXED: Final = 40
"""How many views are tried: with what it placed alone, and with other budgets or starts, too."""

_BUDGETS: Final = "PodDisruptionBudget"

StateAt = Callable[[int], Snapshot]
"""The state at a revision. Raises NotFound, Damaged, StoreError."""

Placed = Mapping[str, tuple[str, str]]
"""Namespace/name of a pod -> the nodes that it is bound to and nominated to, each "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A state, and what a scheduler's cache is supposed to have held otherwise."""

    revision: int
    placed: Placed = field(default_factory=dict)  #: what it had done before it was to be seen
    budgets: int | None = None  #: the revision whose disruption budgets it had; None: of this one
    starting: tuple[str, ...] = ()  #: pods of which it did not know that they run

    def of(self, states: StateAt) -> Snapshot:
        """The state as it is supposed. Raises NotFound, Damaged, StoreError."""
        snapshot = states(self.revision)
        changed: dict[str, Pod] = {}
        for key, (node, nominated) in self.placed.items():
            pod = snapshot.pod(key)
            if pod is not None:
                spec = msgspec.structs.replace(pod.spec, node_name=node)
                status = msgspec.structs.replace(pod.status, nominated_node_name=nominated)
                changed[key] = msgspec.structs.replace(pod, spec=spec, status=status)
        for key in self.starting:
            pod = changed.get(key) or snapshot.pod(key)
            if pod is not None:
                status = msgspec.structs.replace(pod.status, start_time="")
                changed[key] = msgspec.structs.replace(pod, status=status)
        changes: list[Change] = [("Pod", key, pod) for key, pod in changed.items()]
        if self.budgets is not None:
            changes += _difference(snapshot, states(self.budgets))
        return snapshot.apply(changes) if changes else snapshot

    def document(self) -> dict[str, Any]:
        """As it is stored, without the revision."""
        found: dict[str, Any] = {}
        if self.placed:
            found["placed"] = {key: list(nodes) for key, nodes in self.placed.items()}
        if self.budgets is not None:
            found["budgets"] = self.budgets
        if self.starting:
            found["starting"] = list(self.starting)
        return found

    @classmethod
    def stored(cls, revision: int, document: Mapping[str, Any]) -> View:
        """What `document` was made of."""
        placed = dict(document.get("placed") or {})
        return cls(
            revision=revision,
            placed={
                key: (str(bound), str(nominated)) for key, (bound, nominated) in placed.items()
            },
            budgets=document.get("budgets"),
            starting=tuple(document.get("starting") or ()),
        )

    def __str__(self) -> str:
        said = f"revision {self.revision}"
        if self.placed:
            said += f", where the scheduler had placed {', '.join(sorted(self.placed))} already"
        if self.budgets is not None:
            said += f", with the disruption budgets of revision {self.budgets}"
        if self.starting:
            said += f", before it knew that {', '.join(self.starting)} had started"
        return said


def views(base: int, last: int | None, preemptor: str, states: StateAt) -> Iterator[View]:
    """What may have been the case around a preemption, the likelier first.

    base: the state before its first effect; last: the newest one with an effect of it.
    """
    yield from _nearby(base, last)
    # However late its last effect was: what had been placed before the first shows soon after it.
    latest = min(max(base, last or base), base + LAG_REVISIONS) + LAG_REVISIONS
    earlier = range(base, max(0, base - LAG_REVISIONS - 1), -1)
    yield from islice(
        (
            View(revision=revision, placed=placed)
            for revision in earlier
            for placed in _placed(revision, latest, preemptor, states)
        ),
        _PLACED,
    )
    yield from islice(_mixed(base, latest, preemptor, states), _MIXED)


def _nearby(base: int, last: int | None) -> Iterator[View]:
    for distance in range(1, LAG_REVISIONS + 1):
        if base - distance >= 1:
            yield View(revision=base - distance)
        # Later than its own last effect its cache did not decide.
        if last is not None and base + distance < last:
            yield View(revision=base + distance)


def _mixed(base: int, latest: int, preemptor: str, states: StateAt) -> Iterator[View]:
    """Those in which a watch other than that of the pods, or the news of a start, was late."""
    budgets = [None, *_other_budgets(base, latest, states)]
    late = _starting(base, states)
    for placed in ({}, *_placed(base, latest, preemptor, states)):
        for of in budgets:
            for starting in ((), late) if late else ((),):
                if of is not None or starting:
                    yield View(revision=base, placed=placed, budgets=of, starting=starting)


def _placed(revision: int, latest: int, preemptor: str, states: StateAt) -> Iterator[Placed]:
    """What a scheduler did that was to be seen later: the first of it, the first two..."""
    before = _state(revision, states)
    if before is None:
        return
    waiting = [
        pod
        for row in np.flatnonzero(before.node < 0).tolist()
        if (pod := before.pods[row]) is not None and before.keys[row] != preemptor
    ]
    placed: dict[str, tuple[str, str]] = {}
    for later in range(revision + 1, latest + 1):
        after = _state(later, states)
        if after is None:
            return
        known = len(placed)
        for pod in waiting:
            key = key_of(pod)
            then = after.pod(key)
            if key in placed or then is None or then.metadata.uid != pod.metadata.uid:
                continue
            if _nodes(then) not in (_nodes(pod), ("", "")):
                placed[key] = _nodes(then)
        if len(placed) > known:
            yield dict(placed)


def _nodes(pod: Pod) -> tuple[str, str]:
    return pod.spec.node_name, nominated_to(pod)


def _other_budgets(base: int, latest: int, states: StateAt) -> list[int]:
    """Revisions nearby whose disruption budgets differ, each the nearest with its own."""
    state = _state(base, states)
    found: list[int] = []
    if state is None:
        return found
    seen = [state.others.get(_BUDGETS, {})]
    for distance in range(1, LAG_REVISIONS + 1):
        for revision in (base - distance, base + distance):
            other = _state(revision, states) if 1 <= revision <= latest else None
            if other is None or (budgets := other.others.get(_BUDGETS, {})) in seen:
                continue
            seen.append(budgets)
            found.append(revision)
    return found


def _starting(revision: int, states: StateAt) -> tuple[str, ...]:
    """Pods that started only just now."""
    now, before = _state(revision, states), _state(revision - _STARTING_REVISIONS, states)
    if now is None or before is None:
        return ()
    found = []
    for row in _started(now, before):
        pod, then = now.pods[row], before.pod(now.keys[row])
        if pod is not None and pod.status.start_time and not (then and then.status.start_time):
            found.append(now.keys[row])
    return tuple(sorted(found))


def _started(now: Snapshot, before: Snapshot) -> list[int]:
    """Rows of pods that may have another start than before."""
    known = before.keys.size
    if known > now.keys.size or not np.array_equal(now.keys[:known], before.keys):
        return list(range(now.keys.size))  # numbered anew in between
    changed = np.flatnonzero(now.column(START)[:known] != before.column(START))
    return [*changed.tolist(), *range(known, now.keys.size)]


def _difference(snapshot: Snapshot, other: Snapshot) -> list[Change]:
    """What makes the disruption budgets of one state those of another."""
    ours, theirs = snapshot.others.get(_BUDGETS, {}), other.others.get(_BUDGETS, {})
    changes: list[Change] = [(_BUDGETS, key, None) for key in ours if key not in theirs]
    changes += [(_BUDGETS, key, one) for key, one in theirs.items() if ours.get(key) != one]
    return changes


def _state(revision: int, states: StateAt) -> Snapshot | None:
    if revision < 1:
        return None
    try:
        return states(revision)
    except Unavailable:
        raise  # it says nothing about the state
    except (NotFound, Damaged, StoreError):
        return None
