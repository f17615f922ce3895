"""A follower that is killed around one of its commits: a process, and a real SIGKILL."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any, Literal

from sqlalchemy import Engine, event
from sqlalchemy.engine.default import DefaultDialect

from policy.live.backoff import Backoff
from policy.live.connection import Connection, place
from policy.live.following import Follower
from policy.store import Store
from tests.support.live import CLUSTER, settled

When = Literal["before", "after"]

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([__name__])


def follow(url: str, config: str, *, dies: When, commit: int = 1, until: str = "") -> int | None:
    """Follow until it is killed, before or after that commit; its exit code.

    until: of this recording all is published; the exit code is 0 where it did not get to that
    commit, and the state and the observations are whole.
    """
    child = _FORKED.Process(target=_child, args=(url, config, dies, commit, until))
    child.start()
    child.join()
    return child.exitcode


def _child(url: str, config: str, dies: When, last: int, until: str) -> None:
    commits = 0

    def committing(_: Any) -> None:
        nonlocal commits
        commits += 1
        if dies == "before" and commits == last:
            _die()

    commit = DefaultDialect.do_commit

    def committed(dialect: DefaultDialect, connection: Any) -> None:
        commit(dialect, connection)
        if commits == last:
            _die()

    event.listen(Engine, "commit", committing)
    DefaultDialect.do_commit = committed
    with Store.open(url) as store:
        follower = Follower(
            store,
            CLUSTER,
            Connection(place(kubeconfig=config)),
            actor="ann",
            clock=lambda: time.time_ns() // 1_000_000,
            window_ms=20,
            settle_ms=100,
            patience_ms=3_000,
            backoff=lambda: Backoff(first=0.01, most=0.05),
        )

        def end() -> None:
            while not settled(url, until):
                time.sleep(0.05)
            follower.stop()

        if until:
            threading.Thread(target=end, daemon=True).start()
        follower.run()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
