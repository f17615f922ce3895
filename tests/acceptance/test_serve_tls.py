"""TLS: the service proves who it is, and a scheduler may by a certificate instead of a token."""

from __future__ import annotations

import html
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme

from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from tests.support import serving
from tests.support.serving import Serving, preempts

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A file of tokens, and the token of a viewer."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    return path, TokenFile(path).create("reader", Role.VIEWER, namespaces=None, now_ms=1)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    path = str(tmp_path_factory.mktemp("tls") / "policy.db")
    shutil.copy(sqlite_template, path)
    return serving.filled(path)


@contextmanager
def few_files() -> Iterator[None]:
    """What is started meanwhile may open 1,024 files at first, as in most shells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def service(
    db: str, secret: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    own = AUTHORITY.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    own.private_key_pem.write_to_path(folder / "tls.key")
    AUTHORITY.cert_pem.write_to_path(folder / "ca.crt")
    with few_files():
        started = serving.serve(
            db,
            folder,
            *("--tokens", secret[0]),
            *("--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key"),
            *("--client-ca", folder / "ca.crt"),
        )
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


def client(
    *, issued_by: trustme.CA | None = None, trusting: trustme.CA = AUTHORITY
) -> httpx.Client:
    """Trusts one authority, and shows a certificate of another or the same one."""
    context = ssl.create_default_context()
    trusting.configure_trust(context)
    if issued_by is not None:
        issued_by.issue_cert("scheduler.example", common_name="scheduler").configure_cert(context)
    return httpx.Client(verify=context, timeout=60)


def test_the_service_proves_who_it_is(service: Serving, secret: tuple[Path, str]) -> None:
    """Whoever does not trust its authority makes no connection; its cookie is for TLS alone."""
    assert service.url.startswith("https://")
    with client(trusting=STRANGER) as stranger, pytest.raises(httpx.ConnectError):
        stranger.get(service.url + "/healthz")
    with client() as known:
        assert "max-age" in known.get(service.url + "/healthz").headers["strict-transport-security"]
        form = {"token": secret[1], "next": "/"}
        cookie = known.post(service.url + "/login", data=form).headers["set-cookie"]
    assert ("Secure" in cookie, "HttpOnly" in cookie) == (True, True)


def test_a_session_over_tls_ends_by_logging_out(service: Serving, secret: tuple[Path, str]) -> None:
    """Browsers ignore an answer about a `__Host-` cookie that is not as strict as the cookie."""
    with client() as known:
        known.post(service.url + "/login", data={"token": secret[1], "next": "/"})
        form_token = re.findall(
            r'name="form_token" value="([^"]+)"', known.get(service.url + "/").text
        )[0]
        answer = known.post(service.url + "/logout", data={"form_token": form_token})
    cookie = answer.headers["set-cookie"]
    name, *attributes = [part.strip() for part in cookie.split(";")]
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert name == '__Host-policy=""'
    assert {"Max-Age=0", "Path=/", "Secure", "HttpOnly", "SameSite=strict"} <= set(attributes)


def test_a_shared_address_keeps_its_query_through_the_login(
    service: Serving, secret: tuple[Path, str]
) -> None:
    shared = "/decisions?origin=extender&outcome=preempt"
    with client() as known:
        to_login = known.get(service.url + shared).headers["location"]
        page = known.get(service.url + to_login).text
        (target,) = re.findall(r'name="next" value="([^"]+)"', page)
        form = {"token": secret[1], "next": html.unescape(target)}
        answer = known.post(service.url + "/login", data=form)
    assert answer.headers["location"] == shared


def test_without_tls_there_is_no_answer(service: Serving) -> None:
    with httpx.Client() as plain, pytest.raises(httpx.TransportError):
        plain.get(service.url.replace("https:", "http:") + "/healthz")


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_tokens_in_plain_text_are_warned_of(
    db: str, secret: tuple[Path, str], tmp_path: Path, host: str, warned: bool
) -> None:
    """A proxy in front may speak TLS; where there is none the log says what follows."""
    plain = serving.serve(db, tmp_path, "--tokens", secret[0], "--host", host, environment="")
    assert plain.stop() == 0
    said = f"WARNING policy.server: without --tls-cert the service listens on `{host}` in plain"
    assert (said in plain.log.read_text()) is warned


def test_connections_without_tls_are_closed_and_keep_nobody_out(service: Serving) -> None:
    """However many say nothing: they are gone after ten seconds, and files are left meanwhile."""
    host, _, port = service.url.removeprefix("https://").partition(":")
    with ExitStack() as opened, client() as known:
        silent = [socket.create_connection((host, int(port)), timeout=30) for _ in range(1100)]
        for one in silent:
            opened.enter_context(one)
        assert known.get(service.url + "/healthz").status_code == 200
        assert {one.recv(1) for one in silent} == {b""}
        assert known.get(service.url + "/healthz").status_code == 200


def test_a_certificate_calls_the_extender_and_nothing_else(service: Serving, db: str) -> None:
    """Its common name is in the record; it reads no page and nothing of the API."""
    call = preempts("b")[0]["request"]
    with client(issued_by=AUTHORITY) as scheduler:
        for _ in range(600):
            if scheduler.get(service.url + "/readyz").status_code == 200:
                break
        answer = scheduler.post(service.url + "/extender/preempt", content=call)
        api = scheduler.get(service.url + "/api/v1/decisions")
        page = scheduler.get(service.url + "/decisions")
    assert (answer.status_code, api.status_code, page.status_code) == (200, 401, 303)
    with Store.open(db) as store:
        (row,) = store.read.decisions("default")
        assert store.read.decision(row.id).served.caller == "certificate scheduler"


def test_only_certificates_of_the_authority_count(service: Serving) -> None:
    """Of another authority: no connection. None at all: a token is needed."""
    call = preempts("b")[0]["request"]
    with client(issued_by=STRANGER) as stranger, pytest.raises(httpx.TransportError):
        stranger.post(service.url + "/extender/preempt", content=call)
    with client() as unknown:
        answer = unknown.post(service.url + "/extender/preempt", content=call)
    assert answer.status_code == 401


# --- renewed while the service runs ---------------------------------------------------------------


def written(folder: Path, issuer: trustme.CA, *, callers: trustme.CA = AUTHORITY) -> Path:
    """A folder with what a service needs, as a secret of Kubernetes has it."""
    folder.mkdir()
    own = issuer.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    own.private_key_pem.write_to_path(folder / "tls.key")
    callers.cert_pem.write_to_path(folder / "ca.crt")
    return folder


def shown(files: Path, folder: Path) -> None:
    """Have links lead to a folder, all at the same instant, as the kubelet does."""
    link = files / "..new"
    link.symlink_to(folder)
    link.rename(files / "..data")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Links to the files of the service, through one that is swapped."""
    found = tmp_path / "mounted"
    found.mkdir()
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (found / name).symlink_to(f"..data/{name}")
    shown(found, written(tmp_path / "first", AUTHORITY))
    return found


