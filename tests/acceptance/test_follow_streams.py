"""What comes in a watch besides changes, and how long a server that is busy is left alone."""

from __future__ import annotations

import email.utils
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from policy.cluster.objects import key_of
from policy.live.backoff import MOST_RETRY_AFTER_SECONDS, Backoff
from policy.live.connection import Busy, Connection, Interrupted, place, refusal
from policy.live.listing import listed
from policy.live.resources import watched
from policy.live.watching import Changed, KindWatcher, Listed, News, Reached, Recovered, Trouble
from policy.manifests import Limits
from policy.store import Store
from tests.support.api_server import ApiServer, kubeconfig, serving
from tests.support.live import CLUSTER, final, following, identity, initial, play, settled, until

PODS = "/api/v1/pods"
WATCHES = f"{PODS} watch"
NAME = "pdb-sequence"


def pod(name: str, version: Any = None, **meta: Any) -> dict[str, Any]:
    """version: its resourceVersion, None for an object without one."""
    found = {"name": name, "namespace": "shop", "uid": f"uid-{name}", **meta}
    if version is not None:
        found["resourceVersion"] = version
    return {"kind": "Pod", "apiVersion": "v1", "metadata": found, "spec": {"containers": []}}


def line(what: str, item: object) -> bytes:
    return json.dumps({"type": what, "object": item}, ensure_ascii=False).encode() + b"\n"


def bookmark(version: object) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def status(code: object, **more: object) -> bytes:
    return line("ERROR", {"kind": "Status", "code": code, "message": "no leader", **more})


class Waits(Backoff):
    """Remembers how long was waited for what; no chance."""

    def __init__(self, *, first: float, most: float) -> None:
        super().__init__(first=first, most=most, chance=lambda: 1.0)
        self.seconds: list[float] = []

    def next(self, after: Interrupted | None = None) -> float:
        self.seconds.append(super().next(after))
        return self.seconds[-1]


@dataclass
class Watched:
    server: ApiServer
    waits: Waits
    news: list[News] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[Any, ...]]:
        """What was told, in short."""
        return [_short(one) for one in self.news]


def _short(news: News) -> tuple[Any, ...]:
    match news:
        case Listed():
            return "listed", *(key_of(one) for one in news.objects), news.version
        case Changed():
            return "gone" if news.after is None else "changed", news.key, news.version
        case Reached():
            return "reached", news.version
        case Trouble():
            return "trouble", news.message
        case Recovered():
            return ("recovered",)


@contextmanager
def watching(
    folder: Path,
    *streams: list[bytes],
    prepare: Callable[[ApiServer], None] = lambda _: None,
    most: float = 0.5,
    watch_seconds: int = 30,
) -> Iterator[Watched]:
    """The pods of a server, with one pod at 3, whose next watches answer these streams."""

    def streaming(server: ApiServer) -> None:
        server.faults.streams = {"Pod": list(streams)}
        prepare(server)

    (pods,) = (one for one in watched() if one.kind == "Pod")
    with serving([pod("a", "3")], streaming) as server:
        connection = Connection(place(kubeconfig=kubeconfig(folder, server.url)))
        stop, found = threading.Event(), Watched(server, Waits(first=0.01, most=most))
        watcher = KindWatcher(
            connection,
            pods,
            found.news.append,
            stop=stop,
            clock=lambda: time.time_ns() // 1_000_000,
            backoff=found.waits,
            watch_seconds=watch_seconds,
        )
        thread = threading.Thread(target=watcher.run, daemon=True)
        thread.start()
        yield found
        stop.set()
        ends = time.monotonic() + 10
        while thread.is_alive() and time.monotonic() < ends:
            server.end_watches()  # again: one may have begun since
            thread.join(0.1)
        connection.close()
        assert not thread.is_alive()


AGAIN = ("recovered",)
LISTED = ("listed", "shop/a", 3)
NEVER = ("trouble", "Pod without a name cannot be read and is left out: ")

