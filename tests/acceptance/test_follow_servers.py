"""What API servers answer besides what is wanted: refusals, expired pages, older backups."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policy.cli.exits import Exit
from policy.live import paging
from policy.live.connection import Connection, LiveError, place
from policy.live.following import Follower
from policy.live.listing import listed
from policy.live.status import FollowerMetrics, health, status_line
from policy.manifests import Limits
from policy.store import Store
from tests.acceptance.commands import Policy
from tests.support import api_server
from tests.support.api_server import ApiServer, kubeconfig, serving
from tests.support.live import (
    CLUSTER,
    EXPECTED,
    Identity,
    final,
    following,
    identity,
    initial,
    play,
    settled,
    told,
    until,
)

NAME = "pdb-sequence"


def record(url: str) -> tuple[list[Any], Identity, bool]:
    with Store.open(url) as store:
        state = identity(store.state.load(CLUSTER).objects)
        return told(store), state, store.ledger.verify().ok


def expected(name: str = NAME) -> tuple[list[Any], Identity, bool]:
    return EXPECTED[name], final(name), True


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """SQLite: what servers answer has nothing to do with the database."""
    file = tmp_path / "policy.db"
    file.write_bytes(Path(sqlite_template).read_bytes())
    return f"sqlite:///{file}"


def expire(pages: int) -> Callable[[ApiServer], None]:
    def prepare(server: ApiServer) -> None:
        server.faults.expired_pages = pages

    return prepare


def hang_up(server: ApiServer) -> None:
    server.faults.hang_ups = 12


def no_selectors(server: ApiServer) -> None:
    server.selects_events = False


def numbers(server: ApiServer) -> None:
    server.faults.list_version = int


ANSWERS: dict[str, Callable[[ApiServer], None]] = {
    "a page expires": expire(1),
    "every page expires": expire(1_000),
    "connections close without an answer": hang_up,
    "events cannot be selected in their group": no_selectors,
    "lists have numbers as resourceVersions": numbers,
    "all in pages": lambda _: None,
}


@pytest.mark.parametrize("how", ANSWERS)
def test_lists_in_small_pages(
    how: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, of one moment, whatever happens between their pages; compressed, too."""
    monkeypatch.setattr(paging, "PAGE", 7)
    monkeypatch.setattr(api_server, "COMPRESSED", 0)
    with serving(initial(NAME)) as server, following(database_url, server, tmp_path) as found:
        ANSWERS[how](server)
        until(lambda: found.follower.figures.synced, what="the first lists")
        play(server, NAME)
        until(lambda: settled(database_url, NAME), what="the end of the recording")
    assert record(database_url) == expected()


