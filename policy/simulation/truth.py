"""What really happened to the pods of a trace, counted as a simulation's are.

`truth.jsonl` tells when the real scheduler gave pods their nodes and took them away. The book that
a simulation keeps is kept here for what it tells, so that both have the same figures.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from policy.cluster.objects import Node, key_of
from policy.cluster.snapshot import Snapshot
from policy.decision.model import ENGINE_VERSION
from policy.simulation import figures, uses
from policy.simulation.folder import read_truth
from policy.simulation.lives import Lives, Where
from policy.simulation.options import Options, Restart
from policy.simulation.run import FORMAT, Result
from policy.simulation.trace import Trace

NAME: Final = "what happened"
"""Stands where the name of a rule set stands."""

_ENDS: Final = frozenset({"finish", "fail", "kill"})
_OPS: Final = frozenset({"bind", "evict", "resubmit", *_ENDS})


def what_happened(trace: Trace, folder: str | Path, options: Options) -> Result:
    """The figures of what `truth.jsonl` tells. Raises TraceError where there is none.

    Where it tells of no ends, pods end when their work is done. A pod that it does not know, and
    times at which no scheduler was seen, are taken as the trace has them.
    """
    told = [(at, op, key) for at, op, key in read_truth(folder) if op in _OPS]
    tells_ends = any(op in _ENDS for _, op, _ in told)
    length = options.length_ms
    end = trace.end_ms if length is None else trace.start_ms + length
    lives = Lives(trace, Restart.WHOLE, end)
    _count_capacity(lives, trace)
    sequence = count()
    events: list[tuple[int, int, str, str, int]] = []

    def expect(at: int, op: str, key: str, run: int = 0) -> None:
        heapq.heappush(events, (at, next(sequence), op, key, run))

    for task in trace.tasks:
        life = lives.by_key[task.key]
        if not task.running:
            expect(task.arrives_ms, "arrive", task.key)
        elif not tells_ends and task.left_ms is not None:
            expect(trace.start_ms + task.left_ms, "done", task.key, life.run)
        if task.withdrawn_ms is not None:
            expect(task.withdrawn_ms, "withdraw", task.key)
    for at, op, key in told:
        if key in lives.by_key:
            expect(trace.start_ms + at, op, key)
    while events and events[0][0] < end:
        at, _, op, key, run = heapq.heappop(events)
        done = _happens(lives, at, op, key, run)
        if done is not None and not tells_ends:
            expect(done, "done", key, lives.by_key[key].run)
    lives.finish()
    everyone, groups = figures.by_priority(lives)
    return Result(
        rules=NAME,
        rules_digest="",
        trace=trace.name,
        trace_digest=trace.digest,
        seed=0,
        options=replace(options, restart=Restart.WHOLE),
        engine_version=ENGINE_VERSION,
        start_ms=trace.start_ms,
        end_ms=end,
        everyone=everyone,
        by_priority=groups,
        timeline=figures.timeline(lives),
        nominations=0,
        nominations_kept=0,
        nominations_broken=0,
        cycles=0,
        outcomes={},
        trail=lives.trail,
        format=FORMAT,
        use_by_priority=uses.by_priority(lives, None),
    )


def _happens(lives: Lives, at: int, op: str, key: str, run: int) -> int | None:
    """One event; when the work of a pod that starts will be done."""
    life = lives.by_key[key]
    where = life.where
    if (op == "arrive" and where is Where.AHEAD) or (op == "resubmit" and where is Where.AWAY):
        lives.arrived(key, at)
    elif op == "bind" and where is Where.WAITING:
        return lives.started(key, "its node", at)
    elif op == "evict" and where is Where.RUNNING:
        lives.evicted(key, at, preemptor="a scheduler", preemptor_priority=0, pdb_violating=False)
        lives.gone(key, at, returns=True)
    elif (op in _ENDS or (op == "done" and run == life.run)) and where is Where.RUNNING:
        lives.done(key, at)
    elif op in {"withdraw", *_ENDS} and where in {Where.WAITING, Where.AWAY}:
        lives.withdrawn(key, at)
    return None


def _count_capacity(lives: Lives, trace: Trace) -> None:
    """What the nodes have, also those that come, change and go later."""
    nodes = {key_of(o): o for o in trace.objects if isinstance(o, Node)}
    _set_capacity(lives, nodes.values(), trace.start_ms)
    for event in trace.events:
        kind, key, obj = event.change
        if kind == "Node" and event.at_ms < lives.end_ms:
            nodes.pop(key, None)
            if isinstance(obj, Node):
                nodes[key] = obj
            _set_capacity(lives, nodes.values(), event.at_ms)


def _set_capacity(lives: Lives, nodes: Iterable[Node], at_ms: int) -> None:
    snapshot = Snapshot.from_objects(nodes, now_ms=at_ms)
    ids: dict[Any, int] = snapshot.pools.resources.ids
    total = snapshot.allocatable.sum(axis=0)
    for name, series in lives.capacity.items():
        here = int(total[ids[name]]) if name in ids else 0
        series.add(at_ms, here - series.value)
