"""Starts the processes of the extender, before anything is loaded that takes long.

The service starts that of its desks (see `desks`), which starts the one that records (`recorder`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Final, NamedTuple

DESKS: Final = "policy.server.extender.worker"
RECORDER: Final = "policy.server.extender.recording"
_SIGNALS: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM})
"""That are for the service, also where they are sent to all processes."""


class Child(NamedTuple):
    """The process, and the socket to it: it ends when that is closed."""

    process: subprocess.Popen[bytes]
    socket: socket.socket


def start(module: str) -> Child:
    """A process that loads what it needs and then waits for its first message. Raises OSError.

    Its command line names a module and nothing else: any user of the machine may read that, and
    the URL of a database may hold a password.
    """
    ours, theirs = socket.socketpair()
    # What is blocked here is blocked there from its first instruction on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
    except OSError:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Child(process, ours)
