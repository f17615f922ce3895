"""A database that is brought back to an earlier instant while a service works with it.

As by a backup that is restored, or by a replica that had not all of it when it took over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.manifests import from_dicts
from policy.store import Store
from tests.acceptance.test_serve_broken import until
from tests.support import serving
from tests.support.serving import Serving, preempts

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
