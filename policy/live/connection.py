"""Requests to an API server: where it is, who asks, and what its refusals mean."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2
import msgspec
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import DEFAULT_KUBECONFIG, KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

_CONNECT_SECONDS: Final = 10.0
_LIST_SECONDS: Final = 120.0
_EXEC_V1: Final = "client.authentication.k8s.io/v1"
_EXEC_V1BETA1: Final = "client.authentication.k8s.io/v1beta1"


class LiveError(Exception):
    """A cluster cannot be read; `help` says what to do."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class Interrupted(Exception):
    """A request failed in a way that may pass: it is worth trying again."""


class Busy(Interrupted):
    """The server answered that it cannot do it at the moment (429, 5xx)."""


class Expired(Exception):
    """The resourceVersion, or the continue token, is too old: list again (410 Gone).

    token: with which the list may go on, at a newer resourceVersion; "" for none.
    """

    def __init__(self, message: str, *, token: str = "") -> None:
        super().__init__(message)
        self.token = token


class NotServed(Exception):
    """The API server does not know the resource (404)."""


class AccessRefused(LiveError):
    """The API server does not let this user do it (401, 403)."""


class _Status(msgspec.Struct, kw_only=True):
    message: str = ""
    reason: str = ""
    code: int = 0
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Which cluster, and how it was named."""

    config: SingleConfig
    name: str  #: of the context; `in-cluster`
    server: str


def place(
    *, kubeconfig: str | None = None, context: str | None = None, in_cluster: bool = False
) -> ClusterAddress:
    """The cluster that is meant: as kubectl finds it, or that of the pod it runs in.

    kubeconfig: a file; else `KUBECONFIG`, whose first file counts, else `~/.kube/config`.
    Raises LiveError.
    """
    try:
        if in_cluster:
            config = KubeConfig.from_service_account().get()
        else:
            file = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
            config = KubeConfig.from_file(file or DEFAULT_KUBECONFIG).get(context)
    except KeyError as exc:
        if in_cluster:
            raise LiveError(
                f"not in a cluster: the variable {exc} is not set",
                help="leave out `--in-cluster` to use a kubeconfig",
            ) from exc
        raise LiveError(f"the kubeconfig names {exc}, which it does not hold") from exc
    except (ConfigError, OSError, ValueError) as exc:
        advice = "name a kubeconfig with `--kubeconfig`, and one of its contexts with `--context`"
        raise LiveError(str(exc), help=advice) from exc
    assert config is not None
    name = "in-cluster" if in_cluster else config.context_name
    return ClusterAddress(config=_with_exec_v1(config), name=name, server=config.cluster.server)


def _with_exec_v1(config: SingleConfig) -> SingleConfig:
    """Credential plugins of v1 answer as those of v1beta1 do; lightkube knows the latter only."""
    user = config.user
    if user is None or user.exec is None or user.exec.apiVersion != _EXEC_V1:
        return config
    plugin = replace(user.exec, apiVersion=_EXEC_V1BETA1)
    info = {"apiVersion": _EXEC_V1, "kind": "ExecCredential", "spec": {"interactive": False}}
    # Plugins of v1 read there which version of the answer is wanted.
    os.environ.setdefault("KUBERNETES_EXEC_INFO", msgspec.json.encode(info).decode())
    return config._replace(user=replace(user, exec=plugin))


class Connection:
    """One cluster's API server; safe to use from several threads."""

    def __init__(self, at: ClusterAddress) -> None:
        self.place = at
        self.source = at.server
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_LIST_SECONDS)
        limits = ConnectionParams(timeout=timeout)
        try:
            self._client = Client(at.config, limits)
        except (ConfigError, OSError, ValueError, AssertionError) as exc:
            raise LiveError(f"{at.server}: {exc}") from exc

    def close(self) -> None:
        """From any thread; requests are interrupted from then on."""
        self._client.close()

    def get(self, path: str, params: Mapping[str, str]) -> bytes:
        """The body of an answer. Raises Interrupted, Expired, NotServed, Refused."""
        try:
            answer = self._client.get(path, params=dict(params))
        except (httpx2.HTTPError, OSError, ConfigError) as exc:
            raise Interrupted(f"{path}: {_named(exc)}") from exc
        except RuntimeError as exc:
            if not self._client.is_closed:
                raise
            raise Interrupted(f"{path}: the connection was closed") from exc
        if answer.status_code != 200:
            raise refusal(path, answer.status_code, answer.content)
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
            with self._client.stream("GET", path, params=dict(params), timeout=timeout) as answer:
                if answer.status_code != 200:
                    raise refusal(path, answer.status_code, answer.read())
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
            yield from (line for line in whole if line.strip())
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as exc:
        raise Interrupted(f"{path}: {_named(exc)}") from exc
    if rest.strip():
        # A line that was cut off: what it said comes again with the next watch.
        raise Interrupted(f"{path}: the stream broke off within a line")


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__


def refusal(path: str, code: int, body: bytes) -> Exception:
    """What an answer that is no success means: an error to be raised."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        status = _Status(message=body[:200].decode(errors="replace"))
    said = status.message or f"status {code}"
    if code == 410 or status.reason in ("Expired", "Gone"):
        token = status.metadata.get("continue")
        return Expired(said, token=token if isinstance(token, str) else "")
    if code == 404:
        return NotServed(said)
    if code == 401:
        return Interrupted(f"{path}: the credentials were refused (401): {said}")
    if code == 403:
        return AccessRefused(
            f"{path}: {said}",
            help="apply deploy/rbac.yaml, or ask for the rights to list and watch it",
        )
    if code == 429 or code >= 500:
        return Busy(f"{path}: {said}")
    return Interrupted(f"{path}: {said}")
