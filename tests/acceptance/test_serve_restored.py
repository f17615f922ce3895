"""A database that is brought back to an earlier instant while a service works with it.

As by a backup that is restored, or by a replica that had not all of it when it took over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import make_url

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.manifests import from_dicts
from policy.server.config import Follow
from policy.server.following import ClusterFollower
from policy.store import Store
from tests.acceptance.test_serve_broken import until
from tests.support import api_server, live, serving
from tests.support.serving import Serving, preempts

FOLLOWED = "kubelet-grace"
CALLS = [json.loads(one["request"]) for one in preempts("b")]


def restored(server: str, url: str, backup: str) -> None:
    """Put the backup in the place of the database, of which all connections end."""
    name, copy = make_url(url).database, make_url(backup).database
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {copy}")


def written(url: str, number: int) -> None:
    """So many revisions that the service has never seen."""
    with Store.open(url) as store:
        for i in range(number):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"later-{i}"}}
            objects = from_dicts([node])
            store.record.import_objects("default", objects, at_ms=serving.NOW_MS, source="later")


def calls_are_decided(service: Serving) -> None:
    """Three calls in a row have their decision as the answer."""

    def chosen() -> bool:
        return all(len(service.preempt(call)) == 1 for call in CALLS[2:5])

    assert until(chosen, seconds=60), service.log.read_text()


@pytest.mark.parametrize("beside", [-4, 0, 3], ids=["behind", "level", "ahead"])
def test_the_state_is_read_anew(
    make_postgres: Callable[[str | None], str],
    postgres_server: str,
    postgres_template: str,
    tmp_path: Path,
    beside: int,
) -> None:
    """Wherever the restored record stands beside the service, calls are decided on what it has."""
    url = serving.filled(make_postgres(postgres_template))
    backup = make_postgres(make_url(url).database)
    service = serving.serve(url, tmp_path, "--extender-mode", "enforce", "--deadline", "5")
    service.ready()
    for call in CALLS[:2]:
        assert len(service.preempt(call)) == 1
    with Store.open(url) as store:
        seen = store.state.head_revision("default")
    written(backup, seen - 1 + beside)
    restored(postgres_server, url, backup)
    calls_are_decided(service)
    assert service.get("/readyz").status_code == 200
    said = f"the state is read anew: revision {seen} of cluster `default` is not in the database"
    assert service.log.read_text().count(said) == 1
    assert until(lambda: not list((tmp_path / "policy-spool").iterdir()))
    assert service.stop() == 0
    with Store.open(url) as store:
        ids = store.read.decision_ids("default")
        verdicts = {found.verdict for found in replay_all(store, ids)}
        assert verdicts == {ReplayVerdict.EQUAL}
        assert store.ledger.verify().ok


def test_a_follower_does_not_write_on_behind_another_past(
    make_postgres: Callable[[str | None], str],
    postgres_server: str,
    postgres_template: str,
    tmp_path: Path,
) -> None:
    """It would leave out what was lost. Started again, it goes on from what is there."""
    url = make_postgres(postgres_template)
    backup = make_postgres(postgres_template)
    with api_server.serving(live.initial(FOLLOWED)) as server:
        with live.following(url, server, tmp_path) as found:
            live.until(lambda: found.follower.figures.synced, what="the first lists")
            restored(postgres_server, url, backup)
            live.play(server, FOLLOWED)
            live.until(lambda: found.error is not None, what="the end of the follower")
        assert "is not in the database any more" in str(found.error)
        with Store.open(url) as store:
            assert store.state.cluster_names() == []
        with live.following(url, server, tmp_path) as found:
            live.until(lambda: state_is_final(url), what="the newest state")
        assert found.error is None


def test_a_follower_beside_the_service_begins_anew(
    make_postgres: Callable[[str | None], str],
    postgres_server: str,
    postgres_template: str,
    tmp_path: Path,
) -> None:
    """The service goes on: no supervisor starts its follower again."""
    url = make_postgres(postgres_template)
    backup = make_postgres(postgres_template)
    with api_server.serving(live.initial(FOLLOWED)) as server, Store.open(url) as store:
        config = api_server.kubeconfig(tmp_path, server.url, token=server.token)
        follower = ClusterFollower(
            store,
            Follow(
                kubeconfig=config, context=None, in_cluster=False, cluster=live.CLUSTER, actor="ann"
            ),
            clock=lambda: time.time_ns() // 1_000_000,
            registry=CollectorRegistry(),
        )
        follower.start()
        live.until(lambda: follower.health()[0] == 200, what="the first lists")
        restored(postgres_server, url, backup)
        live.play(server, FOLLOWED)
        live.until(lambda: state_is_final(url), what="the newest state")
        assert follower.health()[0] == 200
        follower.close()


def state_is_final(url: str) -> bool:
    with Store.open(url, read_only=True) as store:
        if live.CLUSTER not in store.state.cluster_names():
            return False
        objects = store.state.load(live.CLUSTER).objects
        return live.identity(objects) == live.final(FOLLOWED)
