"""Kubeconfigs as people have them: certificates, rotated tokens, programs, proxies, many files."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

from policy.live.connection import Connection, Interrupted, LiveError, place
from tests.support.api_server import ApiServer

AUTHORITY = trustme.CA()
CLIENTS = trustme.CA()


def written(folder: Path, name: str = "config", **parts: Any) -> str:
    """A kubeconfig with one context `test`, and what is to be different in it."""
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "ann"}}],
        "clusters": [{"name": "test", "cluster": parts.pop("cluster", {})}],
        "users": [{"name": "ann", "user": parts.pop("user", {})}],
    }
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(json.dumps({**config, **parts}))
    return str(file)


def version(config: str | None, **options: Any) -> str:
    """What the server says to a client with this kubeconfig."""
    connection = Connection(place(kubeconfig=config, **options))
    try:
        return connection.version()
    finally:
        connection.close()


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@contextmanager
def secure(name: str, *, clients: bool = False) -> Iterator[ApiServer]:
    """A server with a certificate for a name; clients: it wants one of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(name).configure_cert(context)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        CLIENTS.configure_trust(context)
    with ApiServer(tls=context) as server:
        yield server


def test_a_certificate_of_ones_own_authority(tmp_path: Path) -> None:
    """As a file beside the kubeconfig, as data in it, not checked at all; refused without."""
    AUTHORITY.cert_pem.write_to_path(tmp_path / "ca.crt")
    data = encoded(AUTHORITY.cert_pem.bytes())
    with secure("127.0.0.1") as server:
        found = [
            version(written(tmp_path, cluster={"server": server.url, **how}))
            for how in (
                {"certificate-authority": "ca.crt"},
                {"certificate-authority-data": data},
                {"insecure-skip-tls-verify": True},
            )
        ]
        with pytest.raises(Interrupted, match="CERTIFICATE_VERIFY_FAILED"):
            version(written(tmp_path, cluster={"server": server.url}))
    assert found == ["v1.35.6"] * 3


def test_a_server_under_another_name(tmp_path: Path) -> None:
    """`tls-server-name`: the name that the certificate is for."""
    data = encoded(AUTHORITY.cert_pem.bytes())
    with secure("kube.example") as server:
        cluster = {"server": server.url, "certificate-authority-data": data}
        named = {**cluster, "tls-server-name": "kube.example"}
        assert version(written(tmp_path, cluster=named)) == "v1.35.6"
        with pytest.raises(Interrupted, match="mismatch"):
            version(written(tmp_path, cluster=cluster))


def test_a_client_certificate(tmp_path: Path) -> None:
    """As files and as data."""
    issued = CLIENTS.issue_cert("ann@example.org")
    pem = b"".join(one.bytes() for one in issued.cert_chain_pems)
    (tmp_path / "ann.crt").write_bytes(pem)
    issued.private_key_pem.write_to_path(tmp_path / "ann.key")
    users = (
        {"client-certificate": "ann.crt", "client-key": "ann.key"},
        {
            "client-certificate-data": encoded(pem),
            "client-key-data": encoded(issued.private_key_pem.bytes()),
        },
    )
    with secure("127.0.0.1", clients=True) as server:
        authority = encoded(AUTHORITY.cert_pem.bytes())
        cluster = {"server": server.url, "certificate-authority-data": authority}
        found = [version(written(tmp_path, cluster=cluster, user=user)) for user in users]
        with pytest.raises(Interrupted):
            version(written(tmp_path, cluster=cluster))
    assert found == ["v1.35.6"] * 2


def test_a_token_file_that_is_rotated(tmp_path: Path) -> None:
    """It is read again when the server refuses the token; relative to the kubeconfig."""
    token = tmp_path / "token"
    token.write_text("first\n")
    with ApiServer() as server:
        config = written(tmp_path, cluster={"server": server.url}, user={"tokenFile": "token"})
        connection = Connection(place(kubeconfig=config))
        server.token = "first"
        before = connection.version()
        server.token = "second"
        with pytest.raises(Interrupted, match="credentials were refused"):
            connection.version()
        token.write_text("second\n")
        assert (before, connection.version()) == ("v1.35.6", "v1.35.6")
        connection.close()


PROGRAM = """#!/bin/sh
echo "$KUBERNETES_EXEC_INFO" > {folder}/asked
echo run >> {folder}/runs
printf '{{"apiVersion": "client.authentication.k8s.io/%s", "kind": "ExecCredential",' $1
token="$TOKEN-$(wc -l < {folder}/runs)"
printf '"status": {{"token": "%s", "expirationTimestamp": "%s"}}}}' "$token" $2
"""


