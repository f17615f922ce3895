"""A schema that becomes another one while services run, as docs/service.md has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from policy.store import Store, downgrade, upgrade
from policy.store.migrate import HEAD, REVISIONS
from tests.acceptance.test_serve_desks import a_call, a_cluster, served
from tests.support import serving
from tests.support.serving import Serving

OFFERED = {"n0": ["uid-low"]}


@pytest.fixture
def url(postgres_template: str, make_postgres: Callable[[str | None], str]) -> str:
    return a_cluster(make_postgres(postgres_template))


def answers(service: Serving) -> tuple[int, dict[str, list[str]], str]:
    """Is it ready, what is a call answered, and was that by `--on-failure`?"""
    got = service.preempt(a_call("high"))
    figures = service.get("/metrics").text.splitlines()
    failures = [line for line in figures if line.startswith("policy_extender_failures_total{")]
    return service.get("/readyz").status_code, got, "\n".join(failures)


def test_services_go_on_while_the_schema_becomes_another_one(url: str, tmp_path: Path) -> None:
    """Up and down again; only who starts then looks at it, and says what is to be done."""
    before = REVISIONS[-2]
    with served(url, tmp_path) as service:
        service.ready()
        found = [answers(service)]
        downgrade(url, before)
        found.append(answers(service))
        with pytest.raises(AssertionError) as refused:
            serving.serve(url, tmp_path)
        upgrade(url)
        found.append(answers(service))
        with served(url, tmp_path) as another:
            another.ready()
            found.append(answers(another))
        assert found == [(200, OFFERED, "")] * 4
        assert f"has schema {before}, this version needs {HEAD}\n" in str(refused.value)
        assert "help: run `policy db upgrade`\n" in str(refused.value)
    with Store.open(url) as store:
        assert (len(store.read.decisions("default")), store.ledger.verify().ok) == (4, True)


def test_a_service_goes_on_where_a_newer_version_has_upgraded(url: str, tmp_path: Path) -> None:
    """It is not started again, until it is of the newer version, too."""
    with served(url, tmp_path) as service:
        service.ready()
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE policy_schema SET version_num = '0099'")
        found = answers(service)
        with pytest.raises(AssertionError) as refused:
            serving.serve(url, tmp_path)
        assert found == (200, OFFERED, "")
        assert f"(schema 0099, known up to {HEAD})\n" in str(refused.value)
        assert "help: install the newer version\n" in str(refused.value)
