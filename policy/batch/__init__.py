"""Batch sessions: queues, gangs and fair shares, as kube-batch decides them.

    from policy.batch import BatchRules, run_session

    result = run_session(snapshot, BatchRules.load("kube-batch"))

The names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policy import lazy

if TYPE_CHECKING:
    from policy.batch.result import SessionResult
    from policy.batch.rules import BatchRules
    from policy.batch.run import run_session

__all__ = ["BatchRules", "SessionResult", "run_session"]

_HOMES: Final = {
    "BatchRules": "policy.batch.rules",
    "SessionResult": "policy.batch.result",
    "run_session": "policy.batch.run",
}

__getattr__ = lazy.names(__name__, _HOMES)