@pytest.mark.parametrize("api", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("until", "runs"), [("2099-01-01T00:00:00Z", 2), ("2020-01-01T00:00:00Z", 3)]
)
def test_a_credential_program(api: str, until: str, runs: int, tmp_path: Path) -> None:
    """Run once for a token, again when it has expired or is refused; gets what it may ask for."""
    program = tmp_path / "login"
    program.write_text(PROGRAM.format(folder=tmp_path))
    program.chmod(0o755)
    call = {
        "apiVersion": f"client.authentication.k8s.io/{api}",
        "command": str(program),
        "args": [api, until],
        "env": [{"name": "TOKEN", "value": "t"}],
        "provideClusterInfo": True,
    }
    with ApiServer() as server:
        config = written(tmp_path, cluster={"server": server.url}, user={"exec": call})
        connection = Connection(place(kubeconfig=config))
        server.token = "t-1"
        connection.version()
        server.token = "t-2" if runs == 2 else ""
        connection.version()
        server.token = "t-2" if runs == 2 else "t-3"
        connection.version()
        connection.close()
    asked = json.loads((tmp_path / "asked").read_text())
    assert (len((tmp_path / "runs").read_text().split()), asked) == (
        runs,
        {
            "apiVersion": f"client.authentication.k8s.io/{api}",
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": server.url}},
        },
    )


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "absent": ({"command": "no-such-login", "installHint": "brew install it"}, "brew install it"),
    "fails": ({"command": "sh", "args": ["-c", "echo no session >&2; exit 3"]}, "no session"),
    "no JSON": ({"command": "echo", "args": ["hello"]}, "no ExecCredential"),
    "no text": (
        {"command": "printf", "args": ['{"status": {"token": "\\377"}}']},
        "no ExecCredential: one of its texts is not UTF-8",
    ),
    "no token": ({"command": "echo", "args": ['{"status": {}}']}, "gave no token"),
    "certificate": (
        {"command": "echo", "args": ['{"status": {"clientCertificateData": "x"}}']},
        "not supported from programs",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_credential_program_that_fails(how: str, tmp_path: Path) -> None:
    """It is named, with what it said."""
    call, said = BROKEN[how]
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **call}}
    with ApiServer() as server, pytest.raises(Interrupted, match=said) as caught:
        version(written(tmp_path, cluster={"server": server.url}, user=user))
    assert f"credential program `{call['command']}`" in str(caught.value)


@contextmanager
def proxying(seen: list[str]) -> Iterator[str]:
    """A proxy for plain HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            seen.append(self.path)
            with urlopen(self.path, timeout=10) as answer:
                body = answer.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_proxy(tmp_path: Path) -> None:
    """`proxy-url` of the cluster."""
    seen: list[str] = []
    with ApiServer() as server, proxying(seen) as proxy:
        cluster = {"server": server.url, "proxy-url": proxy}
        assert version(written(tmp_path, cluster=cluster)) == "v1.35.6"
        assert seen == [f"{server.url}/version"]


def test_somebody_else(tmp_path: Path) -> None:
    """`as` of the user is sent; a user is not needed."""
    with ApiServer() as server:
        cluster = {"server": server.url}
        version(written(tmp_path, cluster=cluster, user={"token": "t", "as": "carol"}))
        headers = server.headers
        anonymous = [{"name": "test", "context": {"cluster": "test"}}]
        assert version(written(tmp_path, cluster=cluster, contexts=anonymous)) == "v1.35.6"
    assert (headers["impersonate-user"], headers["authorization"]) == ("carol", "Bearer t")


def test_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`KUBECONFIG` with several: merged, the first one wins, paths relative to each file."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "token").write_text("of-b")
    with ApiServer() as server:
        contexts = [{"name": "prod", "context": {"cluster": "test", "user": "bob"}}]
        first = written(tmp_path / "a", cluster={"server": server.url})
        second = written(
            tmp_path / "b",
            cluster={"server": "http://wrong.example"},
            contexts=contexts,
            users=[{"name": "bob", "user": {"tokenFile": "token"}}],
            **{"current-context": "prod"},
        )
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent:{first}:{second}")
        assert (place().name, place().server) == ("test", server.url)
        assert version(None, context="prod") == "v1.35.6"
        assert server.headers["authorization"] == "Bearer of-b"


WRONG: dict[str, tuple[Callable[[Path], str], str]] = {
    "absent": (lambda folder: str(folder / "none"), "none does not exist"),
    "no YAML": (lambda folder: text(folder, "a: ["), "is no YAML"),
    "no mapping": (lambda folder: text(folder, "- a"), "is no mapping"),
    "no context": (
        lambda folder: written(folder, **{"current-context": ""}),
        "sets no current context",
    ),
    "unknown context": (
        lambda folder: written(folder, **{"current-context": "prod"}),
        "holds no context `prod`; it holds `test`",
    ),
    "unknown user": (
        lambda folder: written(folder, users=[]),
        "holds no user `ann`; it holds none",
    ),
    "groups": (
        lambda folder: written(folder, user={"as": "carol", "as-groups": ["ops"]}),
        "`as-groups` of the user is not supported",
    ),
}


def text(folder: Path, content: str) -> str:
    file = folder / "config"
    file.write_text(content)
    return str(file)


@pytest.mark.parametrize("what", WRONG)
def test_a_kubeconfig_that_cannot_be_used(what: str, tmp_path: Path) -> None:
    """The message says what is missing."""
    make, said = WRONG[what]
    with pytest.raises(LiveError, match=said):
        place(kubeconfig=make(tmp_path))
