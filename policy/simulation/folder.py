"""Trace folders: `cluster.json`, `events.jsonl` and, where there is one, `truth.jsonl`.

`docs/simulation.md` describes the files. Each may be gzipped.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import (
    KINDS,
    NAMESPACED,
    ClusterObject,
    Pod,
    PriorityClass,
    key_of,
    kind_of,
)
from policy.manifests import ManifestError, read, read_dicts, resolve
from policy.manifests.problems import first_of
from policy.simulation.budgets import noted
from policy.simulation.durations import KnownRuntime, tasks
from policy.simulation.options import Durations
from policy.simulation.trace import Trace, TraceError, TraceEvent, with_objects
from policy.text import words
from policy.text.system import explained
from policy.typed import UNDECODABLE, undecodable

EPOCH_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z: when a trace begins whose cluster names no instant."""

_RAN: Final = frozenset({"bind", "evict", "resubmit"})
_KEYS: Final = {
    "create": frozenset({"t", "op", "pod"}),
    "finish": frozenset({"t", "op", "pod", "reason"}),  # why, for people
    "put": frozenset({"t", "op", "object"}),
    "remove": frozenset({"t", "op", "kind", "name"}),
}


@dataclass(slots=True)
class _Read:
    """What the events hold."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)  # parallel to `pods`
    created: dict[str, int] = field(default_factory=dict)  # key -> ms
    finished: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[int, Change]] = field(default_factory=list)
    last_ms: int = 0
    unread: set[tuple[str, str]] = field(default_factory=set)  # `op` and a key without meaning


def read_trace(
    folder: str | Path,
    *,
    cluster: str | Path | None = None,
    durations: Durations = Durations.OBSERVED,
) -> Trace:
    """Read a trace folder.

    cluster: manifests that replace all objects of the trace that have the same kind, later ones
    too; pods stay those of the folder. Raises TraceError and ManifestError, with the place of what
    is wrong.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(
            f"{folder}: no folder" if not folder.exists() else f"{folder}: not a folder",
            help="a trace is a folder with `cluster.json` and `events.jsonl`, plain or gzipped",
        )
    here, passed_over = _objects(_found(folder, "cluster.json"))
    others: list[ClusterObject] = []
    if cluster is not None:
        others, more = _objects(Path(cluster))
        passed_over += more
    events_file = _found(folder, "events.jsonl")
    classes = [o for o in others if isinstance(o, PriorityClass)]
    classes = classes or [o for o in here if isinstance(o, PriorityClass)]
    reader = _EventReader(events_file, here, classes)
    events = reader.read()
    pods = reader.pods()
    start_ms = _start(here)
    told = _optional(folder, "truth.jsonl") is not None
    truth = _last_runs(folder, events.finished) if told else None
    known = [
        *_there(here, events, truth, start_ms),
        *_coming(pods, events, truth, start_ms),
    ]
    found, notes = tasks(known, start_ms=start_ms, durations=durations)
    notes = [*passed_over, *_unread(events_file, events.unread), *notes]
    placed = sum(bool(pod.spec.node_name) for pod in pods)
    if placed:
        notes.append(f"{words.number(placed, 'pod')} came with a node, and gets it anew")
    trace = Trace(
        name=folder.resolve().name,
        start_ms=start_ms,
        end_ms=start_ms + events.last_ms,
        objects=[o for o in here if not isinstance(o, Pod)],
        tasks=found,
        events=[TraceEvent(at_ms=start_ms + at, change=change) for at, change in events.changes],
        notes=notes,
    )
    return noted(with_objects(trace, [o for o in others if not isinstance(o, Pod)]))


# --- files ---------------------------------------------------------------------------------------


def _found(folder: Path, name: str) -> Path:
    found = _optional(folder, name)
    if found is None:
        raise TraceError(
            f"{folder}: no `{name}` or `{name}.gz`",
            help="a trace is a folder with `cluster.json` and `events.jsonl`, plain or gzipped",
        )
    return found


