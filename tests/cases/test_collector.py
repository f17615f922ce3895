"""What is made while the garbage collector rests."""

from __future__ import annotations

import gc
import weakref
from threading import Event

import pytest

from policy.cluster import collector


def generation_of(wanted: object) -> int | None:
    """0 to 2; None where the collector does not have it, as of what is frozen."""
    for number in range(3):
        if any(one is wanted for one in gc.get_objects(generation=number)):
            return number
    return None


def test_what_was_made_meanwhile_is_old_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next search through young objects does not walk over it, and the collector runs again."""
    monkeypatch.setattr(collector, "_FROZEN", Event())
    gc.unfreeze()  # a service ran here before, perhaps
    with collector.paused():
        # More than enough: what others free meanwhile is taken off the collector's count.
        made: list[object] = [[] for _ in range(2 * collector._BULK)]
        young = generation_of(made)
    assert (young, generation_of(made), gc.get_freeze_count(), gc.isenabled()) == (0, 2, 0, True)


def test_frozen_objects_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service freezes its cluster; bulk work there thaws nothing."""
    monkeypatch.setattr(collector, "_FROZEN", Event())
    frozen: list[object] = [[]]
    collector.freeze()
    try:
        with collector.paused():
            made: list[object] = [[]]
        assert (generation_of(frozen), generation_of(made)) == (None, 0)
    finally:
        gc.unfreeze()


class Ring:
    """What nothing refers to but itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.mark.parametrize("objects", [0, 2000], ids=["few", "many"])
def test_what_refers_to_itself_is_found_in_the_end(
    objects: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often a process does such work, and also where it does nothing else."""
    if objects:
        monkeypatch.setattr(collector, "_BULK", objects // 2)
    monkeypatch.setattr(collector, "_MOST_AGED", 500_000)
    rings = []
    usual = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's own, whatever ran here before
    try:
        for _ in range(2000):
            with collector.paused():
                made: list[object] = [[] for _ in range(objects)]
                rings.append(weakref.ref(Ring()))
            del made
    finally:
        gc.set_threshold(*usual)
    assert sum(ring() is not None for ring in rings) < len(rings) / 2
