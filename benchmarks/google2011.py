"""Google's real preemptions as questions to the engine: how often it agrees with Borg, and why not.

    python -m benchmarks.google2011 FOLDER

FOLDER holds the slice of the trace as Kubernetes objects (`cluster.json.gz`, `nodes-fit.json.gz`),
what arrived (`events.jsonl.gz`), what Borg did (`truth.jsonl.gz`) and its preemptions
(`preemptions.jsonl.gz`). The state of all nodes is rebuilt up to the instant before the first
eviction of each preemption; then the engine is asked to place the same pod. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import (
    Affinity,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    key_of,
)
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Code, Decision
from policy.manifests import read, read_dicts, resolve
from policy.preemption.decide import decide
from policy.rules import RuleSet

START_MS = times.from_datetime(datetime(2011, 5, 1, 19, 10, tzinfo=UTC))
"""The trace says May 2011 only; the day and hour are ours."""

RULES = "kube-1.35"
ELSEWHERE = "off-slice"


# --- the trace ---------------------------------------------------------------------------------


def lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rb") as stream:
        for line in stream:
            yield msgspec.json.decode(line)


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """One decision of Borg."""

    at_us: int  #: just before its first eviction
    node: str
    pod: str
    priority: int
    victims: frozenset[str]
    victim_priorities: tuple[int, ...]


def preemptions(folder: Path) -> list[Preemption]:
    found = []
    for line in lines(folder / "preemptions.jsonl.gz"):
        victims = line["victims"]
        found.append(
            Preemption(
                at_us=micros(line["t"]) + min(v["dt_us"] for v in victims),
                node=line["node"],
                pod=line["preemptor"]["pod"],
                priority=line["preemptor"]["priority"],
                victims=frozenset(v["pod"] for v in victims),
                victim_priorities=tuple(sorted(v["priority"] for v in victims)),
            )
        )
    return sorted(found, key=lambda p: p.at_us)


def history(folder: Path) -> list[tuple[int, dict[str, Any]]]:
    """Everything that happened, in order; at one instant arrivals come first."""
    happened = [
        (micros(line["t"]), place, i, line)
        for place, name in enumerate(("events", "truth"))
        for i, line in enumerate(lines(folder / f"{name}.jsonl.gz"))
    ]
    return [(at, line) for at, _, _, line in sorted(happened, key=lambda h: h[:3])]


class Cell:
    """The state of the cell while the trace is walked; collects what changed since last asked."""

    def __init__(self, folder: Path, *, nodes_fit: bool) -> None:
        names = ["cluster.json.gz", *(["nodes-fit.json.gz"] if nodes_fit else [])]
        objects = [o for name in names for o in resolve(read([folder / name]).objects)]
        self.capacity_fixed = nodes_fit
        self.pods: dict[str, Pod] = {}
        for obj in objects:
            if isinstance(obj, Pod):
                self.pods[key_of(obj)] = _started(obj, 0) if obj.spec.node_name else obj
        others = [o for o in objects if not isinstance(o, Pod)]
        self.nodes = {o.metadata.name: o for o in others if isinstance(o, Node)}
        self.template = next(iter(self.nodes.values()))
        self.classes = [o for o in others if not isinstance(o, Node)]
        self.changed: dict[tuple[str, str], Change] = {}

    def snapshot(self) -> Snapshot:
        return Snapshot.from_objects(
            [*self.nodes.values(), *self.classes, *self.pods.values()], now_ms=START_MS
        )

    def happen(self, at_us: int, line: Mapping[str, Any]) -> None:
        operation = line["op"]
        if operation == "create":
            for pod in read_dicts([line["pod"]]).objects:
                assert isinstance(pod, Pod)
                self._put(pod)
        elif operation in ("node-update", "node-add"):
            self._node(line)
        elif operation in ("finish", "kill", "fail"):
            key = line["pod"] if isinstance(line["pod"], str) else _key(line["pod"])
            if self.pods.pop(key, None) is not None:
                self.changed["Pod", key] = ("Pod", key, None)
        else:
            self._move(at_us, operation, line)

    def _move(self, at_us: int, operation: str, line: Mapping[str, Any]) -> None:
        pod = self.pods.get(line["pod"])
        if pod is None:
            return
        if operation == "bind" and line["node"] == ELSEWHERE:
            # It runs outside the slice from here on; an eviction brings its name back.
            self._put(replace(pod, spec=replace(pod.spec, node_name=ELSEWHERE)))
        elif operation == "bind":
            placed = replace(pod, spec=replace(pod.spec, node_name=line["node"]))
            self._put(_started(placed, at_us))
        elif operation == "evict":
            status = replace(pod.status, phase="Pending", start_time=None)
            self._put(replace(pod, spec=replace(pod.spec, node_name=""), status=status))

    def _node(self, line: Mapping[str, Any]) -> None:
        name = line["node"]
        old = self.nodes.get(name)
        if self.capacity_fixed and old is not None:
            return
        size = {"pods": "1000", "cpu": line["cpu"], "memory": line["memory"]}
        base = old or replace(
            self.template,
            metadata=replace(
                self.template.metadata, name=name, labels={"kubernetes.io/hostname": name}
            ),
        )
        node = replace(base, status=replace(base.status, allocatable=size))
        self.nodes[name] = node
        self.changed["Node", name] = ("Node", name, node)

    def _put(self, pod: Pod) -> None:
        key = key_of(pod)
        self.pods[key] = pod
        self.changed["Pod", key] = ("Pod", key, pod)

    def take_changes(self) -> list[Change]:
        found = list(self.changed.values())
        self.changed.clear()
        return found


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _started(pod: Pod, at_us: int) -> Pod:
    start = times.to_text(START_MS + at_us // 1000)
    return replace(pod, status=replace(pod.status, phase="Running", start_time=start))


# --- the question ------------------------------------------------------------------------------


def full_as_it_is(snapshot: Snapshot, cell: Cell) -> list[Change]:
    """Nodes on which requests exceed the capacity, with the requests as their capacity.

    Borg lets a node hold that much; what it would let it hold beyond is not known.
    """
    requests = snapshot.requests()
    ids = snapshot.pools.resources.ids
    sums = np.zeros((len(snapshot.nodes) + 1, requests.shape[1]), dtype=np.int64)
    np.add.at(sums, snapshot.node, requests)
    changes: list[Change] = []
    for i, name in enumerate(snapshot.nodes.names):
        cpu, memory = int(sums[i, ids["cpu"]]), int(sums[i, ids["memory"]])
        node = cell.nodes[name]
        real = snapshot.allocatable[i]
        if cpu > real[ids["cpu"]] or memory > real[ids["memory"]]:
            raised = {
                "pods": "1000",
                "cpu": f"{max(cpu, int(real[ids['cpu']]))}m",
                "memory": str(max(memory, int(real[ids["memory"]]))),
            }
            raised_node = replace(node, status=replace(node.status, allocatable=raised))
            changes.append(("Node", name, raised_node))
    return changes


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the engine said to one question."""

    borg: Preemption
    room: int  #: nodes on which the pod fits without preemption
    best: str | None  #: node of the best candidate; nodes with room are none
    victims: frozenset[str]  #: on the best candidate
    candidates: int
    reason: str  #: why the best candidate is not Borg's node
    on_borgs_node: str  #: how the engine's victims on Borg's node compare with Borg's
    seconds: float


