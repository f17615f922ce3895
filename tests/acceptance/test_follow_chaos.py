"""A follower whose process dies at every commit, and watches that come in other orders."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from policy.store import Store
from tests.support import killed
from tests.support.api_server import kubeconfig, serving
from tests.support.live import (
    CLUSTER,
    EXPECTED,
    Identity,
    final,
    following,
    identity,
    initial,
    lines,
    play,
    settled,
    stretches,
    told,
    until,
)
from tests.support.tried import Kind

NAME = "pdb-sequence"
DEATHS: tuple[killed.When, ...] = ("before", "after")


def record(url: str) -> tuple[list[Any], Identity, bool]:
    """Preemptor, node and victims of each observation; the state; whether the ledger holds."""
    with Store.open(url) as store:
        state = identity(store.state.load(CLUSTER).objects)
        observed = [(*one[:2], one[3]) for one in told(store)]
        return observed, state, store.ledger.verify().ok


def expected(name: str) -> tuple[list[Any], Identity, bool]:
    return [(*one[:2], one[3]) for one in EXPECTED[name]], final(name), True


def test_killed_before_and_after_every_commit(
    database_url: str, tmp_path: Path, tried: Callable[[Kind, int], None]
) -> None:
    """Each change and each observation dies once before it is durable, and once just after."""
    kills = 0
    with serving(initial(NAME)) as server:
        config = kubeconfig(tmp_path, server.url)
        for stretch in [[], *stretches(NAME)[:-1]]:
            for what, item in stretch:
                server.publish(what, item)
            for dies in DEATHS:
                assert killed.follow(database_url, config, dies=dies) == -signal.SIGKILL
                kills += 1
        for what, item in stretches(NAME)[-1]:
            server.publish(what, item)
        # A process that starts again keeps its positions first: later ones live longer.
        codes: list[int | None] = []
        while 0 not in codes:
            commit = len(codes) // 2 + 1
            dies = DEATHS[len(codes) % 2]
            codes.append(killed.follow(database_url, config, dies=dies, commit=commit, until=NAME))
        assert set(codes[:-1]) <= {-signal.SIGKILL}
        kills += len(codes) - 1
        lists = server.requests["/api/v1/pods"]
    tried(Kind.KILL, kills)
    assert (record(database_url), lists) == (expected(NAME), 2)


ORDERS = {
    "pods before nodes": ("Namespace", "PriorityClass", "Pod", "Event", "PodDisruptionBudget"),
    "events before all else": ("Event", "Node", "PodDisruptionBudget", "Pod"),
    "budgets last": ("Pod", "Node", "PriorityClass", "Namespace", "Event"),
    "events last": ("PodDisruptionBudget", "Node", "Pod", "PriorityClass", "Namespace"),
}


@pytest.mark.parametrize("order", ORDERS)
def test_kinds_come_in_another_order(order: str, database_url: str, tmp_path: Path) -> None:
    """A cluster that comes into being while it is followed, kind by kind: the same in the end."""
    there = sorted(initial(NAME), key=lambda one: int(one["metadata"]["resourceVersion"]))
    happened = [("ADDED", item) for item in there] + lines(NAME)
    kinds = {item["kind"] for _, item in happened}
    with (
        serving([]) as server,
        following(database_url, server, tmp_path) as found,
    ):
        figures = found.follower.figures
        until(lambda: figures.synced, what="the first lists")
        server.faults.held = set(kinds)
        for what, item in happened:
            server.publish(what, item)
        released: list[str] = []

        def heard() -> bool:
            published = sum(item["kind"] in released for _, item in happened)
            return figures.events >= published and not figures.waiting

        for kind in dict.fromkeys((*ORDERS[order], *sorted(kinds))):
            released.append(kind)
            server.release(kind)
            until(heard, what=f"every {kind}")
        # What was observed without events is replaced when they have come.
        until(lambda: record(database_url) == expected(NAME), what="the end of the recording")
        until(lambda: not figures.waiting, what="the rest of the evidence")
    assert record(database_url) == expected(NAME)


def test_the_database_is_locked(
    sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program holds SQLite's one write lock for longer than is waited: written later."""
    monkeypatch.setattr("policy.store.connection.BUSY_SECONDS", 0.2)
    file = tmp_path / "policy.db"
    file.write_bytes(Path(sqlite_template).read_bytes())
    url = f"sqlite:///{file}"
    with serving(initial(NAME)) as server, following(url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        other = sqlite3.connect(urlsplit(url).path[1:], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        play(server, NAME)
        until(lambda: not found.follower.figures.writing, what="the refusal")
        other.execute("ROLLBACK")
        other.close()
        until(lambda: settled(url, NAME), what="the end of the recording")
        until(lambda: not found.follower.figures.waiting, what="the rest of the evidence")
    with Store.open(url) as store:
        gaps = store.read.gaps(CLUSTER)
    assert (record(url), gaps) == (expected(NAME), [])
