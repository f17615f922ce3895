"""A day in the life of a followed cluster: the first list, changes, preemptions.

    python -m benchmarks.follow [--nodes 5000] [--seconds 600] [--paced 60]

A server in a process of its own lists full nodes with 30 pods each, then lets 200 changes of pods a
second and 20 preemptions a minute happen: compressed, as fast as the follower takes them, and for
`--paced` seconds as they would happen. Figures are those of the follower's process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.clusters import a_pod, cluster
from policy.cluster import times
from policy.cluster.objects import kind_of
from policy.cluster.snapshot import Snapshot
from policy.live.connection import Connection, place
from policy.live.following import Follower
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.store import Store
from tests.support.api_server import ApiServer, kubeconfig

CHANGES, PREEMPTIONS = 200, 20  # a second, a minute
AT = "2026-11-22T02:41:59Z"


def raw(obj: Any, version: int, uid: str) -> dict[str, Any]:
    """An object as an API server has it."""
    item: dict[str, Any] = msgspec.to_builtins(obj)
    item["kind"] = kind_of(obj)
    item["metadata"] |= {"resourceVersion": str(version), "uid": uid}
    return item


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What is to happen next in the cluster."""

    changes: int
    preemptions: int
    seconds: float = 0.0  #: that it is spread over; 0: as fast as it is taken


