"""Requests to an API server: where it is, who asks, and what its refusals mean."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, User
from lightkube.core.exceptions import ConfigError

from policy.live import kubeconfig
from policy.live.credentials import CredentialProgram, ProgramAuth
from policy.typed import UNDECODABLE, prepared

_CONNECT_SECONDS: Final = 10.0
_LIST_SECONDS: Final = 120.0
_NO_SELECTOR: Final = "field label not supported"


class LiveError(Exception):
    """A cluster cannot be read; `help` says what to do."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class Interrupted(Exception):
    """A request failed in a way that may pass: it is worth trying again."""

    retry_after = 0.0  #: seconds that the server wants to be left alone


class Busy(Interrupted):
    """The server answered that it cannot do it at the moment (429, 5xx)."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Expired(Exception):
    """The resourceVersion, or the continue token, is too old: list again (410 Gone)."""


class NotServed(Exception):
    """The API server does not know the resource (404), or cannot select of it what is wanted."""


class AccessRefused(LiveError):
    """The API server does not let this user do it (401, 403)."""


class _Details(msgspec.Struct, kw_only=True, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, kw_only=True):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Which cluster, and how it was named."""

    config: SingleConfig
    name: str  #: of the context; `in-cluster`
    server: str
    program: ProgramAuth | None = None  #: that gives out the credentials
    proxy: str | None = None
    tls_server_name: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  #: of impersonation


def place(
    *, kubeconfig: str | None = None, context: str | None = None, in_cluster: bool = False
) -> ClusterAddress:
    """The cluster that is meant: as kubectl finds it, or that of the pod it runs in.

    kubeconfig: a file; else those of `KUBECONFIG`, merged, else `~/.kube/config`.
    Raises LiveError.
    """
    if in_cluster:
        return _in_cluster()
    try:
        return _of_kubeconfig(kubeconfig, context)
    except (ConfigError, OSError, ValueError) as exc:
        advice = "name a kubeconfig with `--kubeconfig`, and one of its contexts with `--context`"
        raise LiveError(str(exc), help=advice) from exc


def _in_cluster() -> ClusterAddress:
    advice = "leave out `--in-cluster` to use a kubeconfig"
    try:
        config = KubeConfig.from_service_account().get()
    except KeyError as exc:
        raise LiveError(f"not in a cluster: the variable {exc} is not set", help=advice) from exc
    except (ConfigError, OSError, ValueError) as exc:
        raise LiveError(f"not in a cluster: {exc}", help=advice) from exc
    assert config is not None
    return ClusterAddress(config=config, name="in-cluster", server=config.cluster.server)


def _of_kubeconfig(named: str | None, context: str | None) -> ClusterAddress:
    """Raises ConfigError, OSError, ValueError."""
    content = kubeconfig.read(named)
    name = kubeconfig.current(content, context)
    inner = kubeconfig.entry(content, "contexts", name)
    cluster = kubeconfig.entry(content, "clusters", str(inner.get("cluster") or ""))
    user = kubeconfig.entry(content, "users", inner["user"]) if inner.get("user") else {}
    program = user.pop("exec", None)
    config = SingleConfig(
        context_name=name,
        context=msgspec.convert(inner, prepared(Context)),
        cluster=msgspec.convert(cluster, prepared(Cluster)),
        user=msgspec.convert(user, prepared(User)),
    )
    return ClusterAddress(
        config=config,
        name=name,
        server=config.cluster.server,
        program=ProgramAuth(msgspec.convert(program, prepared(CredentialProgram)), cluster)
        if program
        else None,
        proxy=cluster.get("proxy-url"),
        tls_server_name=cluster.get("tls-server-name") or "",
        headers=_impersonating(user),
    )


def _impersonating(user: Mapping[str, Any]) -> dict[str, str]:
    """The headers of `as`. Raises KubeconfigError for what is not supported of it."""
    others = [key for key in ("as-uid", "as-groups", "as-user-extra") if user.get(key)]
    if others:
        raise kubeconfig.KubeconfigError(f"`{others[0]}` of the user is not supported; `as` is")
    return {"Impersonate-User": str(user["as"])} if user.get("as") else {}