STREAMS: dict[str, tuple[list[bytes], list[tuple[Any, ...]]]] = {
    "bookmarks before any object": (
        [bookmark("10"), line("ADDED", pod("b", "12"))],
        [("reached", 10), ("changed", "shop/b", 12)],
    ),
    "a bookmark twice": ([bookmark("10"), bookmark("10")], [("reached", 10)] * 2),
    "an older bookmark": (
        [line("ADDED", pod("b", "12")), bookmark("5")],
        [("changed", "shop/b", 12), ("reached", 12)],
    ),
    "objects without a resourceVersion": (
        [line("ADDED", pod("b")), line("DELETED", pod("b", ""))],
        [("changed", "shop/b", 0), ("gone", "shop/b", 0)],
    ),
    "resourceVersions that are no numbers": (
        [line("ADDED", pod("b", "x-12")), line("ADDED", pod("c", "1.5")), bookmark("y")],
        [("changed", "shop/b", 0), ("changed", "shop/c", 0)],
    ),
    "resourceVersions that are JSON numbers": (
        [line("ADDED", pod("b", 12)), bookmark(15), line("ADDED", pod("c", None)), bookmark(None)],
        [("changed", "shop/b", 12), ("reached", 15), ("changed", "shop/c", 0)],
    ),
    "metadata that cannot be read": (
        [line("ADDED", {"kind": "Pod", "metadata": None}), line("ADDED", pod("b", "12"))],
        [
            (
                "trouble",
                "an object that cannot be read is left out:"
                " Expected `object`, got `null` - at `$.metadata`",
            ),
            ("changed", "shop/b", 12),
        ],
    ),
    "an object without metadata": (
        [line("ADDED", {"kind": "Pod"}), line("ADDED", pod("b", "12"))],
        [
            (*NEVER[:1], f"{NEVER[1]}Object missing required field `metadata`"),
            ("changed", "shop/b", 12),
        ],
    ),
    "a busy server": ([status(500)], [("trouble", f"{PODS}: no leader"), AGAIN]),
    "a server that waited too long": ([status(504)], [("trouble", f"{PODS}: no leader"), AGAIN]),
    "a code that is no number": (
        [line("ERROR", {"code": "500"})],
        [("trouble", f'{PODS}: {{"code": "500"}}'), AGAIN],
    ),
    "an error without an object": (
        [b'{"type": "ERROR"}\n'],
        [("trouble", f"{PODS}: null"), AGAIN],
    ),
    "what is no UTF-8": (
        [line("ADDED", pod("b", "12")).replace(b"uid-b", b"\xff")],
        [("trouble", f"{PODS}: the answer is not UTF-8: invalid start byte"), AGAIN],
    ),
    "a letter in two pieces": (
        [
            line("ADDED", pod("b", "12", labels={"ü": "ß"}))[:70],
            line("ADDED", pod("b", "12", labels={"ü": "ß"}))[70:],
        ],
        [("changed", "shop/b", 12)],
    ),
}


@pytest.mark.parametrize("what", STREAMS)
def test_what_comes_in_a_stream(what: str, tmp_path: Path) -> None:
    """It is taken, or reported and tried again; the watch goes on in each case."""
    pieces, expected = STREAMS[what]
    with watching(tmp_path, pieces) as found:
        until(lambda: found.server.requests[WATCHES] > 1, what="the next watch")
        found.server.publish("ADDED", pod("z", "20"))
        until(lambda: ("changed", "shop/z", 20) in found.told, what="the rest")
    assert found.told == [LISTED, *expected, ("changed", "shop/z", 20)]


def test_watches_that_say_nothing(tmp_path: Path) -> None:
    """They end at once, again and again: each waits longer than the one before, up to a limit."""
    with watching(tmp_path, *[[] for _ in range(8)]) as found:
        until(lambda: found.server.requests[WATCHES] > 8, what="the last watch")
        found.server.publish("ADDED", pod("z", "20"))
        until(lambda: ("changed", "shop/z", 20) in found.told, what="the rest")
    expected = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert found.waits.seconds == pytest.approx(expected)
    assert found.told == [LISTED, *[("reached", 3)] * 8, ("changed", "shop/z", 20)]


def test_watches_of_a_quiet_kind(tmp_path: Path) -> None:
    """They end after their time without a word: the next one begins soon each time."""
    with watching(tmp_path, watch_seconds=1) as found:
        until(lambda: found.server.requests[WATCHES] > 3, what="the next watches")
    assert found.waits.seconds[:3] == pytest.approx([0.01] * 3)