@pytest.mark.parametrize("pages", [0, 1, 1_000])
def test_a_cluster_is_listed_in_small_pages(
    pages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import --context` reads the same lists."""
    monkeypatch.setattr(paging, "PAGE", 7)
    with serving(initial(NAME), expire(pages)) as server:
        connection = Connection(place(kubeconfig=kubeconfig(tmp_path, server.url)))
        found = listed(connection, limits=Limits(), progress=lambda *_: None, whole=False)
        connection.close()
    assert identity(found.read.objects).keys() == set(map(key, initial(NAME)))


@pytest.mark.parametrize("version", [None, "", "x", "0", 0, 1.5, [12]])
def test_lists_without_a_resource_version(
    version: object, database_url: str, policy: Policy, tmp_path: Path
) -> None:
    """Nothing can be followed from there: the kind and the field are named, and it ends."""
    with serving(initial(NAME)) as server:
        server.faults.list_version = lambda _: version
        with following(database_url, server, tmp_path) as found:
            until(lambda: found.error is not None, what="the end")
        config = kubeconfig(tmp_path, server.url)
        once = policy("import", "--kubeconfig", config, "--db", database_url)
    message = (
        "/api/v1/pods: the list of Pod objects has a `metadata.resourceVersion` that is no whole"
        f" number above 0: `{json.dumps(version)}`"
    )
    assert (str(found.error), once.status) == (message, Exit.ERROR)
    assert message in once.err


def test_a_kind_that_may_not_be_read_for_a_while(database_url: str, tmp_path: Path) -> None:
    """It is named in the health, the figures, the status line and the words, until it is over."""
    with serving(initial(NAME)) as server, following(database_url, server, tmp_path) as found:
        figures = found.follower.figures
        until(lambda: figures.synced, what="the first lists")
        server.forbidden = {"Node"}
        server.end_watches()
        until(lambda: list(figures.failing) == ["Node"], what="the refusal")
        until(lambda: figures.troubles > 3, what="more refusals")
        refused = shown(found.follower)
        server.forbidden = set()
        until(lambda: not figures.failing, what="the end of it")
        allowed = shown(found.follower)
        play(server, NAME)
        until(lambda: settled(database_url, NAME), what="the end of the recording")
    said = [one.trouble for one in found.occasions if "nodes is forbidden" in one.trouble]
    words = "not read at the moment: Node"
    assert refused == (200, words, [("Node", 1.0)], f"; {words}")
    assert allowed == (200, "", [], "")
    assert said  # each of the server's words once, however often it said them
    assert len(said) == len(set(said))
    assert [one.recovered for one in found.occasions].count("Node") == 1


def shown(follower: Follower) -> tuple[int, str, list[tuple[str, float]], str]:
    """Status and words of `/healthz`, the kinds that the metrics name, the end of the line."""
    now_ms = time.time_ns() // 1_000_000
    status, body = health(follower.figures, now_ms)
    metrics = FollowerMetrics(lambda: follower.figures, lambda: now_ms).collect()
    kinds = next(one for one in metrics if one.name == "policy_follow_failing")
    named = [(one.labels["kind"], one.value) for one in kinds.samples if one.value]
    line = status_line(follower.figures, now_ms)
    return status, json.loads(body)["degraded"], named, line[line.find(" ms") + 3 :]


def test_rights_that_are_missing(database_url: str, tmp_path: Path) -> None:
    """All the kinds that may not be listed are named at the start."""
    with serving(initial(NAME)) as server:
        server.forbidden = {"Node", "PodDisruptionBudget"}
        with following(database_url, server, tmp_path) as found:
            until(lambda: found.error is not None, what="the refusal")
    assert isinstance(found.error, LiveError)
    assert [f'cannot list resource "{name}"' in str(found.error) for name in PLURALS] == [True] * 2
    assert "deploy/follow/rbac.yaml" in found.error.help


PLURALS = ("nodes", "poddisruptionbudgets")


def test_rights_that_are_taken_away_for_a_while(database_url: str, tmp_path: Path) -> None:
    """A server that has just started refuses what it does not know yet: it is tried again."""
    with serving(initial(NAME)) as server, following(database_url, server, tmp_path) as found:
        figures = found.follower.figures
        until(lambda: figures.synced, what="the first lists")
        until(lambda: server.requests["/api/v1/pods watch"] > 0, what="the watch")
        server.forbidden, server.absent = {"Pod"}, {"Event"}
        server.compact()
        server.end_watches()
        play(server, NAME)
        until(lambda: figures.troubles > 5, what="the refusals")
        server.forbidden, server.absent = set(), set()
        until(lambda: settled(database_url, NAME), what="the end of the recording")
    with Store.open(database_url) as store:
        found_kinds = {gap.kind for gap in store.read.gaps(CLUSTER)}
        victims = [one[3] for one in told(store)]
    assert ("Pod" in found_kinds, victims) == (True, [one[3] for one in EXPECTED[NAME]])


@pytest.mark.parametrize("when", ["while it is followed", "while it is not"])
def test_a_backup_is_restored(when: str, database_url: str, tmp_path: Path) -> None:
    """The server counts from an earlier version: all is listed again, and the time is a gap."""
    later = [{**one, "metadata": {**one["metadata"]}} for one in initial(NAME)]
    with serving(initial(NAME)) as server:
        with following(database_url, server, tmp_path) as found:
            until(lambda: found.follower.figures.synced, what="the first lists")
            play(server, NAME)
            until(lambda: settled(database_url, NAME), what="the end of the recording")
            if when == "while it is followed":
                server.restore(later, 5)
                # Found out when a watch ends in which nothing was said.
                until(lambda: server.end_watches() or restored(database_url), what="the older one")
        if when == "while it is not":
            server.restore(later, 5)
            with following(database_url, server, tmp_path):
                until(lambda: restored(database_url), what="the older state")
    with Store.open(database_url) as store:
        gaps = {gap.kind: gap for gap in store.read.gaps(CLUSTER)}
        assert store.ledger.verify().ok
    assert (gaps["Pod"].until_version, gaps["Pod"].since_version > 5) == (5, True)


def key(item: dict[str, Any]) -> tuple[str, str]:
    meta = item["metadata"]
    return item["kind"], "/".join(filter(None, (meta.get("namespace"), meta["name"])))


def restored(url: str) -> bool:
    """Whether the state is that of the list in front of the recording, and every kind is a gap."""
    with Store.open(url, read_only=True) as store:
        state = identity(store.state.load(CLUSTER).objects)
        kinds = {gap.kind for gap in store.read.gaps(CLUSTER)}
    return state.keys() == set(map(key, initial(NAME))) and {"Pod", "Node", "Event"} <= kinds


def test_one_kind_expires_while_others_are_listed(database_url: str, tmp_path: Path) -> None:
    """What was listed first is not written over what was listed again."""

    def held(server: ApiServer) -> None:
        server.faults.held = {"Namespace"}

    gone = initial(NAME)
    (pod, *_) = (one for one in gone if one["kind"] == "Pod")
    with serving(gone, held) as server, following(database_url, server, tmp_path) as found:
        until(lambda: server.requests["/api/v1/pods watch"] > 0, what="the watch of pods")
        server.remove_silently(pod)
        server.compact()
        server.end_watches()
        until(lambda: server.requests["/api/v1/pods"] > 1, what="the second list of pods")
        server.release("Namespace")
        until(lambda: found.follower.figures.synced, what="the first lists")
    with Store.open(database_url) as store:
        found_keys = {at for at in identity(store.state.load(CLUSTER).objects) if at[0] == "Pod"}
    assert found_keys == set(map(key, server.listed("Pod")))
