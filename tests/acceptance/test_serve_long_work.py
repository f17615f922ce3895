"""Requests that take long hold up none that do not, nor those of others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import httpx
import pytest

from policy.server.security.tokens import Role, TokenFile
from tests.support import serving
from tests.support.serving import Serving, preempts

OF_ALL = ", ".join(f"v_cluster_at v{number}" for number in range(9))
ENDLESS = {
    "one": f"SELECT count(*) FROM {OF_ALL}",
    "limited": "WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
    " SELECT count(*) FROM r",
}
"""By token; ended after the seconds that SQL may take."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`one` and `other` are viewers, `limited` sees a namespace."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {
        name: file.create(name, role, namespaces=spaces, now_ms=1)
        for name, role, spaces in (
            ("one", Role.VIEWER, None),
            ("other", Role.VIEWER, None),
            ("limited", Role.VIEWER, ["empty"]),
            ("operator", Role.OPERATOR, None),
            ("scheduler", Role.EXTENDER, None),
        )
    }
    return {**made, "file": str(path)}


@pytest.fixture
def service(tmp_path: Path, sqlite_template: Path, tokens: dict[str, str]) -> Iterator[Serving]:
    """Killed in the end: the slow requests are not waited for."""
    url = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, url)
    started = serving.serve(serving.filled(url), tmp_path, "--tokens", tokens["file"])
    started.ready()
    yield started
    started.kill()


@pytest.mark.parametrize("who", ["one", "limited"])
def test_slow_queries_hold_up_nobody_else(
    service: Serving, tokens: dict[str, str], who: str
) -> None:
    """However many one token sends: pages, metrics, schedulers, activations, queries of others."""

    def asked(name: str, method: str, path: str, **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        return httpx.request(method, service.url + path, headers=headers, timeout=60, **more)

    def query(name: str, sql: str) -> httpx.Response:
        return asked(name, "POST", "/api/v1/sql", json={"sql": sql})

    with ThreadPoolExecutor(10) as callers:
        slow: list[Future[httpx.Response]] = [
            callers.submit(query, who, ENDLESS[who]) for _ in range(10)
        ]
        assert not wait(slow, timeout=1).done
        change = {"rules": "kube-1.36", "reason": "for a test"}
        answers = [
            asked("other", "GET", "/decisions"),
            asked("other", "GET", "/metrics"),
            asked("other", "GET", "/readyz"),
            asked("operator", "POST", "/api/v1/environments/prod/activations", json=change),
            asked("scheduler", "POST", "/extender/preempt", content=preempts("b")[0]["request"]),
            query("other", "SELECT 1 AS one"),
            asked(who, "GET", "/api/v1/decisions"),
        ]
        assert not wait(slow, timeout=0).done
        service.kill()
    assert [answer.status_code for answer in answers] == [200, 200, 200, 201, 200, 200, 200]
