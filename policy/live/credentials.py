"""Credentials that a program gives out, as `exec` in a kubeconfig names it.

Source: client.authentication.k8s.io, ExecCredential: the request in `KUBERNETES_EXEC_INFO`, the
answer on standard output, valid until its `expirationTimestamp` or until the server refuses it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from typing import Any, Final

import httpx2
import msgspec

from policy.cluster import times
from policy.typed import UNDECODABLE, prepared, undecodable

_SECONDS: Final = 60.0
"""So long a program may take."""

_EARLY_SECONDS: Final = 30
"""A token is not used any more so long before it expires."""

_VERSIONS: Final = tuple(f"client.authentication.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1"))


class CredentialError(OSError):
    """A program gave no credentials; the message says why."""


class _Variable(msgspec.Struct):
    name: str
    value: str


class CredentialProgram(msgspec.Struct, rename="camel"):
    """`exec` of a user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: str | None = None
    client_certificate_data: str = ""


class _Answer(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class ProgramAuth(httpx2.Auth):
    """Runs the program when a token is needed; one run serves all threads."""

    def __init__(self, program: CredentialProgram, cluster: Mapping[str, Any]) -> None:
        """cluster: of the kubeconfig, for programs that want it. Raises CredentialError."""
        if program.api_version not in _VERSIONS:
            known = ", ".join(_VERSIONS)
            raise CredentialError(
                f"credential program `{program.command}` wants {program.api_version};"
                f" known are {known}"
            )
        self._program = program
        self._cluster = cluster
        self._lock = threading.Lock()
        self._token = ""
        self._until: float | None = None

    def sync_auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._valid("")
        request.headers["Authorization"] = f"Bearer {token}"
        answer = yield request
        if answer.status_code != 401:
            return
        request.headers["Authorization"] = f"Bearer {self._valid(token)}"
        yield request

    def _valid(self, refused: str) -> str:
        """A token other than the one that was refused."""
        with self._lock:
            expired = self._until is not None and time.time() >= self._until
            if not self._token or self._token == refused or expired:
                self._token, self._until = self._given()
            return self._token

    def _given(self) -> tuple[str, float | None]:
        program = self._program
        environment = {**os.environ, "KUBERNETES_EXEC_INFO": self._request()}
        environment |= {one.name: one.value for one in program.env or ()}
        try:
            done = subprocess.run(
                [program.command, *(program.args or ())],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except FileNotFoundError as exc:
            hint = f": {program.install_hint.strip()}" if program.install_hint else ""
            raise CredentialError(
                f"credential program `{program.command}` is not installed{hint}"
            ) from exc
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise CredentialError(f"credential program `{program.command}`: {exc}") from exc
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            status = f"ended with status {done.returncode}"
            raise CredentialError(f"credential program `{program.command}` {status}: {said}")
        return self._read(done.stdout)

    def _read(self, output: bytes) -> tuple[str, float | None]:
        name = self._program.command
        try:
            status = msgspec.json.decode(output, type=prepared(_Answer)).status
            until = (
                times.parse(status.expiration_timestamp) / 1000 - _EARLY_SECONDS
                if status.expiration_timestamp
                else None
            )
        except (*UNDECODABLE, times.TimeError) as exc:
            said = undecodable(exc)
            raise CredentialError(
                f"credential program `{name}`: no ExecCredential: {said}"
            ) from exc
        if not status.token:
            what = "a client certificate, which is not supported from programs"
            raise CredentialError(
                f"credential program `{name}` gave "
                + (what if status.client_certificate_data else "no token")
            )
        return status.token, until

    def _request(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._program.provide_cluster_info:
            spec["cluster"] = dict(self._cluster)
        info = {"apiVersion": self._program.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()
