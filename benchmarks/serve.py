"""Schedulers that call the extender: latency, what is in the record, CPU and memory of the service.

    python -m benchmarks.serve [--rate 200] [--seconds 60] [--candidates 100] [--form full|meta]
                               [--mode shadow|enforce] [--postgres] [--nodes 1000]
                               [--rules kube-1.36] [--missing preemptors|pods] [--streams 0]
    python -m benchmarks.serve --all [--seconds 10]    both forms on both databases, with marks
    python -m benchmarks.serve --start                 from the start of a process to its answers

The service runs in a process of its own, with its defaults. Calls arrive at fixed instants, whether
or not those before are answered, and a latency begins at the instant at which the call was due: a
service that falls behind cannot hide it. What is sent is encoded beforehand, and how late the
callers themselves are is part of the figures. Every call is of another pod, and candidates have the
victims that make room for it, beside pods that are nominated there; in enforce mode those that are
named leave, as in a cluster that obeys. No follower runs, though: in the state victims stay on
their way out, and pods that preempt stay nominated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.clusters import a_pod, cluster
from benchmarks.offers import Offers, offers_of
from policy.cluster import collector
from policy.cluster.objects import ClusterObject, Namespace, ObjectMeta, Pod
from policy.rules import RuleSet
from policy.server.extender.spool import Spool
from policy.store import Store

_CONNECTIONS: Final = 16
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def objects_of(*, nodes: int, calls: int) -> list[ClusterObject]:
    """Full nodes, and a waiting pod for every call, with uids and fields of real ones; namespaces.

    A pod of a call needs the room of one to three that are there.
    """
    found = [*cluster(nodes=nodes)]
    for i in range(calls):
        cpu, memory = f"{500 + 500 * (i % 3)}m", f"{2048 + 1024 * (i % 3)}Mi"
        found.append(
            a_pod(
                f"urgent-{i:05d}",
                namespace="urgent",
                priority=10_000,
                cpu=cpu,
                memory=memory,
            )
        )
    names = {obj.metadata.namespace for obj in found if isinstance(obj, Pod)}
    namespaces = [Namespace(metadata=ObjectMeta(name=name)) for name in sorted(names)]
    return [*namespaces, *(_with_uid(obj) for obj in found)]


def _with_uid(obj: ClusterObject) -> ClusterObject:
    if not isinstance(obj, Pod):
        return obj
    uid = f"{obj.metadata.namespace}-{obj.metadata.name}".ljust(36, "0")
    notes = {"example.com/note": "n" * 900}  # kube-scheduler sends pods of 1.7 kB and more
    meta = msgspec.structs.replace(obj.metadata, uid=uid, annotations=notes)
    return msgspec.structs.replace(obj, metadata=meta)


@dataclass(slots=True)
class Caller:
    """Open connections, and what came of the calls over them."""

    port: int
    seconds: list[float] = field(default_factory=list)
    #: seconds after its instant that a call was made
    late: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(
        default_factory=asyncio.Queue
    )

    async def open(self) -> None:
        for _ in range(_CONNECTIONS):
            self.free.put_nowait(await asyncio.open_connection("127.0.0.1", self.port))

    async def call(self, body: bytes, due: float) -> bytes:
        self.late.append(time.monotonic() - due)
        pair = await self.free.get()
        reader, writer = pair
        writer.write(
            b"POST /extender/preempt HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        answer = await reader.readexactly(size)
        self.seconds.append(time.monotonic() - due)
        status = int(head.split(b" ", 2)[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.free.put_nowait(pair)
        return answer


async def load(
    port: int, offers: Offers, preemptors: list[Pod], *, rate: float, watch: Watched, streams: int
) -> Caller:
    """Send a call for every preemptor at its instant, while so many streams of events are open."""
    readers = [asyncio.create_task(_follow(port)) for _ in range(streams)]
    try:
        caller = await _load(port, offers, preemptors, rate=rate, watch=watch)
        for reader in readers:
            if reader.done():
                reader.result()  # it raises why it has ended
        return caller
    finally:
        for reader in readers:
            reader.cancel()


async def _follow(port: int) -> None:
    """Read a stream of events until it is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    while await reader.read(1 << 16):
        pass
    raise ConnectionError("a stream of events has ended")


