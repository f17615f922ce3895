"""TLS: the service proves who it is, and a scheduler may by a certificate instead of a token."""

from __future__ import annotations

import html
import re
import shutil
import ssl
from collections.abc import Iterator
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


@pytest.fixture(scope="module")
def service(
    db: str, secret: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    own = AUTHORITY.issue_cert("127.0.0.1")
    own.cert_chain_pems[0].write_to_path(folder / "tls.crt")
    own.private_key_pem.write_to_path(folder / "tls.key")
    AUTHORITY.cert_pem.write_to_path(folder / "ca.crt")
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
