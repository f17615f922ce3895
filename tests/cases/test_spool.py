"""Calls on the disk: what comes together shares a file, and none is lost."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from policy.server.extender import spool as module
from policy.server.extender.cut_short import whole_values
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
    (tmp_path / "1001-1-abc_4567.unfinished").write_bytes(b"part of a call")
    monkeypatch.setattr(module, "MAX_BYTES", 14)
    with pytest.raises(SpoolFull, match="holds 14 bytes"):
        Spool(tmp_path).add(a_call(0)).result(60)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="spool"):
        Spool(tmp_path / "file" / "spool").add(a_call(0)).result(60)


@pytest.mark.parametrize(
    "value",
    [
        *(0, 127, -1, -32, -33, 255, 256, -129, 65536, -(1 << 20), 1 << 40, -(1 << 40), 1 << 63),
        *(None, True, 0.5, "", "x" * 31, "x" * 32, "x" * 300, "x" * 70_000),
        *(b"", b"x" * 300, b"x" * 70_000, [], [[1, "a"]] * 20, [0] * 70_000),
        *({}, {"a": {"b": [b"c"]}}, {str(n): n for n in range(20)}),
        {str(n): n for n in range(70_000)},
    ],
)
def test_values_before_a_damage_are_found(value: object) -> None:
    """Of every kind and length, to the byte, in arrays of every length."""
    one = msgspec.msgpack.encode(value)
    for count in (1, 16):
        data = msgspec.msgpack.encode([value] * count)
        assert whole_values(data) == (count, [one] * count)
        assert whole_values(data[:-1]) == (count, [one] * (count - 1))
    many = b"\xdd" + (1 << 20).to_bytes(4) + one
    assert whole_values(many) == (1 << 20, [one])


def several(folder: Path, *numbers: int) -> Path:
    """A file with so many calls."""
    before = set(folder.iterdir())
    for kept in together(Spool(folder), [a_call(number) for number in numbers]):
        kept.result(60)
    (made,) = set(folder.iterdir()) - before
    return made


def recorded(spool: Spool) -> list[SpooledCall]:
    """The calls that wait, each taken as recorded before the next one, until none is there."""
    found = []
    for one in spool.waiting("prod"):
        found.append(one.call)
        spool.done(one)
    return found + recorded(spool) if found else []


@pytest.mark.parametrize(
    "data", [b"", b"garbage\n", b"\x90", b"\xdf\xff\xff\xff\xff", b"\x93\x01\x02\x03", b"\xdd\xff"]
)
@pytest.mark.parametrize("name", ["999-1-abc", "5-2-x", "5-0-x", "foo"])
def test_what_is_no_call_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes, name: str
) -> None:
    """Once, and the log says it; those behind it are recorded, and it does not wait any more."""
    (tmp_path / f"{name}.calls").write_bytes(data)
    (tmp_path / "notes.txt").write_bytes(b"")
    several(tmp_path, 1)
    spool = Spool(tmp_path)
    assert (recorded(spool), spool.environments(), spool.depth()) == ([a_call(1)], set(), 0)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert left == {f"{name}.refused": data, "notes.txt": b""}
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"spooled calls in `{tmp_path / name}.calls` cannot be read: ")
    assert said.endswith(f"; see `{tmp_path / name}.refused`")


def test_calls_before_a_damage_are_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the last one is cut off; how many are left is in the name."""
    for end in range(1, len(several(tmp_path, 3).read_bytes()), 3):
        folder = tmp_path / str(end)
        folder.mkdir()
        file = several(folder, 1, 2, 3)
        data = file.read_bytes()[:-end]
        file.write_bytes(data)
        spool = Spool(folder)
        assert (spool.environments(), spool.depth()) == ({"prod"}, 3)
        assert (recorded(spool), spool.depth()) == ([a_call(1), a_call(2)], 0)
        (kept,) = folder.iterdir()
        assert kept.name == file.name.replace("-3-", "-1-").replace(".calls", ".refused")
        assert (kept.read_bytes(), str(kept) in caplog.messages[-1]) == (data, True)