SAME = "it is Borg's node"
TIE = "Borg's node is equally good by every criterion; the name decided"
BEHIND = "Borg's node is a candidate, but worse by `{}`"
ROOM = "on Borg's node the pod fits without eviction"
IMPOSSIBLE = "Borg's node is no candidate: requests exceed its capacity even then"

SAME_VICTIMS = "exactly Borg's victims"
SAME_PRIORITIES = "other pods, of the same number and priorities"
FEWER = "fewer victims"
MORE = "more victims"
OTHERS = "as many, of other priorities"
NONE_NEEDED = "none needed"
NO_CANDIDATE = "no set of victims is enough"


def answer(snapshot: Snapshot, rules: RuleSet, borg: Preemption) -> Answer:
    begun = time.perf_counter()
    decision = decide(snapshot, rules, borg.pod, seed=0, evaluate_all=True)
    seconds = time.perf_counter() - begun
    statuses = decision.trace.filter_statuses.counts()
    found = decision.candidates
    return Answer(
        borg=borg,
        room=sum(nodes for status, nodes in statuses if status.code is Code.SUCCESS),
        best=found.nodes[0] if len(found) else None,
        victims=frozenset(v.pod for v in decision.victims),
        candidates=len(found),
        reason=reason(decision, borg),
        on_borgs_node=compared(snapshot, decision, borg),
        seconds=seconds,
    )


def candidate_on(decision: Decision, node: str) -> int | None:
    nodes = decision.candidates.nodes
    return list(nodes).index(node) if node in nodes else None


def has_room(decision: Decision, node: str) -> bool:
    return decision.trace.filter_statuses[node].code is Code.SUCCESS


def reason(decision: Decision, borg: Preemption) -> str:
    at = candidate_on(decision, borg.node)
    if at is None:
        return ROOM if has_room(decision, borg.node) else IMPOSSIBLE
    if at == 0:
        return SAME
    behind = decision.candidates[at].eliminated_by
    return TIE if behind == "by-name" else BEHIND.format(behind)


def compared(snapshot: Snapshot, decision: Decision, borg: Preemption) -> str:
    on_node = candidate_on(decision, borg.node)
    if on_node is None:
        return NONE_NEEDED if has_room(decision, borg.node) else NO_CANDIDATE
    victims = decision.candidates[on_node].victims
    if frozenset(victims) == borg.victims:
        return SAME_VICTIMS
    priorities = tuple(sorted(_priority(snapshot, pod) for pod in victims))
    if priorities == borg.victim_priorities:
        return SAME_PRIORITIES
    if len(priorities) != len(borg.victims):
        return FEWER if len(priorities) < len(borg.victims) else MORE
    return OTHERS