def _optional(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _objects(path: Path) -> tuple[list[ClusterObject], list[str]]:
    """The objects of a file, and what was passed over in it, in words."""
    found = read([path])
    notes = [f"{path.name}: {sentence}" for sentence in found.passed_over()]
    return resolve(found.objects, places=found.places), notes


def _unread(path: Path, keys: Iterable[tuple[str, str]]) -> list[str]:
    names = [f"{key} of {op}" for op, key in sorted(keys)]
    said = f"{path.name}: keys that mean nothing, and were not read: {first_of(names)}"
    return [said] if names else []


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as exc:
        said = explained(exc) if isinstance(exc, OSError) else None
        raise TraceError(f"{path}: {said.message if said else 'not a whole gzip file'}") from exc


def _decoded(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Number, place and value of every line, in ascending time."""
    decode = msgspec.json.Decoder().decode
    last = 0.0
    for number, line in _lines(path):
        place = f"{path}:{number}"
        try:
            value = decode(line)
        except UNDECODABLE as exc:
            raise TraceError(f"{place}: not JSON: {undecodable(exc)}") from exc
        if not isinstance(value, dict):
            raise TraceError(f"{place}: not a JSON object")
        at = value.get("t")
        if not isinstance(at, int | float) or isinstance(at, bool) or not 0 <= at < 1e11:
            raise TraceError(f"{place}: `t` is not a number of seconds from the start of the trace")
        if at < last:
            raise TraceError(
                f"{place}: `t` is {at}, after {last} in the line before",
                help="events stand in the order of their time",
            )
        last = at
        yield number, place, value


# --- what they hold ------------------------------------------------------------------------------


class _EventReader:
    """Reads the events, each against what is there when it happens."""

    def __init__(
        self, path: Path, here: Sequence[ClusterObject], classes: Sequence[PriorityClass]
    ) -> None:
        self._path = path
        self._classes = classes
        self._running = {key_of(o) for o in here if isinstance(o, Pod) and not _ended(o)}
        self._ended = {key_of(o) for o in here if isinstance(o, Pod) and _ended(o)}
        self._there = {(str(kind_of(o)), key_of(o)) for o in here if not isinstance(o, Pod)}
        self._found = _Read()

    def read(self) -> _Read:
        """Everything but the pods, which are read together."""
        found = self._found
        for number, place, value in _decoded(self._path):
            at = found.last_ms = _millis(value["t"])
            match value.get("op"):
                case "create":
                    self._create(number, place, value, at)
                case "finish":
                    self._finish(place, value, at)
                case "put":
                    found.changes.append((at, self._put(number, place, value)))
                case "remove":
                    found.changes.append((at, self._remove(place, value)))
                case op:
                    raise TraceError(
                        f"{place}: unknown `op` {msgspec.json.encode(op).decode()}",
                        help="one of `create`, `finish`, `put`, `remove`",
                    )
            if not value.keys() <= _KEYS[value["op"]]:
                found.unread.update((value["op"], k) for k in value.keys() - _KEYS[value["op"]])
        return found

    def pods(self) -> list[Pod]:
        """Those that are created, in the order of their lines."""
        found = self._found
        pods = []
        for obj, number in zip(self._objects(found.pods, found.lines), found.lines, strict=True):
            if not isinstance(obj, Pod):
                raise TraceError(
                    f"{self._path}:{number}: `pod` holds a {kind_of(obj)}",
                    help="`create` is for pods; `put` another object",
                )
            pods.append(obj)
        return pods

    def _create(self, number: int, place: str, value: Mapping[str, Any], at: int) -> None:
        pod, key = _pod_of(value, place)
        again = "a pod that comes again is another one: give it another name"
        if key in self._found.created:
            raise TraceError(f"{place}: pod `{key}` was created before", help=again)
        if key in self._running:
            raise TraceError(f"{place}: pod `{key}` is in the cluster at the start", help=again)
        self._found.created[key] = at
        self._found.pods.append({"kind": "Pod", "apiVersion": "v1", **pod})
        self._found.lines.append(number)

    def _finish(self, place: str, value: Mapping[str, Any], at: int) -> None:
        _, key = _pod_of(value, place)
        if key in self._found.finished:
            raise TraceError(f"{place}: pod `{key}` finished before")
        if key not in self._running and key not in self._found.created:
            if key in self._ended:
                raise TraceError(f"{place}: pod `{key}` has ended before the trace begins")
            raise TraceError(
                f"{place}: pod `{key}` finishes, and is neither in the cluster nor created before"
            )
        self._found.finished[key] = at

    def _put(self, number: int, place: str, value: Mapping[str, Any]) -> Change:
        (obj,) = self._objects([_mapping(value, "object", place)], [number])
        if isinstance(obj, Pod):
            raise TraceError(
                f"{place}: `put` of a pod",
                help="pods come with `create` and end with `finish`; who runs where is simulated",
            )
        kind, key = kind_of(obj), key_of(obj)
        self._there.add((kind, key))
        return kind, key, obj

    def _remove(self, place: str, value: Mapping[str, Any]) -> Change:
        kind, name = value.get("kind"), value.get("name")
        if not isinstance(kind, str) or not isinstance(name, str):
            raise TraceError(f"{place}: `remove` needs `kind` and `name`")
        if kind == "Pod":
            raise TraceError(f"{place}: `remove` of a pod", help="pods end with `finish`")
        if kind not in KINDS:
            raise TraceError(
                f"{place}: unknown kind `{kind}`",
                help=f"one of {', '.join(k for k in KINDS if k != 'Pod')}",
            )
        if (kind, name) not in self._there:
            bare = kind in NAMESPACED and "/" not in name
            raise TraceError(
                f"{place}: there is no {kind} `{name}` then",
                help=f"name it with its namespace: `default/{name}`" if bare else "",
            )
        self._there.remove((kind, name))
        return kind, name, None

    def _objects(
        self, values: Sequence[Mapping[str, Any]], lines: Sequence[int]
    ) -> list[ClusterObject]:
        """The objects of some lines, one of each."""
        try:
            found = read_dicts(values)
            objects = resolve(found.objects, known_classes=self._classes, places=found.places)
        except ManifestError as exc:
            problems = [
                replaced(problem, source=f"{self._path}:{lines[problem.document - 1]}", document=0)
                for problem in exc.problems
            ]
            raise ManifestError(problems) from exc
        each = Counter(place.document for place in found.places)
        for document, line in enumerate(lines, start=1):
            if each[document] != 1:
                raise TraceError(
                    f"{self._path}:{line}: no object of a kind that is used here",
                    help=f"one of {', '.join(KINDS)}; an event holds no list",
                )
        return objects


def _ended(pod: Pod) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"}


def _pod_of(value: Mapping[str, Any], place: str) -> tuple[dict[str, Any], str]:
    """The pod of an event, and its key."""
    pod = _mapping(value, "pod", place)
    meta = _mapping(pod, "metadata", f"{place}: pod")
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        raise TraceError(f"{place}: `pod.metadata.name` is missing")
    return pod, f"{meta.get('namespace') or 'default'}/{name}"


def _mapping(value: Mapping[str, Any], name: str, place: str) -> dict[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        raise TraceError(f"{place}: `{name}` is missing")
    return found


def read_truth(folder: str | Path) -> Iterator[tuple[int, str, str]]:
    """What `truth.jsonl` of a trace folder tells of pods, in the order of time.

    Milliseconds after the start, what happened (`bind`, `evict`, ...), and the pod's key. Raises
    TraceError, also where the folder has none.
    """
    return ((at, op, key) for _, at, op, key in _truth(folder))


def _truth(folder: str | Path) -> Iterator[tuple[str, int, str, str]]:
    """The same, with the place of each."""
    path = _found(Path(folder), "truth.jsonl")
    for _, place, value in _decoded(path):
        op, key = value.get("op"), value.get("pod")
        if not isinstance(op, str):
            raise TraceError(f"{place}: `op` is missing")
        if isinstance(key, str):
            yield place, _millis(value["t"]), op, key
        elif op in _RAN:
            raise TraceError(f"{place}: `pod` is missing")


def _last_runs(folder: Path, finished: Mapping[str, int]) -> dict[str, int | None]:
    """When each pod that truth tells of got its node last, in milliseconds after the start."""
    found: dict[str, int | None] = {}
    for place, at, op, key in _truth(folder):
        if op == "bind":
            if at > finished.get(key, at):
                raise TraceError(
                    f"{place}: pod `{key}` gets a node after its `finish` in `events.jsonl`"
                )
            found[key] = at
    return found


def _start(objects: Iterable[ClusterObject]) -> int:
    """The last instant that the cluster's pods name, to the next whole second."""
    named = [
        times.parse_optional(text)
        for o in objects
        if isinstance(o, Pod)
        for text in (o.metadata.creation_timestamp, o.status.start_time)
    ]
    last = max((at for at in named if at != times.MISSING), default=EPOCH_MS)
    return -(-last // 1000) * 1000


def _there(
    objects: Iterable[ClusterObject],
    events: _Read,
    truth: Mapping[str, int | None] | None,
    start_ms: int,
) -> Iterator[KnownRuntime]:
    """Pods of the cluster as it is at the start, those that have ended left out."""
    for pod in objects:
        if not isinstance(pod, Pod) or _ended(pod):
            continue
        key = key_of(pod)
        yield KnownRuntime(
            pod=_named(pod),
            arrives_ms=start_ms,
            ends_ms=_after(start_ms, events.finished.get(key)),
            ran_from_ms=_after(start_ms, (truth or {}).get(key)),
            truth=truth is not None,
        )


def _coming(
    pods: Iterable[Pod], events: _Read, truth: Mapping[str, int | None] | None, start_ms: int
) -> Iterator[KnownRuntime]:
    for pod in pods:
        key = key_of(pod)
        yield KnownRuntime(
            pod=_named(replace(pod, spec=replace(pod.spec, node_name=""))),
            arrives_ms=start_ms + events.created[key],
            ends_ms=_after(start_ms, events.finished.get(key)),
            ran_from_ms=_after(start_ms, (truth or {}).get(key)),
            truth=truth is not None,
        )


def _named(pod: Pod) -> Pod:
    """The pod with a uid: a life of it must be told from the next one."""
    meta = pod.metadata
    return pod if meta.uid else replace(pod, metadata=replace(meta, uid=key_of(pod)))


def _millis(seconds: float) -> int:
    return round(seconds * 1000)


def _after(start_ms: int, millis: int | None) -> int | None:
    return None if millis is None else start_ms + millis
