"""A real cluster followed: lists, watches, and everything that breaks between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.store import Store
from tests.support.api_server import ApiServer, serving
from tests.support.live import (
    CLUSTER,
    EXPECTED,
    NAMES,
    final,
    following,
    identity,
    initial,
    lines,
    play,
    settled,
    told,
    until,
)


def result(url: str) -> tuple[object, ...]:
    """What was observed, the state, and whether the ledger holds."""
    with Store.open(url, read_only=True) as store:
        state = identity(store.state.load(CLUSTER).objects)
        return told(store), state, store.ledger.verify().ok


def expected(name: str) -> tuple[object, ...]:
    return EXPECTED[name], final(name), True


@pytest.mark.parametrize("name", NAMES)
def test_every_preemption_is_recorded(name: str, database_url: str, tmp_path: Path) -> None:
    """The state is that of the final list; victims and preemptors are right; same or a tie."""
    with serving(initial(name)) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        play(server, name)
        until(lambda: settled(database_url, name), what="the end of the recording")
    assert result(database_url) == expected(name)


def test_quiet_clusters_are_not_written(database_url: str, tmp_path: Path) -> None:
    """Heartbeats change nothing that decides: no revision, and one list of each kind."""
    with serving(initial("single")) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        (node, *_) = server.listed("Node")
        for beat in range(20):
            version = str(server.resource_version + 1)
            meta = {**node["metadata"], "resourceVersion": version, "generation": beat}
            server.publish("MODIFIED", {**node, "metadata": meta})
        server.bookmark()
        until(lambda: found.follower.figures.events >= 20, what="the heartbeats")
        assert found.follower.figures.revisions == 1
        assert server.requests["/api/v1/nodes"] == 1


def everywhere(server: ApiServer, cuts: list[int]) -> None:
    for kind in ("Pod", "Event"):
        server.faults.cuts[kind] = list(cuts)


BROKEN = {
    "cut after every line": lambda server: everywhere(server, [1] * 200),
    "cut within every third line": lambda server: everywhere(server, [-1, 2] * 60),
    "every watch repeats": lambda server: server.faults.repeats.update(
        {"Pod": [3] * 50, "Event": [2] * 50}
    ),
    "repeats and cuts": lambda server: (
        everywhere(server, [4] * 60),
        server.faults.repeats.update({"Pod": [2] * 50, "Event": [3] * 50}),
    ),
    "events late": lambda server: server.faults.delays.update({"Event": 0.03}),
    "pods late": lambda server: server.faults.delays.update({"Pod": 0.01}),
    "refusals": lambda server: server.faults.refusals.extend([500, 503, 429, 504] * 5),
}


@pytest.mark.parametrize("how", BROKEN)
def test_nothing_is_lost_and_nothing_is_there_twice(
    how: str, database_url: str, tmp_path: Path
) -> None:
    """However connections break, and in whatever order the kinds arrive."""
    name = "wave-kubelet"
    with (
        serving(initial(name), BROKEN[how]) as server,
        following(database_url, server, tmp_path) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        play(server, name, pause=0.002)
        until(lambda: settled(database_url, name), what="the end of the recording")
    observed, state, ok = result(database_url)
    assert isinstance(observed, list)
    assert ([(*one[:2], one[3]) for one in observed], state, ok) == (
        [(*one[:2], one[3]) for one in EXPECTED[name]],
        final(name),
        True,
    )


@pytest.mark.parametrize("how", ["410", "ERROR event"])
def test_what_was_not_seen_is_a_gap(how: str, database_url: str, tmp_path: Path) -> None:
    """Too old a version: listed again, the difference taken, and the gap told and recorded."""
    name = "kubelet-grace"
    with serving(initial(name)) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        for what, item in lines(name)[:6]:
            server.publish(what, item)
        until(lambda: found.follower.figures.revision > 1, what="the first changes")
        server.remove_silently(server.listed("Pod")[0])
        if how == "410":
            server.compact()
        else:
            server.faults.error_events.append("Pod")
        server.end_watches()
        # Each kind finds out by itself; the gap of the pods need not be the first.
        with Store.open(database_url, read_only=True) as store:
            until(lambda: "Pod" in gaps(store), what="the gap of the pods")
    with Store.open(database_url) as store:
        pods = {key for kind, key in identity(store.state.load(CLUSTER).objects) if kind == "Pod"}
        assert ("Pod" in gaps(store), store.ledger.verify().ok) == (True, True)
    assert pods == {"{namespace}/{name}".format(**pod["metadata"]) for pod in server.listed("Pod")}


def gaps(store: Store) -> set[str]:
    """The kinds that have one."""
    return {gap.kind for gap in store.read.gaps(CLUSTER)}


def test_it_goes_on_where_it_was(database_url: str, tmp_path: Path) -> None:
    """Stopped after every line and started again: no list is asked for a second time."""
    name = "wave-kubelet"
    with serving(initial(name)) as server:
        pending = lines(name)
        # However long a start takes: what belongs together is not taken for several preemptions.
        patient = {"settle_ms": 600_000, "patience_ms": 600_000}
        for start in range(0, len(pending), 6):
            with following(database_url, server, tmp_path, **patient) as found:
                until(lambda: found.follower.figures.synced, what="the first lists")
                for what, item in pending[start : start + 6]:
                    server.publish(what, item)
        with following(database_url, server, tmp_path):
            until(lambda: settled(database_url, name), what="the end of the recording")
        lists = server.requests["/api/v1/pods"]
    observed, state, ok = result(database_url)
    assert isinstance(observed, list)
    assert ([(*one[:2], one[3]) for one in observed], state, ok, lists) == (
        [(*one[:2], one[3]) for one in EXPECTED[name]],
        final(name),
        True,
        1,
    )
