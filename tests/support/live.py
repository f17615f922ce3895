"""Recorded clusters, served to a follower."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from policy.cluster.objects import ClusterObject, key_of, kind_of
from policy.live.backoff import Backoff
from policy.live.connection import Connection, LiveError, place
from policy.live.figures import Occasion
from policy.live.following import Follower
from policy.manifests import from_dicts
from policy.store import Store, StoreError
from tests.support.api_server import ApiServer, kubeconfig

LIVE = Path(__file__).parents[1] / "data" / "live"
NAMES = (
    *("single", "kubelet-grace", "pdb-sequence", "wave-kubelet", "three-at-once"),
    "nominated",
)
LONGEST_SECONDS = 60.0
CLUSTER = "real"

Line = tuple[str, dict[str, Any]]
Identity = dict[tuple[str, str], ClusterObject]
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "single": [
        ("team-a/c11-pre31", "c11-n000", "same", "p2 p4 p6 p8 p9"),
        ("prod/c11-pre32", "c11-n004", "same", "p23 p24 p27"),
    ],
    "kubelet-grace": [("team-a/c14-pre31", "c14-n001", "same", "p15 p4 p9")],
    "pdb-sequence": [("team-b/c12-pre31", "c12-n005", "same", "p19 p21 p26")],
    "wave-kubelet": [
        ("prod/c15-pre22", "c15-n004", "tie", "p17"),
        ("team-b/c15-pre23", "c15-n004", "tie", "p17"),
        ("prod/c15-pre25", "c15-n002", "same", "p4 p5"),
        ("team-b/c15-pre26", "c15-n003", "same", "p9"),
        ("team-b/c15-pre26", "c15-n001", "tie", "p2"),
    ],
    # The second one counts the first one's nomination, and does not see its victim leaving yet.
    "three-at-once": [
        ("team-a/p13a", "w-6", "same", "r21"),
        ("team-a/p13b", "w-6", "lag", "r21 r3"),
        ("team-a/p13c", "w-6", "order", "r2 r3"),
    ],
    # A pod that was nominated while others left evicts more once these have gone.
    "nominated": [
        ("web/first", "n2", "same", "shop/r05 shop/r08 shop/r11"),
        ("web/lower", "n1", "same", "shop/r07 shop/r10"),
        ("web/first", "n0", "same", "shop/r03 shop/r06 shop/r09"),
        ("web/equal", "n1", "same", "shop/r04"),
    ],
}
"""Preemptor, node, verdict and victims of each recording, as its events name them."""


@cache
def _recorded(name: str) -> tuple[str, str]:
    """The lists in front of a recording, and its lines."""
    before, stream = (
        gzip.decompress((LIVE / f"{name}.{end}.gz").read_bytes()).decode()
        for end in ("initial.json", "jsonl")
    )
    return before, stream


def initial(name: str) -> list[dict[str, Any]]:
    """The objects of the lists in front of a recording."""
    items: list[dict[str, Any]] = json.loads(_recorded(name)[0])["items"]
    return items


def lines(name: str) -> list[Line]:
    """Type and object of each line of a recording, each event once."""
    recorded = [json.loads(line) for line in _recorded(name)[1].splitlines()]
    wanted = ("client", "Event(v1)")
    return [(line["type"], line["object"]) for line in recorded if line["watch"] not in wanted]


@cache
def final(name: str) -> Identity:
    """What a list at the end of the recording would have held."""
    found = {(one["kind"], one["metadata"]["uid"]): one for one in initial(name)}
    for what, item in lines(name):
        if item["kind"] == "Event":
            continue
        at = (item["kind"], item["metadata"]["uid"])
        found[at] = item
        if what == "DELETED":
            del found[at]
    return identity(from_dicts(found.values()))


def stretches(name: str) -> list[list[Line]]:
    """A recording, cut after each line that changes what is kept of an object."""
    known: dict[tuple[str, str], ClusterObject | None] = dict(identity(from_dicts(initial(name))))
    found: list[list[Line]] = [[]]
    for what, item in lines(name):
        found[-1].append((what, item))
        if item["kind"] == "Event":
            continue
        ((at, obj),) = identity(from_dicts([item])).items()
        after = None if what == "DELETED" else obj
        if known.get(at) != after:
            known[at] = after
            found.append([])
    return found


def identity(objects: Any) -> Identity:
    return {(kind_of(one), key_of(one)): one for one in objects}


def told(store: Store, cluster: str = CLUSTER) -> list[tuple[Any, ...]]:
    """The observations in the order in which they happened."""
    rows = store.read.observations(cluster)
    return [
        (
            row.preemptor,
            row.node,
            row.verdict,
            " ".join(sorted(victim.victim.rpartition("-")[2] for victim in row.victims)),
        )
        for row in sorted(rows, key=lambda row: (row.now_ms, row.id))
    ]


def until(condition: Callable[[], bool], *, what: str) -> None:
    """Wait for something that must come about."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(0.05)


class Following:
    """A follower in a thread, with what it told."""

    def __init__(self, store: Store, connection: Connection, **options: Any) -> None:
        self.occasions: list[Occasion] = []
        self.error: BaseException | None = None
        self.follower = Follower(
            store,
            CLUSTER,
            connection,
            actor="ann",
            tell=self.occasions.append,
            backoff=lambda: Backoff(first=0.01, most=0.05),
            **{
                "clock": lambda: time.time_ns() // 1_000_000,
                "window_ms": 500,
                "settle_ms": 1_000,
                "patience_ms": 3_000,
                **options,
            },
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.follower.run()
        except (LiveError, StoreError) as exc:
            self.error = exc

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.follower.stop()
        self._thread.join(LONGEST_SECONDS)
        assert not self._thread.is_alive()


@contextmanager
def following(url: str, server: ApiServer, folder: Path, **options: Any) -> Iterator[Following]:
    """A cluster followed into a database."""
    connection = Connection(place(kubeconfig=kubeconfig(folder, server.url, token=server.token)))
    with Store.open(url) as store:
        found = Following(store, connection, **options)
        found.start()
        try:
            yield found
        finally:
            found.stop()
            connection.close()


def play(server: ApiServer, name: str, *, pause: float = 0.0) -> None:
    """Everything of a recording happens, in its order."""
    for what, item in lines(name):
        server.publish(what, item)
        if pause:
            time.sleep(pause)


def settled(url: str, name: str) -> bool:
    """Whether the state is the final one and every preemption was recorded."""
    with Store.open(url, read_only=True) as store:
        if len(store.read.observations(CLUSTER)) < len(EXPECTED[name]):
            return False
        return identity(store.state.load(CLUSTER).objects) == final(name)
