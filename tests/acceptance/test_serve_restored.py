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
from policy.server.extender.spool import Spool
from policy.server.following import ClusterFollower
from policy.store import Store
from tests.acceptance.test_serve_broken import spooled, until
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


def test_the_rules_are_those_of_the_restored_record(
    make_postgres: Callable[[str | None], str],
    postgres_server: str,
    postgres_template: str,
    tmp_path: Path,
) -> None:
    """Also where their activation has the number of one that was lost."""
    url = serving.filled(make_postgres(postgres_template), rules="kube-1.35")
    backup = make_postgres(make_url(url).database)
    with Store.open(url) as store:
        serving.activate(store, "kube-1.20")
    service = serving.serve(url, tmp_path, "--deadline", "5")
    service.ready()
    assert service.post("/extender/preempt", CALLS[0]).status_code == 200
    assert decided_by(url) == {"kube-1.20"}
    with Store.open(backup) as store:
        serving.activate(store, "kube-1.27")
    restored(postgres_server, url, backup)
    calls_are_decided_anew(service, url)
    assert decided_by(url) == {"kube-1.27"}
    assert service.stop() == 0


def calls_are_decided_anew(service: Serving, url: str) -> None:
    """A call comes into the record, as the answer that it had or by way of the spool."""

    def recorded() -> bool:
        service.post("/extender/preempt", CALLS[1])
        return bool(decided_by(url))

    assert until(recorded, seconds=60), service.log.read_text()


def decided_by(url: str) -> set[str]:
    """The rule sets of the decisions in the record."""
    with Store.open(url) as store:
        return {row.rule_set for row in store.read.decisions("default")}


@pytest.mark.parametrize("environment", [True, False])
def test_what_is_lost_with_the_rules_decides_no_more(
    make_postgres: Callable[[str | None], str],
    postgres_server: str,
    postgres_template: str,
    tmp_path: Path,
    environment: bool,
) -> None:
    """A backup from before the first activation, or from before the environment was made.

    A call is an error in words, and one that was spooled is let go of; with rules they are decided.
    """
    backup = make_postgres(postgres_template)
    with Store.open(backup) as store:
        objects = from_dicts(serving.recorded_calls()["b"]["state"])
        store.record.import_objects("default", objects, at_ms=serving.NOW_MS, source="recording")
        if environment:
            made(store)
    url = make_postgres(make_url(backup).database)
    with Store.open(url) as store:
        if not environment:
            made(store)
        serving.activate(store, "kube-1.35")
    service = serving.serve(url, tmp_path, "--extender-mode", "enforce", "--deadline", "5")
    service.ready()
    restored(postgres_server, url, backup)
    spool = Spool(tmp_path / "policy-spool")
    spool.add(spooled(CALLS[0])).result(60)
    status = 409 if environment else 404
    assert until(lambda: service.post("/extender/preempt", CALLS[1]).status_code == status)
    assert until(lambda: not list((tmp_path / "policy-spool").iterdir()))
    assert until(lambda: service.get("/readyz").status_code == 503)
    why = "environment `prod` has no active" if environment else "there is no environment `prod`"
    # It is said when the call is let go of, by another process.
    assert until(lambda: f"a spooled call is in no record: {why}" in service.log.read_text())
    assert "Traceback" not in service.log.read_text()
    with Store.open(url) as store:
        if not environment:
            made(store)
        serving.activate(store, "kube-1.27")
    calls_are_decided_anew(service, url)
    assert (decided_by(url), service.stop()) == ({"kube-1.27"}, 0)


def made(store: Store) -> None:
    store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