def test_calls_before_one_that_is_no_text_are_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A byte of the second one is another."""
    file = several(tmp_path, 1, 2)
    before, found, after = file.read_bytes().rpartition(b"scheduler")
    file.write_bytes(before + found.replace(b"s", b"\xff") + after)
    assert recorded(Spool(tmp_path)) == [a_call(1)]
    (kept,) = tmp_path.iterdir()
    left = kept.with_suffix(".calls")
    said = f"spooled calls in `{left}` cannot be read: one of its texts is not UTF-8; see `{kept}`"
    assert caplog.messages == [said]


def test_what_was_recorded_before_a_damage_is_not_offered_again(tmp_path: Path) -> None:
    """A file keeps the calls that it had; the damage may come later."""
    file = several(tmp_path, 1, 2, 3)
    spool = Spool(tmp_path)
    spool.done(next(spool.waiting("prod")))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert (waiting(spool), spool.depth()) == ([a_call(2)], 2)
    assert recorded(spool) == [a_call(2)]


@pytest.mark.parametrize("name", ["foo", "7-9-foo"])
def test_a_name_that_says_too_little_or_too_much_is_put_right(tmp_path: Path, name: str) -> None:
    """All calls of the file wait, each of them is recorded once."""
    several(tmp_path, 1, 2).rename(tmp_path / f"{name}.calls")
    spool = Spool(tmp_path)
    assert (waiting(spool), spool.depth()) == ([a_call(1), a_call(2)], 2)
    assert (recorded(spool), list(tmp_path.iterdir())) == ([a_call(1), a_call(2)], [])


def test_nothing_that_was_set_aside_is_lost(tmp_path: Path) -> None:
    """Not where the next one has the same name either."""
    spool = Spool(tmp_path)
    for data in (b"first", b"second"):
        (tmp_path / "foo.calls").write_bytes(data)
        assert waiting(spool) == []
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"first", b"second"]


def test_what_cannot_be_opened_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder, a link to nothing, one to itself: they are no calls that wait, and stop none."""
    spool = Spool(tmp_path)
    (tmp_path / "0-1-a.calls").mkdir()
    (tmp_path / "0-1-b.calls").symlink_to(tmp_path / "later")
    (tmp_path / "0-1-c.calls").symlink_to("0-1-c.calls")
    several(tmp_path, 1)
    found = [(waiting(spool), spool.depth(), spool.environments()) for _ in range(3)]
    assert found == [([a_call(1)], 1, {"prod"})] * 3
    assert caplog.messages == [
        f"spooled calls in `{tmp_path}/0-1-{name}.calls` wait, to be read later: {reason}"
        for name, reason in (
            ("a", "is a folder, not a file"),
            ("b", "no such file or folder"),
            ("c", "a symbolic link that leads to itself"),
        )
    ]
    assert recorded(spool) == [a_call(1)]
    several(tmp_path, 2).rename(tmp_path / "later")
    assert (recorded(spool), len(caplog.messages)) == ([a_call(2)], 3)


def test_calls_of_another_user_wait(caplog: pytest.LogCaptureFixture) -> None:
    """They are counted, the log says once why they are not recorded, and later they are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        file = several(folder, 1, 2)
        spool = Spool(folder)
        file.chmod(0)
        with without_rights():
            found = [(waiting(spool), spool.depth()) for _ in range(2)]
        file.chmod(0o600)
        assert found == [([], 2)] * 2
        assert caplog.messages == [
            f"spooled calls in `{file}` wait, to be read later: permission denied"
        ]
        assert recorded(spool) == [a_call(1), a_call(2)]


@contextmanager
def without_rights() -> Iterator[None]:
    """As a user for whom permissions count."""
    if os.geteuid():
        yield
        return
    os.seteuid(12345)
    try:
        yield
    finally:
        os.seteuid(0)


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
    others = ["1001-1-abc_4567.txt", "notes", "notes.unfinished", "2026-11-28", "2026-11-backup"]
    for name in ("1001-1-abc_4567.unfinished", *others):
        (tmp_path / name).write_bytes(b"part of a call")
    file, written = module._made(tmp_path, prefix="1002-1-")
    with file:
        Spool(tmp_path).remove_unfinished()
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {*others, written.name, *(path.name for path in tmp_path.glob("*.calls"))}
    assert waiting(spool) == [a_call(0)]
    Spool(tmp_path).remove_unfinished()
    assert not written.exists()


def test_calls_of_other_environments_are_not_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever decides for one environment looks into the folder all the time.

    A file that comes later is read, under the name of one that is gone, too.
    """
    spool = Spool(tmp_path)
    for number in range(3):
        spool.add(a_call(number, environment="other")).result(60)
    read: list[str] = []
    read_bytes = Path.read_bytes

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", noted)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert (waiting(spool), waiting(spool), waiting(spool), read) == ([], [], [], files)
    gone, *_ = spool.waiting("other")
    spool.done(gone)
    spool.add(a_call(9)).result(60)
    (kept,) = set(tmp_path.iterdir()) - {tmp_path / name for name in files}
    kept.rename(tmp_path / files[0])
    read.clear()
    assert (waiting(spool), waiting(spool), read) == ([a_call(9)], [a_call(9)], [files[0]] * 2)
    assert waiting(spool, "other") == [
        a_call(1, environment="other"),
        a_call(2, environment="other"),
    ]
