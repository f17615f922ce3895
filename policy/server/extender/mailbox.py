"""Answers on their way from the desks to the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future

from policy.server.extender.call import PreemptCall, Said


class Mailbox:
    """Wakes the event loop once for the answers of a row, not for each of them.

    Waking it is a call of the system: the thread that decides would let the event loop go on, and
    wait for it, as often as it has answers.
    """

    def __init__(self) -> None:
        self._arrived: deque[tuple[asyncio.Future[Said], Future[Said]]] = deque()
        self._rung = False

    def expect(self, call: PreemptCall) -> asyncio.Future[Said]:
        """What will be said to the call; on the event loop, before the call is submitted."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Said] = loop.create_future()

        def ring() -> None:
            if self._arrived and not self._rung:
                self._rung = True
                try:
                    loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop has ended, and with it who waited
                    self._arrived.clear()

        call.wake = ring
        call.said.add_done_callback(lambda said: self._arrived.append((waiting, said)))
        return waiting

    def _deliver(self) -> None:
        # First: whoever arrives from now on rings again.
        self._rung = False
        while self._arrived:
            waiting, said = self._arrived.popleft()
            if waiting.done():
                continue
            failed = said.exception()
            if failed is None:
                waiting.set_result(said.result())
            else:
                waiting.set_exception(failed)