class Connection:
    """One cluster's API server; safe to use from several threads."""

    def __init__(self, at: ClusterAddress) -> None:
        self.place = at
        self.source = at.server
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_LIST_SECONDS)
        limits = ConnectionParams(timeout=timeout, proxy=at.proxy)
        try:
            self._client = Client(at.config, limits)
        except (ConfigError, OSError, ValueError) as exc:
            raise LiveError(f"{at.server}: {exc}") from exc
        if at.program is not None:
            self._client.auth = at.program
        self._client.headers.update(at.headers)
        self._extensions = {"sni_hostname": at.tls_server_name} if at.tls_server_name else {}

    def close(self) -> None:
        """From any thread; requests are interrupted from then on."""
        self._client.close()

    def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The body of an answer. Raises Interrupted, Expired, NotServed, AccessRefused."""
        try:
            answer = self._client.get(path, params=dict(params), extensions=dict(self._extensions))
        except (httpx2.HTTPError, OSError, ConfigError) as exc:
            raise Interrupted(f"{path}: {_named(exc)}") from exc
        except RuntimeError as exc:
            if not self._client.is_closed:
                raise
            raise Interrupted(f"{path}: the connection was closed") from exc
        if answer.status_code != 200:
            raise _refusal(path, answer)
        _check_text(path, answer.content)
        return bytes(answer.content)

    def version(self) -> str:
        """What the server says of itself, as `v1.35.6`; "" where that says nothing."""
        try:
            found = msgspec.json.decode(self.get("/version", {}))
        except msgspec.MsgspecError as exc:
            raise Interrupted(f"/version: no answer of an API server: {exc}") from exc
        text = found.get("gitVersion") if isinstance(found, dict) else None
        return text if isinstance(text, str) else ""

    @contextmanager
    def watch(
        self, path: str, params: Mapping[str, str], *, silence_seconds: float
    ) -> Iterator[Iterator[bytes]]:
        """The lines of a watch as they come. Raises as `get` does, also while they are read.

        silence_seconds: so long the server may say nothing before the connection counts as broken.
        """
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=silence_seconds)
        try:
            with self._client.stream(
                "GET",
                path,
                params=dict(params),
                timeout=timeout,
                extensions=dict(self._extensions),
            ) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise _refusal(path, answer)
                yield _lines(path, answer)
        except (httpx2.HTTPError, httpx2.StreamError, OSError, ConfigError) as exc:
            raise Interrupted(f"{path}: {_named(exc)}") from exc
        except RuntimeError as exc:
            if not self._client.is_closed:
                raise
            raise Interrupted(f"{path}: the connection was closed") from exc


def _lines(path: str, answer: httpx2.Response) -> Iterator[bytes]:
    rest = b""
    try:
        for piece in answer.iter_bytes():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                _check_text(path, line)
                if line.strip():
                    yield line
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
        raise Interrupted(f"{path}: {_named(exc)}") from exc
    if rest.strip():
        # A line that was cut off: what it said comes again with the next watch.
        raise Interrupted(f"{path}: the stream broke off within a line")


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__


def _check_text(path: str, text: bytes) -> None:
    """Raises Interrupted: API servers write UTF-8, so what is none was damaged on its way."""
    try:
        text.decode()
    except UnicodeDecodeError as exc:
        raise Interrupted(f"{path}: the answer is not UTF-8: {exc.reason}") from exc


def _refusal(path: str, answer: httpx2.Response) -> Exception:
    """Of an answer that was read."""
    seconds = _retry_after(answer.headers.get("Retry-After", ""))
    return refusal(path, answer.status_code, answer.content, retry_after=seconds)


def _retry_after(text: str) -> float:
    """Seconds of a header `Retry-After`, which holds a number or a date; 0 for neither."""
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, at.timestamp() - time.time())


def refusal(path: str, code: int, body: bytes, *, retry_after: float = 0.0) -> Exception:
    """What an answer that is no success means: an error to be raised.

    code: of the answer; 0 where only its body says it. retry_after: seconds, of its header.
    """
    try:
        status = msgspec.json.decode(body, type=prepared(_Status))
    except UNDECODABLE:
        status = _Status(message=body[:200].decode(errors="replace"))
    code = code or status.code or 500
    said = status.message or f"status {code}"
    if code == 410 or status.reason in ("Expired", "Gone"):
        return Expired(said)
    if code == 404 or (code == 400 and _NO_SELECTOR in status.message):
        return NotServed(said)
    if code == 401:
        return Interrupted(f"{path}: the credentials were refused (401): {said}")
    if code == 403:
        return AccessRefused(
            f"{path}: {said}",
            help="apply deploy/follow/rbac.yaml, or ask for the rights to list and watch it",
        )
    if code == 429 or code >= 500:
        named = status.details.retry_after_seconds if status.details is not None else 0
        return Busy(f"{path}: {said}", retry_after=max(retry_after, float(named)))
    return Interrupted(f"{path}: {said}")
