"""`policy follow` as a process: killed at any moment, refused, and with its database away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from policy.store import Store
from tests.support import serving as served
from tests.support.api_server import ApiServer, kubeconfig, serving
from tests.support.live import (
    CLUSTER,
    EXPECTED,
    final,
    following,
    identity,
    initial,
    play,
    settled,
    stretches,
    told,
    until,
)
from tests.support.tried import Kind

NAME = "wave-kubelet"
KILLS = 6
PODS = "/api/v1/pods watch"


@contextmanager
def process(url: str, config: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "policy", "follow", "--kubeconfig", config]
    command += ["--db", url, "--cluster", CLUSTER, *options]
    environment = {**os.environ, "LOGNAME": "ann"}
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def position(url: str) -> dict[str, int]:
    with Store.open(url) as store:
        return store.read.follow_positions(CLUSTER)


def pairs(url: str) -> tuple[list[Any], object, bool]:
    """Preemptor, node and victims of each observation; the state; whether the ledger holds."""
    with Store.open(url) as store:
        state = identity(store.state.load(CLUSTER).objects)
        observed = [(*one[:2], one[3]) for one in told(store)]
        return observed, state, store.ledger.verify().ok


def revision(url: str) -> int:
    with Store.open(url, read_only=True) as store:
        return store.state.load(CLUSTER).revision


def more(server: ApiServer, watches: int) -> None:
    until(lambda: server.requests[PODS] > watches, what="the watch")


def grown(url: str, before: int) -> None:
    until(lambda: revision(url) > before, what="a revision")


@pytest.mark.slow
@pytest.mark.parametrize("after", ["after the news", "after a revision"])
def test_killed_at_any_moment(
    after: str, database_url: str, tmp_path: Path, tried: Callable[[Kind, int], None]
) -> None:
    """Nothing is lost, and nothing is there twice; the whole record verifies.

    A process dies as soon as a part of the recording was published, or as soon as the first
    revision of it is there; `test_killed_before_and_after_every_commit` is the same in small.
    """
    parts = stretches(NAME)
    parts, rest = parts[:-1], parts[-1]
    share = -(-len(parts) // KILLS)
    kills = 0
    with serving(initial(NAME)) as server:
        config = kubeconfig(tmp_path, server.url)
        with Store.open(database_url):
            pass
        for start in range(0, len(parts), share):
            watches = server.requests[PODS]
            with process(database_url, config) as running:
                more(server, watches)
                until(lambda: bool(position(database_url)), what="the first lists")
                before = revision(database_url)
                for what, item in chain.from_iterable(parts[start : start + share]):
                    server.publish(what, item)
                if after == "after a revision":
                    grown(database_url, before)
                running.kill()
                kills += 1
        for what, item in rest:
            server.publish(what, item)
        with process(database_url, config):
            until(lambda: settled(database_url, NAME), what="the end of the recording")
    tried(Kind.KILL, kills)
    expected = [(*one[:2], one[3]) for one in EXPECTED[NAME]]
    assert pairs(database_url) == (expected, final(NAME), True)


def test_its_health_and_its_words(database_url: str, tmp_path: Path) -> None:
    """`/healthz` answers once all is listed; what is observed is a line of JSON."""
    with serving(initial("single")) as server:
        config = kubeconfig(tmp_path, server.url)
        with process(database_url, config, "--listen", "127.0.0.1:0") as running:
            assert running.stderr is not None
            first = json.loads(running.stderr.readline())
            until(lambda: bool(position(database_url)), what="the first lists")
            play(server, "single")
            said = map(json.loads, running.stderr)
            told = next(line for line in said if line["event"] == "observed")
            running.terminate()
            assert running.wait(60) == 0
    health = f"http://{first['listening']}/healthz"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(health, timeout=5)
    assert (first["event"], first["server"]) == ("following", server.url)
    assert {key: told[key] for key in ("event", "preemptor", "node", "confidence", "verdict")} == {
        "event": "observed",
        "preemptor": "team-a/c11-pre31",
        "node": "c11-n000",
        "confidence": "certain",
        "verdict": "same",
    }


def test_a_service_that_follows(tmp_path: Path) -> None:
    """One process serves and follows: the follower's health, and its figures among the metrics.

    The environment is of another cluster than the one that is followed, which the log says.
    """
    db = served.filled(str(tmp_path / "policy.db"))
    with serving(initial("single")) as server:
        options = ("--follow", "--kubeconfig", kubeconfig(tmp_path, server.url))
        service = served.serve(db, tmp_path, *options, "--cluster", CLUSTER)
        try:
            service.ready()
            until(lambda: service.get("/healthz/follow").status_code == 200, what="the lists")
            play(server, "single")
            until(lambda: settled(db, "single"), what="the end of the recording")

            def observed() -> int:
                found: int = service.get("/healthz/follow").json()["observed"]
                return found

            # A row is there a moment before it is counted.
            until(lambda: observed() == len(EXPECTED["single"]), what="the figures")
            health = service.get("/healthz/follow").json()
            figures = service.get("/metrics").text
        finally:
            assert service.stop() == 0
    assert (health["ok"], health["observed"], health["gaps"]) == (True, 2, 0)
    assert {"policy_follow_observed_total 2.0", "policy_follow_gaps_total 0.0"} <= set(
        figures.splitlines()
    )
    assert "policy_follow_state_age_seconds" in figures
    assert "policy_ledger_head" in figures
    warned = (
        "WARNING policy.server: environment `prod` decides on the state of cluster `default`, and"
        f" what is followed is kept as cluster `{CLUSTER}`: --cluster names it"
    )
    assert f"Z {warned}\n" in service.log.read_text()
    with Store.open(db) as store:
        assert told(store) == EXPECTED["single"]


def test_a_server_that_refuses(database_url: str, tmp_path: Path) -> None:
    """Wrong credentials at the start end it, with a message that names them."""
    with serving([]) as server:
        config = kubeconfig(tmp_path, server.url, token="old")
        server.token = "new"
        with process(database_url, config) as running:
            _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "the credentials were refused (401)" in said


def test_a_token_that_expires(database_url: str, tmp_path: Path) -> None:
    """Requests are refused for a while; afterwards it goes on, and nothing is lost."""

    def guarded(server: ApiServer) -> None:
        server.token = "good"

    name = "kubelet-grace"
    with (
        serving(initial(name), guarded) as server,
        following(database_url, server, tmp_path) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        server.token = "another"
        server.end_watches()
        play(server, name)
        until(lambda: found.follower.figures.troubles > 5, what="the refusals")
        server.token = "good"
        until(lambda: settled(database_url, name), what="the end of the recording")
    expected = [(*one[:2], one[3]) for one in EXPECTED[name]]
    assert pairs(database_url) == (expected, final(name), True)


def test_the_database_is_away(make_postgres: Callable[..., str], tmp_path: Path) -> None:
    """Its connections are cut and new ones refused for a while: everything is written later."""
    url = make_postgres(None)
    name = "kubelet-grace"
    parts = urlsplit(url)
    database = parts.path.removeprefix("/")
    admin = urlunsplit(parts._replace(scheme="postgresql", path="/postgres"))
    with Store.open(url):
        pass
    with (
        psycopg.connect(admin, autocommit=True) as over,
        serving(initial(name)) as server,
        following(url, server, tmp_path) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        over.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false')
        over.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
        )
        play(server, name)
        until(lambda: not found.follower.figures.writing, what="the refusal")
        over.execute(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true')
        until(lambda: settled(url, name), what="the end of the recording")
    expected = [(*one[:2], one[3]) for one in EXPECTED[name]]
    assert pairs(url) == (expected, final(name), True)
