"""What a service is started with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from policy.store.model.decisions import CallMode

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class OnFailure(StrEnum):
    """What a scheduler is answered where no decision can be recorded in time."""

    PASS_THROUGH = "pass-through"  # what it had offered
    DENY = "deny"  # no candidate: it does not preempt this time


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """A real cluster that the service follows beside its other work."""

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool = False
    cluster: str = ""  #: under which name it is kept; "" for that of the context
    actor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One process of the service."""

    db: str
    host: str = "127.0.0.1"
    port: int = 8787
    reader_db: str = ""  #: connection for SQL of users; "" for that of `db`
    environment: str = ""  #: of the paths that name none; "" for none
    mode: CallMode = CallMode.SHADOW
    on_failure: OnFailure | None = None  #: None: pass-through in shadow, deny in enforce mode
    deadline_ms: int = 1000
    tokens: Path | None = None
    token_uses: Path | None = None  #: None: beside `tokens`
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    spool: Path = Path("policy-spool")
    follow: Follow | None = None
    poll_seconds: float = 1.0  #: how often to look for changes that nothing announced

    @property
    def way_out(self) -> OnFailure:
        """What is answered in place of a decision."""
        if self.on_failure is not None:
            return self.on_failure
        shadow = self.mode is CallMode.SHADOW
        return OnFailure.PASS_THROUGH if shadow else OnFailure.DENY
