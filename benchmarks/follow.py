"""A day in the life of a followed cluster: the first list, changes, preemptions.

    python -m benchmarks.follow [--nodes 5000] [--changes 200] [--preemptions 20] [--seconds 600]

A server in a process of its own lists full nodes with 30 pods each, and tells so many changes of
pods a second and so many preemptions a minute, as fast as the follower takes them (`--real-time`:
as fast as they would happen). Printed are CPU seconds and resident memory of the follower, and how
much the database grew per change.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import threading
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.clusters import cluster
from policy.cluster.objects import kind_of
from policy.live.connection import Connection, place
from policy.live.following import Follower
from policy.store import Store
from tests.support.api_server import ApiServer, kubeconfig

AT = "2026-11-22T02:41:59Z"


def raw(obj: Any, version: int, uid: str) -> dict[str, Any]:
    """An object as an API server has it."""
    item: dict[str, Any] = msgspec.to_builtins(obj)
    item["kind"] = kind_of(obj)
    item["metadata"] |= {"resourceVersion": str(version), "uid": uid}
    return item


def server(pipe: Pipe, nodes: int, changes: int, preemptions: int, real_seconds: float) -> None:
    """Serve the cluster; when told to, let things happen in it."""
    objects = list(cluster(nodes=nodes))
    items = [raw(obj, 2, f"u-{number}") for number, obj in enumerate(objects)]
    with ApiServer() as api:
        api.load(items)
        pipe.send(api.url)
        pipe.recv()
        pods = [i for i in items if i["kind"] == "Pod" and i["spec"].get("nodeName")]
        version = 10
        pause = real_seconds / max(changes, 1)
        every = max(1, changes // max(preemptions, 1))
        for number in range(changes):
            version += 1
            pod = pods[number * 7919 % len(pods)]
            labels = {**(pod["metadata"].get("labels") or {}), "turn": str(number)}
            meta = {**pod["metadata"], "labels": labels, "resourceVersion": str(version)}
            api.publish("MODIFIED", {**pod, "metadata": meta})
            if number % every == every - 1:
                version = preempt(api, pods[number * 104729 % len(pods)], number, version)
            if pause:
                time.sleep(pause)
        pipe.send(version)
        pipe.recv()


def preempt(api: ApiServer, victim: dict[str, Any], number: int, version: int) -> int:
    """One preemption, as a scheduler makes it; gives the newest resourceVersion."""
    name, uid, node = f"high-{number}", f"high-{number}", victim["spec"]["nodeName"]
    waiting = {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "high", "uid": uid},
        "spec": {
            "priority": 1_000_000,
            "schedulerName": "default-scheduler",
            "containers": victim["spec"]["containers"],
        },
        "status": {"phase": "Pending"},
    }

    def at(item: dict[str, Any], **status: Any) -> dict[str, Any]:
        nonlocal version
        version += 1
        meta = {**item["metadata"], "resourceVersion": str(version)}
        return {**item, "metadata": meta, "status": {**item["status"], **status}}

    api.publish("ADDED", at(waiting))
    api.publish("MODIFIED", at(waiting, nominatedNodeName=node))
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    marked = at(victim, conditions=[{**mark, "lastTransitionTime": AT}])
    api.publish("MODIFIED", marked)
    version += 1
    event = {
        "kind": "Event",
        "metadata": {"name": name, "namespace": "high", "uid": f"event-{number}"},
        "reason": "Preempted",
        "note": f"Preempted by pod {uid} on node {node}",
        "regarding": reference(victim),
        "related": reference(waiting),
        "eventTime": AT,
    }
    event["metadata"]["resourceVersion"] = str(version)
    api.publish("ADDED", event)
    version += 1
    gone = {**marked, "metadata": {**marked["metadata"], "resourceVersion": str(version)}}
    api.publish("DELETED", gone)
    placed = at({**waiting, "spec": {**waiting["spec"], "nodeName": node}}, phase="Running")
    api.publish("MODIFIED", placed)
    return version


def reference(pod: dict[str, Any]) -> dict[str, str]:
    meta = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": meta.get("namespace", "default"),
        "name": meta["name"],
        "uid": meta["uid"],
    }


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=200, help="a second")
    parser.add_argument("--preemptions", type=int, default=20, help="a minute")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--real-time", action="store_true")
    given = parser.parse_args()
    changes = given.changes * given.seconds
    preemptions = given.preemptions * given.seconds // 60
    ours, theirs = multiprocessing.Pipe()
    real = float(given.seconds) if given.real_time else 0.0
    child = multiprocessing.get_context("spawn").Process(
        target=server, args=(theirs, given.nodes, changes, preemptions, real), daemon=True
    )
    child.start()
    url = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        config = kubeconfig(Path(folder), url)
        file = Path(folder) / "policy.db"
        with Store.open(str(file)) as store:
            follower = Follower(
                store,
                "bench",
                Connection(place(kubeconfig=config)),
                actor="bench",
                clock=lambda: time.time_ns() // 1_000_000,
            )
            thread = threading.Thread(target=follower.run, daemon=True)
            begun, cpu = time.monotonic(), time.process_time()
            thread.start()
            while not follower.figures.synced:
                time.sleep(0.1)
            figures: dict[str, Any] = {
                "nodes": given.nodes,
                "first list, s": round(time.monotonic() - begun, 1),
                "first list, CPU s": round(time.process_time() - cpu, 1),
                "after the first list, MiB": round(memory_mib()),
            }
            size = file.stat().st_size
            begun, cpu, lags = time.monotonic(), time.process_time(), []
            ours.send("go")
            while not ours.poll():
                lags.append(follower.figures.lag_ms)
                time.sleep(0.1)
            last = ours.recv()
            while follower.figures.kinds.get("Pod", 0) < last:
                time.sleep(0.05)
            while follower.figures.observed < preemptions and time.monotonic() - begun < 600:
                time.sleep(0.1)
            spent = time.process_time() - cpu
            figures |= {
                "changes": follower.figures.changes,
                "CPU s": round(spent, 1),
                "changes/CPU s": round(changes / max(spent, 0.001)),
                "seconds": round(time.monotonic() - begun, 1),
                "preemptions observed": follower.figures.observed,
                "of": preemptions,
                "revisions": follower.figures.revisions,
                "longest lag, ms": max(lags, default=0),
                "peak, MiB": round(memory_mib()),
            }
            follower.stop()
            thread.join(30)
        figures["database, bytes a change"] = round((_size(file) - size) / max(changes, 1))
    child.terminate()
    print(json.dumps(figures, indent=2))


def _size(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*"))


if __name__ == "__main__":
    main()