@pytest.fixture
def renewing(db: str, tmp_path: Path, files: Path) -> Iterator[Serving]:
    tokens = tmp_path / "tokens.json"
    TokenFile(tokens).create("reader", Role.VIEWER, namespaces=None, now_ms=1)
    started = serving.serve(
        db,
        tmp_path,
        *("--tokens", tokens),
        *("--tls-cert", files / "tls.crt", "--tls-key", files / "tls.key"),
        *("--client-ca", files / "ca.crt"),
        environment="",
        process_group=0,
    )
    yield started
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


def until(fact: Callable[[], bool], service: Serving) -> None:
    """Wait for what a service does soon."""
    for _ in range(600):
        if fact():
            return
        time.sleep(0.1)
    raise AssertionError(service.log.read_text())


def answers(service: Serving, *, trusting: trustme.CA, issued_by: trustme.CA | None = None) -> bool:
    """On a new connection."""
    with client(trusting=trusting, issued_by=issued_by) as caller:
        try:
            return caller.get(service.url + "/healthz").status_code == 200
        except httpx.TransportError:
            return False


def test_a_renewed_certificate_is_taken_over(renewing: Serving, files: Path) -> None:
    """By new connections, those that there are go on; the authority of callers is another one."""
    with client() as before:
        assert before.get(renewing.url + "/healthz").status_code == 200
        shown(files, written(files.parent / "second", STRANGER, callers=STRANGER))
        until(lambda: answers(renewing, trusting=STRANGER), renewing)
        found = {
            "the old one": answers(renewing, trusting=AUTHORITY),
            "callers of before": answers(renewing, trusting=STRANGER, issued_by=AUTHORITY),
            "callers of now": answers(renewing, trusting=STRANGER, issued_by=STRANGER),
            "a connection of before": before.get(renewing.url + "/healthz").status_code == 200,
        }
    assert found == {
        "the old one": False,
        "callers of before": False,
        "callers of now": True,
        "a connection of before": True,
    }