def _priority(snapshot: Snapshot, key: str) -> int:
    pod = snapshot.pod(key)
    assert pod is not None
    return pod.spec.priority or 0


# --- the walk ----------------------------------------------------------------------------------

VARIANTS = {
    "real capacity": "`allocatable` is the machine's capacity. Most machines hold requests beyond"
    " it, which Borg allows; the engine must first evict the excess.",
    "full as it is": "Where requests exceed the capacity, they are taken as the capacity: Borg"
    " allows what is there, and nothing more.",
    "nodes fit": "`allocatable` is the highest sum of requests that Borg ever put on the machine"
    " in the trace: what it would have allowed is assumed to be what it allowed at some time.",
}


def walk(folder: Path, variant: str) -> list[Answer]:
    rules = RuleSet.load(RULES, {"candidates": {"minPercentage": 100}})
    cell = Cell(folder, nodes_fit=variant == "nodes fit")
    happened = history(folder)
    snapshot = cell.snapshot()
    answers = []
    at = 0
    for borg in preemptions(folder):
        while at < len(happened) and happened[at][0] < borg.at_us:
            cell.happen(*happened[at])
            at += 1
        snapshot = snapshot.apply(cell.take_changes()).at(START_MS + borg.at_us // 1000)
        asked = snapshot
        if variant == "full as it is":
            asked = snapshot.apply(full_as_it_is(snapshot, cell))
        waiting = check(asked, borg)
        asked = asked.apply([("Pod", borg.pod, apart(waiting))])
        answers.append(answer(asked, rules, borg))
    return answers


def apart(pod: Pod) -> Pod:
    """With the trace's constraint that tasks of one job run on different machines."""
    labels = pod.metadata.labels or {}
    if labels.get("different-machines") != "true":
        return pod
    term = PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"job": labels["job"]}),
        topology_key="kubernetes.io/hostname",
    )
    affinity = Affinity(pod_anti_affinity=PodAffinity(required=[term]))
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def check(snapshot: Snapshot, borg: Preemption) -> Pod:
    """The rebuilt state is the one that Borg saw: the pod waits, its victims run on the node."""
    pod = snapshot.pod(borg.pod)
    assert pod is not None, borg
    assert not pod.spec.node_name, borg
    for key in borg.victims:
        victim = snapshot.pod(key)
        assert victim is not None, (borg, key)
        assert victim.spec.node_name == borg.node, (borg, key)
    return pod


# --- the report --------------------------------------------------------------------------------


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = f"| {title} | {' | '.join(columns)} |"
    rule = f"| --- |{' ---: |' * len(columns)}"
    body = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([head, rule, *body])


def report(answers: Mapping[str, Sequence[Answer]]) -> str:
    columns = list(answers)
    size = len(next(iter(answers.values())))

    def counted(name: str) -> list[list[object]]:
        found = {v: Counter(getattr(a, name) for a in answers[v]) for v in columns}
        keys = sorted({k for c in found.values() for k in c}, key=lambda k: (k != SAME, str(k)))
        return [[key, *(found[v][key] for v in columns)] for key in keys]

    def told(name: str, of: Callable[[Answer], float]) -> list[object]:
        return [name, *(f"{of_all:g}" for of_all in (sum(map(of, answers[v])) for v in columns))]

    def median(name: str, of: Callable[[Answer], float]) -> list[object]:
        return [name, *(f"{statistics.median(map(of, answers[v])):.0f}" for v in columns)]

    parts = [
        f"{size} preemptions of Borg, {sum(len(a.borg.victims) for a in answers[columns[0]])}"
        " victims.",
        table(
            "",
            columns,
            [
                told("some node has room without preemption", lambda a: a.room > 0),
                median("nodes with room (median)", lambda a: a.room),
                median("candidates for preemption (median)", lambda a: a.candidates),
                told("best candidate is Borg's node", lambda a: a.best == a.borg.node),
                told(
                    "... with exactly Borg's victims",
                    lambda a: a.best == a.borg.node and a.victims == a.borg.victims,
                ),
                told(
                    "given Borg's node: exactly Borg's victims",
                    lambda a: a.on_borgs_node == SAME_VICTIMS,
                ),
                told(
                    "given Borg's node: Borg's number and priorities of victims",
                    lambda a: a.on_borgs_node in (SAME_VICTIMS, SAME_PRIORITIES),
                ),
                told("victims on the best candidates", lambda a: len(a.victims)),
                median("milliseconds per decision (median)", lambda a: 1000 * a.seconds),
            ],
        ),
        table("why the best candidate is not Borg's node", columns, counted("reason")),
        table("victims on Borg's node", columns, counted("on_borgs_node")),
    ]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with the slice of the trace")
    folder = parser.parse_args().folder
    print(report({variant: walk(folder, variant) for variant in VARIANTS}))


if __name__ == "__main__":
    main()
