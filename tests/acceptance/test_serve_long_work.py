"""Requests that take long hold up none that do not, nor those of others."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
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
ONE_LONG_STEP = "SELECT trim(hex(zeroblob(500000)), replace(hex(zeroblob(40000)), '0', 'a') || '0')"
"""Some minutes, in which SQLite does not look whether it is to stop."""
JSON = {"Content-Type": "application/json"}


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


@pytest.mark.parametrize("who", ["one", "limited"])
def test_a_statement_that_cannot_be_stopped_is_the_last_of_its_token(
    service: Serving, tokens: dict[str, str], who: str
) -> None:
    """It computes on after its answer: no token makes many of them, and all else goes first"""

    def query(name: str, sql: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        sent = {"sql": sql}
        answer = httpx.post(f"{service.url}/api/v1/sql", headers=headers, json=sent, timeout=60)
        return answer.status_code, answer.json()["detail"] if answer.is_error else ""

    assert query(who, ONE_LONG_STEP) == (400, "the query was stopped after 10 seconds")
    for sql in (ONE_LONG_STEP, "SELECT 1"):
        assert query(who, sql) == (
            503,
            "a statement of this token is still running that was stopped and does not end",
        )
    headers = {"Authorization": f"Bearer {tokens[who]}"}
    page = httpx.get(f"{service.url}/sql?q=SELECT+1", headers=headers, timeout=60)
    assert (page.status_code, "still running" in page.text) == (503, True)
    assert query("other", "SELECT 1") == (200, "")
    threads = Path(f"/proc/{service.process.pid}/task").glob("*/stat")
    nice = [int(one.read_text().rpartition(")")[2].split()[16]) for one in threads]
    assert nice.count(19) == 1


def test_what_loads_states_waits_with_queries_of_the_same_token(
    service: Serving, tokens: dict[str, str]
) -> None:
    """On pages and in the API alike: it takes none of the threads that everything else needs."""
    asked = serving.preempts("b")[0]["request"]
    scheduler = {"Authorization": f"Bearer {tokens['scheduler']}"}
    assert service.post("/extender/preempt", asked, headers=scheduler).status_code == 200

    def read(path: str) -> int:
        headers = {"Authorization": f"Bearer {tokens['one']}"}
        return httpx.get(service.url + path, headers=headers, timeout=60).status_code

    def query() -> httpx.Response:
        headers = {"Authorization": f"Bearer {tokens['one']}"}
        sql = {"sql": ENDLESS["one"]}
        return httpx.post(f"{service.url}/api/v1/sql", headers=headers, json=sql, timeout=60)

    long = (
        "/environments/prod?candidate=kube-1.30",
        "/decisions/1?why_not=n1",
        "/decisions/1?rules=kube-1.30",
        "/decisions/1?replay=1",
        "/decisions/1?show=node",
        "/decisions/1?show=spared",
        "/observed?rules=kube-1.30",
        "/observed/1?again=1",
        "/api/v1/observations/1",
        "/api/v1/decisions/1/why-not?node=n1",
        "/api/v1/clusters/default/state",
    )
    with ThreadPoolExecutor(20) as callers:
        queries = [callers.submit(query) for _ in range(2)]
        assert not wait(queries, timeout=3).done
        reads = {path: callers.submit(read, path) for path in long}
        wait(reads.values(), timeout=1)
        answered = [path for path, one in reads.items() if one.done()]
        others = ("/environments/prod", "/decisions/1", "/decisions/1?show=candidates", "/observed")
        statuses = [read(path) for path in others]
        assert not wait(queries, timeout=0).done
        service.kill()
    assert (answered, statuses) == ([], [200] * 4)


def test_streams_that_begin_slowly_hold_up_those_of_their_token_alone(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Each number of `Last-Event-ID` is looked up for a token that is limited: seconds for many."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    shown = 1 << 52  # the least number that such a token can have been shown
    many = ",".join(f"c{n}:{shown + n}-{shown + n}" for n in range(600))

    def opened(name: str, after: str) -> socket.socket:
        client = stack.enter_context(socket.create_connection((host, int(port)), timeout=120))
        client.sendall(
            f"GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\nLast-Event-ID: {after}\r\n"
            f"Authorization: Bearer {tokens[name]}\r\n\r\n".encode()
        )
        return client

    with ExitStack() as stack:
        slow = [opened("limited", f"0-0,{many}") for _ in range(12)]
        assert slow[0].recv(12) == b"HTTP/1.1 200"
        assert opened("other", "0-0").recv(12) == b"HTTP/1.1 200"
        for client in slow:
            client.setblocking(False)
        begun = []
        for client in slow:
            with suppress(BlockingIOError):
                begun.append(client.recv(12))
        assert len(begun) < len(slow)


def test_what_a_client_left_is_not_begun(service: Serving, tokens: dict[str, str]) -> None:
    """Whoever loads a slow page again and again waits for two of the times before, not for all."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    sent = json.dumps({"sql": ENDLESS["one"]})
    head = (
        "POST /api/v1/sql HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {tokens['one']}",
        "Content-Type: application/json",
        f"Content-Length: {len(sent)}",
    )
    clients = [socket.create_connection((host, int(port))) for _ in range(6)]
    for client in clients:
        client.sendall("\r\n".join([*head, "", sent]).encode())
    headers = {"Authorization": f"Bearer {tokens['one']}"}
    # By then the service has read what was sent before.
    assert service.get("/decisions", headers=headers).status_code == 200
    for client in clients:
        client.close()
    mine = service.post("/api/v1/sql", {"sql": "SELECT 1"}, headers={**headers, **JSON})

    def counted() -> dict[str, str]:
        metrics = service.get("/metrics", headers=headers).text
        return dict(re.findall(r'requests_total{.*part="api".*status="(\d+)"} (\S+)', metrics))

    end = time.monotonic() + 60
    while counted().get("400") != "2.0":  # that of the second one that runs may end later
        assert time.monotonic() < end
        time.sleep(0.1)
    assert (mine.status_code, counted()) == (200, {"200": "1.0", "400": "2.0", "499": "4.0"})