async def _load(
    port: int, offers: Offers, preemptors: list[Pod], *, rate: float, watch: Watched
) -> Caller:
    caller = Caller(port)
    await caller.open()
    offers.prepare(preemptors)
    encoded = [msgspec.json.encode(preemptor) for preemptor in preemptors]
    # The callers' own collector would walk the cluster, and they would be late.
    collector.freeze()
    begun = time.monotonic() + 0.1
    tasks = []

    async def one(number: int, due: float) -> None:
        pod = preemptors[number]
        offers.answered(pod, await caller.call(offers.body(pod, encoded[number]), due))

    for number in range(len(preemptors)):
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        tasks.append(asyncio.create_task(one(number, due)))
        if number == len(encoded) // 10:
            watch.first_mib = watch.resident_mib()
    await asyncio.gather(*tasks)
    return caller


@dataclass(slots=True)
class Watched:
    """The processes of the service together, seen from outside: the one that is called, the one
    that decides, and the one that records."""

    pid: int
    first_mib: float = 0.0

    def resident_mib(self) -> float:
        lines = [line for pid in self._pids() for line in _proc(pid, "status").splitlines()]
        return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

    def cpu_seconds(self) -> float:
        stats = [_proc(pid, "stat").rpartition(")")[2].split() for pid in self._pids()]
        return sum(int(parts[11]) + int(parts[12]) for parts in stats) / _TICKS

    def _pids(self) -> list[int]:
        from tests.support.serving import children

        found = [self.pid]
        for pid in found:  # which grows meanwhile
            found += children(pid)
        return found


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def fill(url: str, objects: list[ClusterObject], *, rules: str = "kube-1.36") -> None:
    """A database with the cluster, and environment `prod`. rules: a name or a file."""
    with Store.open(url) as store:
        store.record.import_objects("default", objects, at_ms=1, source="benchmark")
        store.record.create_environment("prod", "default", at_ms=1, actor="benchmark")
        store.record.activate(
            "prod",
            rules=RuleSet.load(rules),
            reason="benchmark",
            source=rules,
            at_ms=1,
            actor="benchmark",
        )


def starting(*, nodes: int) -> dict[str, float]:
    """A service on an existing database of nodes x 30 pods: seconds and CPU until it answers."""
    from tests.support.serving import serve

    objects = objects_of(nodes=nodes, calls=1)
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "policy.db")
        fill(url, objects)
        offers = offers_of(objects, form="full", candidates=100)
        (pod,) = (o for o in objects if isinstance(o, Pod) and not o.spec.node_name)
        begun = time.monotonic()
        running = serve(url, Path(folder), "--deadline", "60")
        try:
            watch = Watched(running.process.pid)
            listens = time.monotonic() - begun, watch.cpu_seconds()
            while running.get("/readyz").status_code != 200:
                time.sleep(0.02)
            ready = time.monotonic() - begun, watch.cpu_seconds()
            running.preempt(offers.body(pod, msgspec.json.encode(pod)))
            answered = time.monotonic() - begun, watch.cpu_seconds()
        finally:
            running.stop()
    return {
        "listens, s": round(listens[0], 2),
        "listens, CPU s": round(listens[1], 2),
        "ready, s": round(ready[0], 2),
        "ready, CPU s": round(ready[1], 2),
        "first answer, s": round(answered[0], 2),
        "first answer, CPU s": round(answered[1], 2),
    }


@contextmanager
def database(*, postgres: bool) -> Iterator[str]:
    """The URL of an empty database."""
    from benchmarks import postgres as server

    with ExitStack() as stack:
        if postgres:
            yield stack.enter_context(server.database())
        else:
            yield stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"


MISSING: Final = ("preemptors", "pods")
"""What a state may not have: the pods that ask, as where a follower is a moment behind, or all."""

COMBINATIONS: Final = tuple(
    (form, postgres) for postgres in (False, True) for form in ("meta", "full")
)
"""Form of the calls, and the kind of database: what there are marks for."""


def marked(form: str, *, postgres: bool, seconds: int) -> tuple[float, float, float, float]:
    """Of 200 calls a second with 100 candidates, in enforce mode:

    the 99th percentile of latencies in ms, calls that are not in the record, CPU of a call in ms,
    and memory at the end as a multiple of that after a tenth.
    """
    with database(postgres=postgres) as url:
        found = measure(
            url=url,
            form=form,
            mode="enforce",
            rate=200,
            seconds=seconds,
            candidates=100,
            nodes=1000,
        )
    return (
        found["p99, ms"],
        found["calls"] - found["in the record"],
        found["CPU of a call, ms"],
        found["MiB at the end"] / max(1, found["MiB after a tenth"]),
    )


