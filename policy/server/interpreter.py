"""How Python runs in the processes of the service."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Final

from policy.garbage import collect_seldom
from policy.text.printable import printable

_GIVE_WAY_SECONDS: Final = 0.001
"""After which a thread gives way to one that waits. A call of 150 kB is some ten steps of the event
loop, and a few of the thread that reads for the desks: Python's 5 ms for each would be 50 ms."""


class OneLine(logging.Formatter):
    """A message is one line of the log, whatever was sent that it repeats; a traceback follows.

    Times are UTC, as RFC 3339 has them.
    """

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback where there is one."""
        told = {"msg": printable(record.getMessage()), "args": None}
        return super().format(logging.makeLogRecord({**vars(record), **told}))


def clock_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def prepare() -> None:
    """At the start of a process, before it starts threads."""
    collect_seldom()
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    # What the follower fetches is in its own figures; a line for each request says nothing more.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    sys.setswitchinterval(_GIVE_WAY_SECONDS)
    _let_others_finish()


def _let_others_finish() -> None:
    """Interrupt no process that computes: on few cores that is another one of this service.

    A decision that is interrupted for what has just come finds its data in the caches no more. On
    two cores under load it was so three times a call, and took a quarter more of their time.
    """
    if not hasattr(os, "SCHED_BATCH"):  # Linux alone has it
        return
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:  # whoever starts it may have set another
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except OSError as exc:  # a sandbox may forbid it, and calls take longer then
        logging.getLogger("policy.server").info("the scheduling class stays: %s", exc)