def test_a_wrong_pair_is_not_taken_over(renewing: Serving, files: Path) -> None:
    """Half of it is written, then the rest: the old one stays meanwhile, and the log says why."""
    second = written(files.parent / "second", STRANGER)
    half = written(files.parent / "half", AUTHORITY)
    shutil.copy(second / "tls.crt", half / "tls.crt")
    shown(files, half)
    said = f"{files / 'tls.key'}: the key is not that of the certificate in `{files / 'tls.crt'}`"
    until(lambda: said in renewing.log.read_text(), renewing)
    found = [answers(renewing, trusting=AUTHORITY), answers(renewing, trusting=STRANGER)]
    (half / "tls.key").unlink()
    until(lambda: "tls.key: No such file" in renewing.log.read_text(), renewing)
    shutil.copy(second / "tls.key", half / "tls.key")
    until(lambda: answers(renewing, trusting=STRANGER), renewing)
    log = renewing.log.read_text()
    assert (found, log.count(said), log.count("is not renewed")) == ([True, False], 1, 2)


@pytest.mark.parametrize(
    ("days", "said"), [(-1, ["has expired: callers refuse it"]), (1, [])], ids=["expired", "valid"]
)
def test_an_expired_certificate_is_taken_over_and_said(
    renewing: Serving, files: Path, days: int, said: list[str]
) -> None:
    """Callers refuse it, and a scheduler that may ignore its extender says nothing of that."""
    own = AUTHORITY.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=days))
    second = written(files.parent / "second", AUTHORITY)
    own.cert_chain_pems[0].write_to_path(second / "tls.crt")
    own.private_key_pem.write_to_path(second / "tls.key")
    shown(files, second)
    until(lambda: "is that of new connections" in renewing.log.read_text(), renewing)
    assert answers(renewing, trusting=AUTHORITY) is (not said)
    lines = [line.partition(" ")[2] for line in renewing.log.read_text().splitlines()]
    assert [line for line in lines if line.startswith("WARNING")] == [
        f"WARNING policy.server: the certificate in `{files / 'tls.crt'}` {told}" for told in said
    ]


def test_a_hangup_has_files_read_and_ends_nothing(renewing: Serving, tmp_path: Path) -> None:
    """Also where all processes get it, and where nothing tells that the files are other ones."""
    tokens = tmp_path / "tokens.json"
    file = TokenFile(tokens)
    held = {
        name: {"Authorization": "Bearer " + file.create(name, role, namespaces=None, now_ms=1)}
        for name, role in (("one", Role.VIEWER), ("scheduler", Role.EXTENDER))
    }

    def status(of: str) -> int:
        path = "/extender/prod/preempt" if of == "scheduler" else "/api/v1/decisions"
        method = "POST" if of == "scheduler" else "GET"
        call = preempts("b")[0]["request"] if of == "scheduler" else None
        return caller.request(
            method, renewing.url + path, content=call, headers=held[of]
        ).status_code

    def revoke_unseen() -> None:
        before = tokens.stat()
        changed = tmp_path / "changed.json"
        shutil.copy(tokens, changed)
        TokenFile(changed).revoke("one", now_ms=2)
        tokens.write_bytes(changed.read_bytes())
        os.utime(tokens, ns=(before.st_atime_ns, before.st_mtime_ns))

    with client() as caller:
        # The processes that decide and record are started by the first call.
        found = [status("scheduler"), status("one")]
        pids = serving.children(renewing.process.pid)
        pids += [pid for child in pids for pid in serving.children(child)]
        revoke_unseen()
        os.killpg(renewing.process.pid, signal.SIGHUP)
        until(lambda: status("one") == 401, renewing)
        found.append(status("scheduler"))
    now = serving.children(renewing.process.pid)
    assert (found, len(pids)) == ([200, 200, 200], 2)
    assert [*now, *serving.children(now[0])] == pids
    log = renewing.log.read_text()
    assert [log.count(said) for said in ("SIGHUP: ", "is that of new connections")] == [1, 1]
