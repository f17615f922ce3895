"""What records for a decider: the code of that process, on a thread of this one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from policy.server.extender import recording
from policy.server.extender.deciding import Answered, Held, NotDecidable
from policy.server.extender.recorder import Recorder
from policy.store import Store


@contextmanager
def recorder_of(store: Store) -> Iterator[Recorder]:
    """It writes over a store of its own into the same database."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=recording.work, args=[theirs], name="recording")
    thread.start()
    url = store._database.url.render_as_string(hide_password=False)
    recorder = Recorder(ours, db=url, lost=lambda: None)
    try:
        yield recorder
    finally:
        recorder.close()
        thread.join(60)
        theirs.close()
        assert not thread.is_alive()


def recorded(decided: Future[Answered] | NotDecidable | Held | None) -> Answered:
    """What is in the record of a call, when it is. Raises what its commit does."""
    assert isinstance(decided, Future), decided
    return decided.result()
