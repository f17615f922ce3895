"""Who may use the threads of the service next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from starlette.requests import ClientDisconnect

from policy.server.http import Turns


async def rounds(some: int = 20) -> None:
    """Let the event loop do what can be done at once."""
    for _ in range(some):
        await asyncio.sleep(0)


class Work:
    """Works that say when they begin, and end when they may."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.begun: list[str] = []
        self._ends: dict[str, threading.Event] = {}

    def asked(self, name: str) -> asyncio.Task[str]:
        """name: of the user, and a digit."""
        return asyncio.ensure_future(self._turns.run(name[:-1], self._work(name)))

    def end(self, name: str) -> None:
        self._ends[name].set()

    def _work(self, name: str) -> Callable[[], str]:
        ended = self._ends[name] = threading.Event()

        def work() -> str:
            self.begun.append(name)
            assert ended.wait(60)
            return name

        return work

    async def begins(self, *names: str) -> None:
        """These and no others have begun, in any order."""
        for _ in range(1000):
            if len(self.begun) >= len(names):
                break
            await asyncio.sleep(0.01)
        await rounds()
        assert sorted(self.begun) == sorted(names)


def test_whoever_asks_for_much_waits_for_the_others() -> None:
    """The last thread that is free is for whoever has none."""

    async def main() -> None:
        work = Work(Turns(each=4, all=4))
        many = [work.asked(f"many{n}") for n in range(6)]
        await work.begins("many0", "many1", "many2")
        one = [work.asked(f"one{n}") for n in range(2)]
        await work.begins("many0", "many1", "many2", "one0")
        other = work.asked("other0")
        work.end("many0")
        await work.begins("many0", "many1", "many2", "one0", "other0")
        work.end("many1")
        await asyncio.sleep(0.05)
        assert work.begun[5:] == []  # it would be the last one
        work.end("many2")
        # By then they have none, and the other one has one; then each has one.
        await work.begins("many0", "many1", "many2", "one0", "other0", "many3")
        work.end("other0")
        await work.begins("many0", "many1", "many2", "one0", "other0", "many3", "one1")
        for name in tuple(work._ends):
            work.end(name)
        found = await asyncio.gather(*many, *one, other)
        assert found == [*(f"many{n}" for n in range(6)), "one0", "one1", "other0"]

    asyncio.run(main())


def test_turns_are_taken_by_turns() -> None:
    """Also of a single thread, where none has any when it is free."""

    async def main() -> None:
        work = Work(Turns(each=1, all=1))
        names = ["many0", "many1", "many2", "one0", "one1"]
        tasks = [work.asked(name) for name in names]
        for name in names:
            work.end(name)
        await asyncio.gather(*tasks)
        assert work.begun == ["many0", "one0", "many1", "one1", "many2"]

    asyncio.run(main())


def test_no_user_has_more_than_its_part() -> None:
    async def main() -> None:
        work = Work(Turns(each=2, all=6))
        tasks = [work.asked(f"one{n}") for n in range(3)]
        await work.begins("one0", "one1")
        work.end("one0")
        await work.begins("one0", "one1", "one2")
        for name in ("one1", "one2"):
            work.end(name)
        assert await asyncio.gather(*tasks) == ["one0", "one1", "one2"]

    asyncio.run(main())


def test_who_leaves_takes_no_thread_along() -> None:
    """Neither while it waits, nor in the moment in which its turn comes, nor where it fails."""

    async def main() -> None:
        turns = Turns(each=1, all=1)
        work = Work(turns)
        first = work.asked("a0")
        await work.begins("a0")
        waits, comes = work.asked("b0"), work.asked("c0")
        await rounds()
        waits.cancel()
        await rounds()
        work.end("a0")
        assert await first == "a0"
        comes.cancel()
        await asyncio.gather(waits, comes, return_exceptions=True)
        for name in tuple(work._ends):
            work.end(name)

        async def unwanted() -> bool:
            return False

        with pytest.raises(ClientDisconnect):
            await turns.run("d", list, wanted=unwanted)
        with pytest.raises(ZeroDivisionError):
            await turns.run("d", lambda: 1 // 0)
        assert await asyncio.wait_for(turns.run("d", lambda: 1), 60) == 1

    asyncio.run(main())
