"""Looks that many take together: what each reads of the record is read once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from policy.server.api.looks import Look, Looks
from policy.store import LedgerHead

EVERY = 0.05


class Record:
    """Counts how often its heads are read, and what is behind them."""

    def __init__(self) -> None:
        self.looks = 0
        self.readings: Counter[str] = Counter()
        self.problem = ""

    def heads(self) -> Sequence[LedgerHead]:
        self.looks += 1
        if self.problem:
            raise ValueError(self.problem)
        return []

    def read(self, what: str) -> str:
        self.readings[what] += 1
        time.sleep(0.01)  # in its thread, so that others ask meanwhile
        return f"{what}, {self.readings[what]}"


def test_those_who_look_together_read_once() -> None:
    """And again with each look; who wants something else reads that."""
    record = Record()

    async def following(looks: Looks, what: str) -> list[str]:
        look, found = None, []
        for _ in range(3):
            look = await looks.after(look)
            found.append(await look.reading(what, lambda: record.read(what)))
        return found

    async def main() -> list[list[str]]:
        looks = Looks(record.heads, every=EVERY)
        many = [following(looks, what) for what in ("all", "some", "all", "all")]
        return await asyncio.gather(*many)

    begun = time.monotonic()
    every, some, *others = asyncio.run(main())
    assert every == ["all, 1", "all, 2", "all, 3"]
    assert some == ["some, 1", "some, 2", "some, 3"]
    assert others == [every, every]
    assert record.looks == 3
    assert time.monotonic() - begun >= 2 * EVERY


def test_who_comes_later_begins_with_the_newest_look() -> None:
    """However old that is; the next one comes at once then."""
    record = Record()

    async def main() -> list[bool]:
        looks = Looks(record.heads, every=60)
        first = await looks.after(None)
        same = await looks.after(None)
        looks._looked -= 60  # as if the last look was that long ago
        return [same is first, await looks.after(same) is first]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [True, False]
    assert record.looks == 2


def test_who_leaves_takes_nothing_away_from_the_others() -> None:
    """Neither the look that is waited for, nor what is being read."""
    record = Record()

    async def main() -> tuple[Look, str]:
        looks = Looks(record.heads, every=EVERY)
        look = await looks.after(None)
        left, stays = (asyncio.create_task(looks.after(look)) for _ in range(2))
        await asyncio.sleep(0)
        left.cancel()
        newest = await stays
        left_too, reads = (
            asyncio.create_task(newest.reading("all", lambda: record.read("all"))) for _ in range(2)
        )
        await asyncio.sleep(0)
        left_too.cancel()
        return look, await reads

    assert asyncio.run(main())[1] == "all, 1"
    assert (record.looks, record.readings) == (2, {"all": 1})


def test_a_look_that_fails_is_taken_again() -> None:
    """All who wait for it hear why."""
    record = Record()

    async def main() -> list[BaseException | Look]:
        looks = Looks(record.heads, every=EVERY)
        record.problem = "no database"
        waiting = [looks.after(None) for _ in range(2)]
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        record.problem = ""
        return [*failed, await looks.after(None)]

    *failed, look = asyncio.run(main())
    assert list(map(str, failed)) == ["no database"] * 2
    assert isinstance(look, Look)


def test_few_readings_are_kept() -> None:
    """A stream that is far behind reads many pages with one look, each for itself alone."""
    record = Record()

    async def main() -> str:
        look = await Looks(record.heads, every=EVERY).after(None)
        for number in range(100):
            await look.reading(number, lambda: "page")
        assert len(look._read) <= 32
        return await look.reading(99, lambda: pytest.fail("it is kept"))

    assert asyncio.run(main()) == "page"