def measure(
    *,
    url: str,
    form: str,
    mode: str,
    rate: int,
    seconds: int,
    candidates: int,
    nodes: int,
    rules: str = "kube-1.36",
    missing: str = "",
    streams: int = 0,
) -> dict[str, Any]:
    """Latencies in ms, CPU of a call in ms, resident memory in MiB, and how many calls are kept.

    missing: of `MISSING`, what the state is without; "" for nothing. streams: of events, open
    meanwhile.
    """
    from tests.support.serving import serve

    calls = rate * seconds
    objects = objects_of(nodes=nodes, calls=calls)
    waiting = [obj for obj in objects if isinstance(obj, Pod) and not obj.spec.node_name]
    pods = [obj for obj in objects if isinstance(obj, Pod)]
    left_out = set(map(id, {"": [], "preemptors": waiting, "pods": pods}[missing]))
    fill(url, [obj for obj in objects if id(obj) not in left_out], rules=rules)
    offers = offers_of(objects, form=form, candidates=candidates)
    body = offers.body(waiting[0], msgspec.json.encode(waiting[0]))
    with tempfile.TemporaryDirectory() as folder:
        running = serve(url, Path(folder), "--extender-mode", mode)
        try:
            running.ready()
            watch = Watched(running.process.pid)
            cpu = watch.cpu_seconds()
            port = int(running.url.rpartition(":")[2])
            calling = load(port, offers, waiting, rate=rate, watch=watch, streams=streams)
            caller = asyncio.run(calling)
            cpu = watch.cpu_seconds() - cpu
            last = watch.resident_mib()
        finally:
            running.stop()
        spooled = Spool(Path(folder) / "policy-spool").depth()
    with Store.open(url) as store:
        with store.sql(
            "SELECT count(*), count(CASE WHEN failure <> '' THEN 1 END) FROM extender_calls",
            trust_connection=True,
        ) as found:
            ((kept, failed),) = found
        with store.sql(
            "SELECT outcome, count(*) FROM v_extender_calls GROUP BY outcome", trust_connection=True
        ) as found:
            outcomes = {str(outcome): number for outcome, number in found}
    taken = sorted(caller.seconds)
    return {
        "form": form,
        "mode": mode,
        "store": "postgres" if url.startswith("postgres") else "sqlite",
        "calls": calls,
        "body, kB": round(len(body) / 1000, 1),
        "p50, ms": round(taken[len(taken) // 2] * 1000, 1),
        "p99, ms": round(taken[len(taken) * 99 // 100] * 1000, 1),
        "longest, ms": round(taken[-1] * 1000, 1),
        "callers late, p99, ms": round(sorted(caller.late)[len(taken) * 99 // 100] * 1000, 1),
        "CPU of a call, ms": round(cpu * 1000 / calls, 2),
        "statuses": caller.statuses,
        "outcomes": outcomes,
        "in the record": kept,
        "answered by --on-failure": failed + spooled,
        "MiB after a tenth": round(watch.first_mib),
        "MiB at the end": round(last),
    }


def _print_all(seconds: int) -> None:
    from benchmarks.figures import SERVE_FIGURES
    from benchmarks.page import reached, shown

    figures = iter(SERVE_FIGURES)
    for form, postgres in COMBINATIONS:
        for value in marked(form, postgres=postgres, seconds=seconds):
            figure = next(figures)
            print(
                f"{figure.what:58} {shown(value, figure.unit):>12}  {reached(figure, value)}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=int, default=200, help="calls a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--form", choices=("full", "meta"), default="full")
    parser.add_argument("--mode", choices=("shadow", "enforce"), default="enforce")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--rules", default="kube-1.36", help="a name or a file")
    parser.add_argument("--missing", choices=MISSING, default="", help="pods not in the state")
    parser.add_argument("--streams", type=int, default=0, help="streams of events, open meanwhile")
    parser.add_argument("--all", action="store_true", help="all there are marks for")
    parser.add_argument("--start", action="store_true", help="how long a start takes")
    given = parser.parse_args()
    if given.all:
        _print_all(given.seconds)
        return
    if given.start:
        print(json.dumps(starting(nodes=5000), indent=2))
        return
    with database(postgres=given.postgres) as url:
        found = measure(
            url=url,
            form=given.form,
            mode=given.mode,
            rate=given.rate,
            seconds=given.seconds,
            candidates=given.candidates,
            nodes=given.nodes,
            rules=given.rules,
            missing=given.missing,
            streams=given.streams,
        )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
