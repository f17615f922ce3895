"""Calls on the disk: what comes together shares a file, and none is lost."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from policy.server.extender import spool as module
from policy.server.extender.spool import Spool, SpooledCall, SpoolFull


def a_call(number: int, *, environment: str = "prod") -> SpooledCall:
    return SpooledCall(
        environment=environment,
        mode="enforce",
        caller="scheduler",
        answer="none",
        failure="the database is locked",
        arrived_ms=1000 + number,
        duration_us=7,
        body=b'{"Pod": %d}' % number,
    )


def together(spool: Spool, calls: Sequence[SpooledCall]) -> list[Future[None]]:
    """Have the calls come while the writer is busy."""
    free = threading.Event()
    spool._writer.submit(free.wait)
    kept = [spool.add(call) for call in calls]
    free.set()
    return kept


def waiting(spool: Spool, environment: str = "prod") -> list[SpooledCall]:
    return [one.call for one in spool.waiting(environment)]


def test_calls_that_come_together_share_a_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    calls = [a_call(number) for number in range(3)]
    for kept in together(spool, calls):
        kept.result(60)
    assert len(list((tmp_path / "spool").iterdir())) == 1
    assert (spool.depth(), waiting(spool)) == (3, calls)


def test_a_file_goes_with_its_last_call(tmp_path: Path) -> None:
    """What was recorded of it is not offered again, in no process."""
    spool = Spool(tmp_path)
    calls = [a_call(number) for number in range(3)]
    for kept in together(spool, calls):
        kept.result(60)
    first, second, third = spool.waiting("prod")
    spool.done(first)
    assert (spool.depth(), waiting(spool)) == (2, calls[1:])
    assert (Spool(tmp_path).depth(), waiting(Spool(tmp_path))) == (2, calls[1:])
    spool.done(first)  # as if two processes had recorded it
    assert (spool.depth(), waiting(spool)) == (2, calls[1:])
    spool.done(second)
    spool.done(third)
    assert (spool.depth(), waiting(spool), list(tmp_path.iterdir())) == (0, [], [])


def test_environments_have_files_of_their_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    calls = [a_call(number, environment=name) for number, name in enumerate(("a", "b", "a"))]
    for kept in together(spool, calls):
        kept.result(60)
    assert (waiting(spool, "a"), waiting(spool, "b")) == ([calls[0], calls[2]], [calls[1]])
    assert Spool(tmp_path).environments() == {"a", "b"}
    for one in spool.waiting("a"):
        spool.done(one)
    assert (spool.depth(), waiting(spool, "b")) == (1, [calls[1]])
    assert spool.environments() == {"b"}


def test_a_file_does_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FILE_BYTES", 1)
    spool = Spool(tmp_path)
    calls = [a_call(number) for number in range(3)]
    for kept in together(spool, calls):
        kept.result(60)
    assert (len(list(tmp_path.iterdir())), waiting(spool)) == (3, calls)


def test_a_spool_without_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.add(a_call(0)).result(60)
    monkeypatch.setattr(module, "MAX_BYTES", 1)
    with pytest.raises(SpoolFull, match=r"holds \d+ bytes"):
        spool.add(a_call(1)).result(60)
    assert waiting(spool) == [a_call(0)]


def test_what_is_being_written_takes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where who wrote it has ended meanwhile."""
    (tmp_path / "1001-1-abc_4567").write_bytes(b"part of a call")
    monkeypatch.setattr(module, "MAX_BYTES", 14)
    with pytest.raises(SpoolFull, match="holds 14 bytes"):
        Spool(tmp_path).add(a_call(0)).result(60)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="spool"):
        Spool(tmp_path / "file" / "spool").add(a_call(0)).result(60)


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "5-2-x.calls").write_bytes(b"no calls")
    (tmp_path / "notes.txt").write_bytes(b"")
    assert waiting(Spool(tmp_path)) == []
    assert Spool(tmp_path).environments() == set()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["5-2-x.calls", "notes.txt"]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
def test_what_could_not_be_written_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """On a full disk the next call, or a smaller one, has the room that there was."""
    spool = Spool(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*{"fsync": (os, "fsync"), "rename": (Path, "rename")}[failing], full)
        with pytest.raises(OSError, match="No space left"):
            spool.add(a_call(0)).result(60)
    assert list(tmp_path.iterdir()) == []
    spool.add(a_call(1)).result(60)
    assert waiting(spool) == [a_call(1)]


def test_what_an_ended_process_was_writing_is_removed(tmp_path: Path) -> None:
    """What is written now, calls and files of others stay."""
    spool = Spool(tmp_path)
    spool.add(a_call(0)).result(60)
    others = ["1001-1-abc_4567.txt", "notes"]
    for name in ("1001-1-abc_4567", *others):
        (tmp_path / name).write_bytes(b"part of a call")
    file, written = module._made(tmp_path, prefix="1002-1-")
    with file:
        Spool(tmp_path).remove_unfinished()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {*others, written.name, *(path.name for path in tmp_path.glob("*.calls"))}
    assert waiting(spool) == [a_call(0)]
    Spool(tmp_path).remove_unfinished()
    assert not written.exists()