class Cluster:
    """A cluster whose scheduler preempts as kube-scheduler 1.35 does, and its API server."""

    def __init__(self, api: ApiServer, nodes: int) -> None:
        objects = list(cluster(nodes=nodes))
        items = [raw(obj, 2, f"u-{number}") for number, obj in enumerate(objects)]
        api.load(items)
        self._api = api
        self._rules = RuleSet.load("kube-1.35", overrides={"candidates": {"minPercentage": 100}})
        self._state = Snapshot.from_objects(objects, now_ms=times.parse(AT))
        self._pods = {key(item): item for item in items if item["kind"] == "Pod"}
        self._keys = sorted(self._pods)
        self._turn = self._preempted = 0
        self.version = 10

    def change(self) -> None:
        """A pod gets a label that it did not have."""
        self._turn += 1
        pod = self._pods.get(self._keys[self._turn * 7919 % len(self._keys)])
        if pod is not None:
            labels = {**(pod["metadata"].get("labels") or {}), "turn": str(self._turn)}
            self._publish("MODIFIED", {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def preempt(self) -> None:
        """One preemption: patches, events, deletions, the preemptor placed."""
        self._preempted += 1
        number = self._preempted
        high = a_pod(
            f"high-{number}",
            namespace="high",
            priority=1_000_000,
            cpu=f"{3000 + 250 * (number % 5)}m",  # more than those before it have left free
            memory="2Gi",
        )
        name = f"high/high-{number}"
        self._state = self._state.apply([("Pod", name, high)])
        decision = decide(self._state, self._rules, name, by_class=True)
        node, victims = decision.node or "", [victim.pod for victim in decision.victims]
        assert victims
        waiting = self._publish("ADDED", raw(high, 0, high.metadata.uid))
        nominated = {**waiting["status"], "nominatedNodeName": node}
        waiting = self._publish("MODIFIED", {**waiting, "status": nominated})
        mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        leaving = []
        for victim in victims:
            pod = self._pods.pop(victim)
            status = {**pod["status"], "conditions": [{**mark, "lastTransitionTime": AT}]}
            leaving.append(self._publish("MODIFIED", {**pod, "status": status}))
        for pod in leaving:
            self._publish("ADDED", event(pod, waiting, node))
            self._publish("DELETED", pod)
        spec = {**waiting["spec"], "nodeName": node}
        status = {**waiting["status"], "phase": "Running", "startTime": AT}
        status.pop("nominatedNodeName")
        self._publish("MODIFIED", {**waiting, "spec": spec, "status": status})
        placed = replace(
            high,
            spec=replace(high.spec, node_name=node),
            status=replace(high.status, phase="Running", start_time=AT),
        )
        gone = [("Pod", victim, None) for victim in victims]
        self._state = self._state.apply([*gone, ("Pod", name, placed)])

    def _publish(self, what: str, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self._api.publish(what, item)
        if item["kind"] == "Pod" and what == "MODIFIED" and key(item) in self._pods:
            self._pods[key(item)] = item
        return item


def server(pipe: Pipe, nodes: int) -> None:
    """Serve the cluster; let each stretch that comes happen in it, and say where it ended."""
    with ApiServer() as api:
        there = Cluster(api, nodes)
        pipe.send(api.url)
        while True:
            stretch = pipe.recv()
            begun, steps = time.monotonic(), max(stretch.changes, stretch.preemptions)
            preempted = 0
            for number in range(1, steps + 1):
                if stretch.changes:
                    there.change()
                if number * stretch.preemptions // steps > preempted:
                    preempted += 1
                    there.preempt()
                due = begun + number * stretch.seconds / steps
                time.sleep(max(0.0, due - time.monotonic()))
            pipe.send(there.version)


def event(victim: dict[str, Any], preemptor: dict[str, Any], node: str) -> dict[str, Any]:
    """The event that a scheduler writes about its victim."""
    meta = victim["metadata"]
    return {
        "kind": "Event",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": f"event-{meta['uid']}",
        },
        "reason": "Preempted",
        "note": f"Preempted by pod {preemptor['metadata']['uid']} on node {node}",
        "regarding": reference(victim),
        "related": reference(preemptor),
        "eventTime": AT,
    }


def reference(pod: dict[str, Any]) -> dict[str, str]:
    meta = pod["metadata"]
    return {"kind": "Pod", **{name: meta[name] for name in ("namespace", "name", "uid")}}


def key(item: dict[str, Any]) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


class Watched:
    """A follower of that cluster, and what is to be seen of it."""

    def __init__(self, follower: Follower, pipe: Pipe, file: Path) -> None:
        self._follower = follower
        self._pipe = pipe
        self._file = file
        self.expected = 0  #: preemptions that have happened

    def through(self, stretch: Stretch) -> dict[str, float]:
        """Let it happen, until all of it is written and every preemption is recorded."""
        size, cpu, begun = _size(self._file), time.process_time(), time.monotonic()
        self._pipe.send(stretch)
        self.expected += stretch.preemptions
        figures, last, lag_ms = self._follower.figures, 1 << 62, 0
        figures.lag_ms = 0
        while figures.kinds.get("Pod", 0) < last or figures.observed < self.expected:
            if self._pipe.poll():
                last = self._pipe.recv()
            lag_ms = max(lag_ms, figures.lag_ms)
            time.sleep(0.02)
        return {
            "bytes": _size(self._file) - size,
            "cpu_s": time.process_time() - cpu,
            "seconds": time.monotonic() - begun,
            "lag_s": lag_ms / 1000,
            "resident_mib": resident_mib(),
        }


def measure(*, nodes: int, seconds: int, paced: int) -> dict[str, float]:
    """The figures of `seconds` of 200 changes a second and 20 preemptions a minute.

    First they are fed as fast as they are taken: changes alone, then preemptions alone, so that
    each is counted for itself. Then both as they would happen, for `paced` seconds: the lag.
    """
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(
        target=server, args=(theirs, nodes), daemon=True
    )
    child.start()
    url = ours.recv()
    changes, preemptions = CHANGES * seconds, max(1, PREEMPTIONS * seconds // 60)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.db"
        with Store.open(str(file)) as store:
            follower = Follower(
                store,
                "bench",
                Connection(place(kubeconfig=kubeconfig(Path(folder), url))),
                actor="bench",
                clock=lambda: time.time_ns() // 1_000_000,
            )
            thread = threading.Thread(target=follower.run, daemon=True)
            begun, cpu = time.monotonic(), time.process_time()
            thread.start()
            while not follower.figures.synced:
                time.sleep(0.1)
            found = {
                "list_s": time.monotonic() - begun,
                "list_cpu_s": time.process_time() - cpu,
                "list_mib": peak_mib(),
            }
            watched = Watched(follower, ours, file)
            first = watched.through(Stretch(changes=changes // 10, preemptions=0))
            rest = watched.through(Stretch(changes=changes - changes // 10, preemptions=0))
            taken = watched.through(Stretch(changes=0, preemptions=preemptions))
            both = Stretch(
                changes=CHANGES * paced,
                preemptions=max(1, PREEMPTIONS * paced // 60),
                seconds=float(paced),
            )
            live = watched.through(both)
            follower.stop()
            thread.join()
            verdicts = Counter(row.verdict for row in store.read.observations("bench"))
        assert {*verdicts} <= {"same", "tie"}, verdicts
    child.terminate()
    return {
        **found,
        "change_ms": 1000 * (first["cpu_s"] + rest["cpu_s"]) / changes,
        "change_bytes": (first["bytes"] + rest["bytes"]) / changes,
        "preemption_ms": 1000 * taken["cpu_s"] / preemptions,
        "preemption_bytes": taken["bytes"] / preemptions,
        "lag_s": live["lag_s"],
        "grown": rest["resident_mib"] / first["resident_mib"],
        "peak_mib": peak_mib(),
    }


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


def _size(file: Path) -> int:
    """Bytes of the database, without what only waits in its log."""
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    return int(pages) * int(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=int, default=600, help="of 200 changes, compressed")
    parser.add_argument("--paced", type=int, default=60, help="seconds of them as they happen")
    given = parser.parse_args()
    found = measure(nodes=given.nodes, seconds=given.seconds, paced=given.paced)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
