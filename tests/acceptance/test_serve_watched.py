"""What whoever watches a service sees while its database, or its clients, misbehave."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import pytest
import trustme
import uvicorn
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from policy.server import protocol
from policy.server.api.routes import while_still
from policy.server.http import Surroundings
from policy.server.metrics import Metrics
from policy.server.protocol import Protocol
from policy.server.security.access import CALLER
from policy.server.security.tokens import Role, TokenFile
from policy.server.tracing import tracing
from tests.acceptance.test_serve_broken import until
from tests.support import serving
from tests.support.broken_wire import BrokenWire
from tests.support.serving import Serving, preempts

CALLS = [json.loads(one["request"]) for one in preempts("b")]
DEADLINE = 2.0


@pytest.fixture
def wire(make_postgres: Callable[[str], str], postgres_template: str) -> Iterator[BrokenWire]:
    """On the way to a database with environment `prod`."""
    found = BrokenWire(serving.filled(make_postgres(postgres_template)))
    yield found
    found.close()


def started(url: str, folder: Path, *options: object) -> Serving:
    service = serving.serve(url, folder, "--deadline", DEADLINE, *options)
    service.ready()
    return service


def figures(service: Serving, name: str) -> dict[str, float]:
    """By labels."""
    text = service.get("/metrics").text
    return {
        labels: float(value)
        for labels, value in re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, flags=re.M)
    }


def test_a_database_that_stands_still_is_said_to(wire: BrokenWire, tmp_path: Path) -> None:
    """`/readyz` and `/metrics` answer without it, and SIGTERM ends the process."""
    service = started(wire.url, tmp_path, "--extender-mode", "enforce", "--on-failure", "deny")
    assert service.post("/extender/preempt", CALLS[0]).status_code == 200
    ages = figures(service, "policy_state_age_seconds")
    assert figures(service, "policy_environment_ready") == {'environment="prod"': 1.0}
    with wire.standing_still():
        assert service.get("/readyz", timeout=20).status_code == 503
        assert "the database does not answer" in service.log.read_text()
        for call in CALLS[1:5]:
            assert service.post("/extender/preempt", call).json() == {"NodeNameToMetaVictims": {}}
        assert until(lambda: figures(service, "policy_environment_ready") == {PROD: 0.0})
        failed = figures(service, "policy_extender_failures_total")
        assert failed['reason="deadline"'] >= 4.0
        waiting = figures(service, "policy_spool_depth")[""]
        assert service.post("/extender/preempt", CALLS[5]).status_code == 200
        assert figures(service, "policy_spool_depth") == {"": waiting + 1}
        older = figures(service, "policy_state_age_seconds")
        assert (older.keys(), older[PROD] > ages[PROD]) == (ages.keys(), True)
        for _ in range(3):
            assert service.get("/readyz", timeout=20).status_code == 503
        assert service.stop() == 0
        said = re.findall("figures of the .*|not ready: the database .*", service.log.read_text())
        assert len(said) == len(set(said))
        assert "mostly the database, stands still: the process ends" in service.log.read_text()
    assert "no calls for `prod` are decided: decisions are not recorded in time" in (
        service.log.read_text()
    )


PROD = 'environment="prod"'


def test_calls_that_cannot_be_recorded_are_not_decided(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """Although the state can be read; until one is recorded again."""
    url = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, url)
    service = started(serving.filled(url), tmp_path, "--on-failure", "pass-through")
    with closing(sqlite3.connect(url, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for call in CALLS[:4]:
            assert service.post("/extender/preempt", call).status_code == 200
        assert until(lambda: service.get("/readyz").status_code == 503)
        assert figures(service, "policy_environment_ready") == {PROD: 0.0}
        other.execute("ROLLBACK")
    assert until(lambda: service.get("/readyz").status_code == 200)
    assert until(lambda: figures(service, "policy_spool_depth") == {"": 0.0})
    assert figures(service, "policy_environment_ready") == {PROD: 1.0}
    assert service.stop() == 0
    log = service.log.read_text()
    assert log.count("no calls for `prod` are decided") == 1
    assert log.count("calls for `prod` are decided again") == 1
    assert "stands still" not in log


def test_connections_that_were_ended_are_made_anew(wire: BrokenWire, tmp_path: Path) -> None:
    """As where the server was restarted: what is read afterwards is answered."""
    service = started(wire.url, tmp_path)
    pages = ("/readyz", "/decisions", "/api/v1/ledger")
    assert [service.get(page).status_code for page in pages] == [200] * 3
    with psycopg.connect(wire.url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert [service.get(page).status_code for page in pages] == [200] * 3
    assert service.stop() == 0


def test_a_call_after_a_pause_is_recorded_over_a_new_connection(
    wire: BrokenWire, tmp_path: Path
) -> None:
    """Preemptions are rare, and a server or what is before it may end connections that are idle."""
    service = started(wire.url, tmp_path, "--extender-mode", "enforce", "--on-failure", "deny")
    for call in CALLS[:3]:
        assert len(service.preempt(call)) == 1
        with psycopg.connect(wire.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        time.sleep(1)
    assert service.stop() == 0


def test_environments_that_are_none_leave_nothing(wire: BrokenWire, tmp_path: Path) -> None:
    """While they cannot be looked up some are taken to be there, and not as many as one likes."""
    service = started(wire.url, tmp_path)
    with wire.standing_still(), ThreadPoolExecutor(20) as callers:
        asked = [
            callers.submit(service.post, f"/extender/none-{n}/preempt", CALLS[0], timeout=30)
            for n in range(20)
        ]
        statuses = sorted(one.result().status_code for one in asked)
    assert statuses == [200] * 16 + [503] * 4
    assert until(lambda: figures(service, "policy_spool_depth") == {"": 0.0})
    assert until(lambda: figures(service, "policy_environment_ready") == {PROD: 1.0})
    assert service.post("/extender/none-1/preempt", CALLS[0]).status_code == 404
    assert figures(service, "policy_environment_ready") == {PROD: 1.0}
    assert service.stop() == 0


def test_connections_without_requests_keep_nobody_out(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """However many there are, and whether they begin a head or not; those in use stay."""
    url = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, url)
    service = started(serving.filled(url), tmp_path)
    port = int(service.url.rpartition(":")[2])
    known = socket.create_connection(("127.0.0.1", port))
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    known.sendall(request)
    assert known.recv(4096).startswith(b"HTTP/1.1 200")
    with ExitStack() as stack:
        stack.enter_context(known)
        for number in range(600):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if number % 2:
                silent.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert service.get("/healthz").status_code == 200
        assert service.post("/extender/preempt", CALLS[0]).status_code == 200
        known.sendall(request)
        assert known.recv(4096).startswith(b"HTTP/1.1 200")
    assert service.stop() == 0


@contextmanager
def crowded(
    limit: int, monkeypatch: pytest.MonkeyPatch, *, certificate: Path | None = None
) -> Iterator[int]:
    """The port of a server with room for so many connections.

    certificate: with its key, for TLS.

    It answers without reading a body, and `/large` with more than the system keeps for a client.
    The answer of `/held` has no end. Callers have their names as query.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope[CALLER] = scope["query_string"].decode()
        if scope["path"] == "/held":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        body = b"x" * (32 << 20 if scope["path"] == "/large" else 1)
        await Response(body)(scope, receive, send)

    monkeypatch.setattr(protocol, "_CONNECTIONS", limit)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=Protocol,
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
                ssl_certfile=certificate,
            )
        )
        thread = threading.Thread(target=server.run, args=[[listener]])
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "request_of_each",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
    ids=["a body that does not come", "an answer that is not taken", "the last one of a client"],
)
def test_halves_of_requests_keep_nobody_out(
    request_of_each: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends them needs no token."""
    with crowded(3, monkeypatch) as port, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(request_of_each)
            assert client.recv(4).startswith(b"HTTP")
        url = f"http://127.0.0.1:{port}/"
        assert [httpx.get(url, timeout=60).text for _ in range(5)] == ["x"] * 5


def test_answers_that_are_not_taken_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whoever has the most, all but one go, the oldest first; others have theirs."""
    monkeypatch.setattr(protocol, "_UNTAKEN_BYTES", 48 << 20)

    def whole(client: socket.socket) -> bool:
        found = 0
        with suppress(ConnectionError):
            while part := client.recv(1 << 20):
                found += len(part)
        return found > 32 << 20

    with crowded(9, monkeypatch) as port, ExitStack() as stack:

        def asked(name: str) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            head = f"GET /large?{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            client.sendall(head.encode())
            assert client.recv(4, socket.MSG_PEEK) == b"HTTP"
            return client

        other = asked("one")
        first, second, third = (asked("many") for _ in range(3))
        assert [whole(client) for client in (first, second, third, other)] == [
            *(False, False, True),
            True,
        ]


def test_a_client_that_does_not_say_goodbye_over_tls_harms_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no request is refused, and the end of its connection waits for the client. The time
    for a head passes meanwhile, which closes it once more; others are served as before."""
    monkeypatch.setattr(protocol, "_HEAD_SECONDS", 0.5)
    authority = trustme.CA()
    certificate = tmp_path / "tls.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with (
        crowded(1, monkeypatch, certificate=certificate) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as stranger,
        trusting.wrap_socket(stranger, server_hostname="127.0.0.1") as wrapped,
    ):
        wrapped.sendall(b"no request\r\n\r\n")
        assert wrapped.recv(12) == b"HTTP/1.1 400"
        time.sleep(1)
        answer = httpx.get(f"https://127.0.0.1:{port}/large", verify=trusting, timeout=60)
        assert len(answer.content) == 32 << 20
        with pytest.raises((ssl.SSLError, ConnectionError)):
            wrapped.unwrap()  # there is no room for it any more
    assert "Traceback" not in caplog.text


def test_room_is_made_by_whoever_has_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest of theirs gives way, and where none has two, the one that comes."""

    with crowded(4, monkeypatch) as port, ExitStack() as stack:

        def held(name: str) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(f"GET /held?{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(4) == b"HTTP"
            return client

        def ends(client: socket.socket) -> bool:
            client.settimeout(1)
            try:
                while client.recv(4096):
                    pass
            except TimeoutError:
                return False
            except ConnectionError:
                pass
            return True

        one, two, three, other = held("many"), held("many"), held("many"), held("one")
        fifth = held("two")
        assert [ends(client) for client in (one, two, three, other, fifth)] == [True, *[False] * 4]
        sixth = held("three")
        assert [ends(client) for client in (two, three, other, sixth)] == [True, *[False] * 3]
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/", timeout=60)
        assert not any(ends(client) for client in (three, other, fifth, sixth))


def test_a_scheduler_that_waits_is_not_the_first_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection has waited for longer than those of a stranger, or of a reader with many."""

    with crowded(4, monkeypatch) as port, ExitStack() as stack:

        def idle(name: str) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(f"GET /?{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert client.recv(4096).endswith(b"x")
            return client

        def is_closed(client: socket.socket) -> bool:
            client.settimeout(0.5)
            try:
                return not client.recv(1)
            except TimeoutError:
                return False

        scheduler, reader, stranger, another = idle("scheduler"), idle("reader"), idle(""), idle("")
        idle("reader")
        assert [is_closed(one) for one in (scheduler, reader, stranger, another)] == [
            *(False, False, True, False),
        ]
        idle("reader")
        assert [is_closed(one) for one in (scheduler, reader, another)] == [False, True, False]


def test_an_export_is_cut_off_where_its_token_is_revoked(caplog: pytest.LogCaptureFixture) -> None:
    """The connection is closed before the end, so that it is not taken for the whole."""
    allowed = [True]

    async def parts() -> AsyncIterator[bytes]:
        yield b"one\n"
        allowed[0] = False
        yield b"two\n"

    app = Surroundings(
        StreamingResponse(while_still(lambda: allowed[0], parts())),
        metrics=Metrics(),
        hosts=None,
        tracing=tracing(),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=Protocol, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=[[listener]])
        thread.start()
        with (
            pytest.raises(httpx.RemoteProtocolError),
            httpx.stream("GET", f"http://127.0.0.1:{listener.getsockname()[1]}/x") as answer,
        ):
            list(answer.iter_lines())
        server.should_exit = True
        thread.join(60)
    assert "an answer was cut off: the token of its request is not valid any more" in caplog.text
    assert "Traceback" not in caplog.text
    assert answer.status_code == 200


def test_nobody_is_let_in_without_the_file_of_tokens(tmp_path: Path, sqlite_template: Path) -> None:
    """Which is said to whoever looks whether the service is ready, as long as it lasts."""
    url, path = str(tmp_path / "policy.db"), tmp_path / "tokens.json"
    shutil.copy(sqlite_template, url)
    TokenFile(path).create("scheduler", Role.EXTENDER, namespaces=None, now_ms=1)
    service = started(serving.filled(url), tmp_path, "--tokens", path)
    away = path.rename(tmp_path / "away")
    assert until(lambda: service.get("/readyz").status_code == 503)
    away.rename(path)
    assert until(lambda: service.get("/readyz").status_code == 200)
    assert service.stop() == 0
    assert "not ready: no token is accepted: " in service.log.read_text()