@pytest.mark.parametrize("how", ["seconds", "a date", "neither"])
@pytest.mark.parametrize("code", [429, 503])
def test_a_server_says_when_to_come_again(code: int, how: str, tmp_path: Path) -> None:
    """`Retry-After` of a list and of a watch is the least that is waited."""
    said = {"seconds": "1", "a date": email.utils.formatdate(time.time() + 3), "neither": "soon"}
    least = 0.0 if how == "neither" else 0.5

    def refusing(server: ApiServer) -> None:
        server.faults.refusals = [code, code]
        server.faults.retry_after = said[how]

    with watching(tmp_path, prepare=refusing, most=0.01) as found:
        until(lambda: len(found.waits.seconds) == 2, what="the refusals of the list")
        until(lambda: LISTED in found.told, what="the list")
        until(lambda: found.server.requests[WATCHES] > 0, what="the watch")
        # A watch that said nothing is followed by a look at the server's counter.
        found.server.faults.refusals = [code, code]
        found.server.faults.retry_after = "1"
        calls = found.waits.seconds
        until(lambda: found.server.end_watches() or len(calls) == 4, what="the other refusals")
    first, _, third, fourth = found.waits.seconds
    assert (first >= least, first < 4, third >= 1, fourth >= 1) == (True,) * 4


def test_an_error_in_a_stream_says_when_to_come_again(tmp_path: Path) -> None:
    with watching(tmp_path, [status(429, details={"retryAfterSeconds": 1})]) as found:
        until(lambda: found.server.requests[WATCHES] > 1, what="the next watch")
    assert found.waits.seconds[0] == pytest.approx(1.005)


def test_a_server_that_wants_to_be_left_alone_for_long() -> None:
    """It is called again after a while all the same."""
    busy = refusal(PODS, 503, b"down for the day", retry_after=86_400)
    assert isinstance(busy, Busy)
    waits = Backoff(first=1, most=30, chance=lambda: 0.0)
    assert waits.next(busy) == MOST_RETRY_AFTER_SECONDS


def test_a_listing_waits_as_long_as_the_server_says(tmp_path: Path) -> None:
    """`policy import --context` as well."""

    def refusing(server: ApiServer) -> None:
        server.faults.refusals = [429]
        server.faults.retry_after = "1"

    with serving([pod("a", "3")], refusing) as server:
        connection = Connection(place(kubeconfig=kubeconfig(tmp_path, server.url)))
        began = time.monotonic()
        found = listed(connection, limits=Limits(), progress=lambda *_: None, whole=False)
        seconds = time.monotonic() - began
        connection.close()
    assert ([key_of(one) for one in found.read.objects], seconds >= 1) == (["shop/a"], True)


def small_pieces(server: ApiServer) -> None:
    server.faults.piece = 7


def compressed(server: ApiServer) -> None:
    server.faults.compressed_watches = True


def compressed_in_small_pieces(server: ApiServer) -> None:
    small_pieces(server)
    compressed(server)


def compressed_and_cut(server: ApiServer) -> None:
    compressed(server)
    server.faults.cuts = {"Pod": [3, -1, 5], "Event": [1, -1]}


@pytest.mark.parametrize(
    "how", [small_pieces, compressed, compressed_in_small_pieces, compressed_and_cut]
)
def test_how_a_stream_is_packed(
    how: Callable[[ApiServer], None], database_url: str, tmp_path: Path
) -> None:
    """Chunks of a few bytes and gzip: the state is that of the recording, and nothing is a gap."""
    with (
        serving(initial(NAME), how) as server,
        following(database_url, server, tmp_path) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        play(server, NAME)
        until(lambda: settled(database_url, NAME), what="the end of the recording")
    with Store.open(database_url) as store:
        state = identity(store.state.load(CLUSTER).objects)
        gaps = store.read.gaps(CLUSTER)
    assert (state, gaps) == (final(NAME), [])


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """SQLite: what servers answer has nothing to do with the database."""
    file = tmp_path / "policy.db"
    file.write_bytes(Path(sqlite_template).read_bytes())
    return f"sqlite:///{file}"


def test_a_clock_that_is_set_back_holds_nothing_up(database_url: str, tmp_path: Path) -> None:
    """What was heard before is written, and what comes then is not written one event late."""
    back_ms = [0]

    def clock() -> int:
        return time.time_ns() // 1_000_000 - back_ms[0]

    def names() -> set[str]:
        with Store.open(database_url, read_only=True) as store:
            return {key_of(one) for one in store.state.load(CLUSTER).objects}

    with (
        serving([pod("first", "10")]) as server,
        following(database_url, server, tmp_path, clock=clock) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        server.publish("ADDED", pod("before", "20"))
        until(lambda: found.follower.figures.events > 0, what="the first event")
        back_ms[0] = 600_000
        server.publish("ADDED", pod("afterwards", "21"))
        until(lambda: "shop/afterwards" in names(), what="the second pod")
        assert names() == {"shop/first", "shop/before", "shop/afterwards"}
