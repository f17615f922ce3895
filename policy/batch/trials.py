"""Why a task did not get a certain node: what each attempt of a session had against it.

A session is held again and watched: whenever an action looks for a place for the task, the node is
judged as things are at that moment. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from policy.batch.functions import Scores
from policy.batch.recording import NodeAnswer
from policy.batch.rules import BatchRules
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import Bools, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Of one resource: what the task asks for, and what the node has."""

    asked: float
    idle: float
    released: float  #: of pods that leave, and not promised yet


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTrial:
    """One attempt to find a place for a task, as far as one node is concerned."""

    action: str
    task: str  #: namespace/name
    job: str  #: of the task
    node: str
    rejected_by: tuple[str, ...]  #: checks that reject the node, as in `Rejection.nodes`
    room: Mapping[str, Room]  #: of the resources that the task asks for
    fits: bool  #: idle room, or room that becomes free, is enough
    best: str  #: the node with the highest score of those that could be used; "" without one
    #: plugin -> score of the node, and of the best one. Scores compare nodes with one another: a
    #: node that could not be used is rated as if it could
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: of preempt and reclaim: what plugins say about evicting pods of the node
    answer: NodeAnswer | None = None

    @property
    def score(self) -> tuple[float, float]:
        """The sums of the node and of the best one."""
        here, there = (sum(pair[i] for pair in self.scores.values()) for i in (0, 1))
        return here, there

    def document(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "task": self.task,
            "job": self.job,
            "node": self.node,
            "rejected_by": list(self.rejected_by),
            "room": {name: asdict(room) for name, room in self.room.items()},
            "fits": self.fits,
            "best": self.best,
            "scores": {
                name: {"node": here, "best": there} for name, (here, there) in self.scores.items()
            },
            "answer": None if self.answer is None else self.answer.document(),
        }


class Search(Protocol):
    """A search for victims: what the plugins say about one node."""

    def at(self, node: int) -> Any: ...


def compared(
    node: int,
    usable: Bools,
    names: Iterable[str],
    score: Callable[[Ints], Mapping[str, Scores]],
) -> tuple[str, dict[str, tuple[float, float]]]:
    """The best of the usable nodes, and the scores of the node beside it, by plugin."""
    among = usable.copy()
    among[node] = True
    nodes = np.flatnonzero(among)
    by_plugin = score(nodes)
    if not usable.any():
        return "", {}
    totals = np.sum(list(by_plugin.values()), axis=0) if by_plugin else np.zeros(nodes.size)
    best = int(np.argmax(np.where(usable[nodes], totals, -np.inf)))
    here = int(np.searchsorted(nodes, node))
    found = {name: (float(scores[here]), float(scores[best])) for name, scores in by_plugin.items()}
    return list(names)[int(nodes[best])], found


def trials(
    snapshot: Snapshot, rules: BatchRules, *, node: str, tasks: Container[str] | None = None
) -> tuple[PlacementTrial, ...]:
    """Every attempt of a session to place one of the tasks (namespace/name), in order.

    tasks: None for all of them. Raises KeyError for a node that is not in the session.
    """
    from policy.batch import run
    from policy.batch.semantics import Semantics
    from policy.batch.volcano import run as volcano
    from policy.batch.volcano.trials import trial_at as of_volcano

    found = []
    if rules.semantics == Semantics.VOLCANO:
        session, _ = volcano.open_session(snapshot, rules)
        at = session.nodes.index[node]
        session.watch = lambda task, search: (
            found.append(of_volcano(session, task, search, at))
            if tasks is None or task.key in tasks
            else None
        )
        volcano.act(session)
    else:
        from policy.batch.kube_batch_trials import trial_at as of_kube_batch

        original, _ = run.open_kube_batch(snapshot, rules)
        at = original.nodes.index[node]
        original.watch = lambda task, search: (
            found.append(of_kube_batch(original, task, search, at))
            if tasks is None or task.key in tasks
            else None
        )
        run.act(original)
    return tuple(found)
