"""Trace folders: `cluster.json`, `events.jsonl` and, where there is one, `truth.jsonl`.

`docs/simulation.md` describes the files. Each may be gzipped.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.objects import ClusterObject, Pod, PriorityClass, key_of, kind_of
from policy.manifests import ManifestError, read, read_dicts, resolve
from policy.simulation.durations import KnownRuntime, tasks
from policy.simulation.options import Durations
from policy.simulation.trace import Trace, TraceError, TraceEvent
from policy.text.system import explained

EPOCH_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z: when a trace begins whose cluster names no instant."""

_RAN: Final = frozenset({"bind", "evict", "resubmit"})


@dataclass(slots=True)
class _Read:
    """What the events hold."""

    pods: list[dict[str, Any]] = field(default_factory=list)
    created: dict[str, tuple[int, int]] = field(default_factory=dict)  # key -> (ms, line)
    finished: dict[str, int] = field(default_factory=dict)
    objects: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    removed: list[tuple[int, str, str]] = field(default_factory=list)
    last_ms: int = 0


def read_trace(
    folder: str | Path,
    *,
    cluster: str | Path | None = None,
    durations: Durations = Durations.OBSERVED,
) -> Trace:
    """Read a trace folder.

    cluster: manifests that replace the objects of `cluster.json` that have the same kind; pods stay
    those of the folder. Raises TraceError and ManifestError, with the place of what is wrong.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(
            f"{folder}: no folder" if not folder.exists() else f"{folder}: not a folder",
            help="a trace is a folder with `cluster.json` and `events.jsonl`, plain or gzipped",
        )
    here = _objects(_found(folder, "cluster.json"))
    if cluster is not None:
        other = [o for o in _objects(Path(cluster)) if not isinstance(o, Pod)]
        kinds = {kind_of(o) for o in other}
        here = [*(o for o in here if kind_of(o) not in kinds), *other]
    events_file = _found(folder, "events.jsonl")
    events = _events(events_file)
    classes = [o for o in here if kind_of(o) == "PriorityClass"]
    pods, others = _new_objects(events, classes, events_file)
    start_ms = _start(here)
    _require_known(events, here, events_file)
    truth = _last_runs(folder) if _optional(folder, "truth.jsonl") is not None else None
    known = [
        *_there(here, events, truth, start_ms),
        *_coming(pods, events, truth, start_ms),
    ]
    found, notes = tasks(known, start_ms=start_ms, durations=durations)
    changes = [
        *(TraceEvent(at_ms=start_ms + at, change=(kind_of(o), key_of(o), o)) for at, o in others),
        *(TraceEvent(at_ms=start_ms + at, change=(k, n, None)) for at, k, n in events.removed),
    ]
    return Trace(
        name=folder.resolve().name,
        start_ms=start_ms,
        end_ms=start_ms + events.last_ms,
        objects=[o for o in here if not isinstance(o, Pod)],
        tasks=found,
        events=sorted(changes, key=lambda e: e.at_ms),
        notes=notes,
    )


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


def _objects(path: Path) -> list[ClusterObject]:
    found = read([path])
    return resolve(found.objects, places=found.places)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as exc:
        said = explained(exc) if isinstance(exc, OSError) else None
        raise TraceError(f"{path}: {said.message if said else 'not a whole gzip file'}") from exc


def _decoded(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and value of every line, in ascending time."""
    decode = msgspec.json.Decoder().decode
    last = 0.0
    for number, line in _lines(path):
        place = f"{path}:{number}"
        try:
            value = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise TraceError(f"{place}: not JSON: {str(exc).lower()}") from exc
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
        yield place, value


# --- what they hold ------------------------------------------------------------------------------


def _events(path: Path) -> _Read:
    found = _Read()
    for place, value in _decoded(path):
        at = _millis(value["t"])
        found.last_ms = at
        op = value.get("op")
        if op in {"create", "finish"}:
            _pod_event(found, place, value, op, at)
        elif op == "put":
            found.objects.append((at, {"place": place, "object": _mapping(value, "object", place)}))
        elif op == "remove":
            kind, name = value.get("kind"), value.get("name")
            if not isinstance(kind, str) or not isinstance(name, str):
                raise TraceError(f"{place}: `remove` needs `kind` and `name`")
            found.removed.append((at, kind, name))
        else:
            raise TraceError(
                f"{place}: unknown `op` {msgspec.json.encode(op).decode()}",
                help="one of `create`, `finish`, `put`, `remove`",
            )
    return found


def _pod_event(found: _Read, place: str, value: Mapping[str, Any], op: str, at: int) -> None:
    pod = _mapping(value, "pod", place)
    meta = _mapping(pod, "metadata", f"{place}: pod")
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        raise TraceError(f"{place}: `pod.metadata.name` is missing")
    key = f"{meta.get('namespace') or 'default'}/{name}"
    if op == "create":
        if key in found.created:
            raise TraceError(
                f"{place}: pod `{key}` was created before",
                help="a pod that comes again is another one: give it another name",
            )
        found.created[key] = (at, len(found.pods))
        found.pods.append({"kind": "Pod", "apiVersion": "v1", **pod})
    elif key in found.finished:
        raise TraceError(f"{place}: pod `{key}` finished before")
    else:
        found.finished[key] = at


def _mapping(value: Mapping[str, Any], name: str, place: str) -> dict[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        raise TraceError(f"{place}: `{name}` is missing")
    return found


def _new_objects(
    events: _Read, classes: Sequence[ClusterObject], path: Path
) -> tuple[list[Pod], list[tuple[int, ClusterObject]]]:
    known = [c for c in classes if isinstance(c, PriorityClass)]
    try:
        read_pods = read_dicts(events.pods)
        resolved = resolve(read_pods.objects, known_classes=known, places=read_pods.places)
        read_others = read_dicts(o["object"] for _, o in events.objects)
        others = resolve(read_others.objects, known_classes=known, places=read_others.places)
    except ManifestError as exc:
        raise TraceError(f"{path}: {exc}") from exc
    if len(resolved) != len(events.pods) or len(others) != len(events.objects):
        raise TraceError(f"{path}: it holds objects of kinds that are not used here")
    pods = [pod for pod in resolved if isinstance(pod, Pod)]
    return pods, [(at, o) for (at, _), o in zip(events.objects, others, strict=True)]


def _require_known(events: _Read, here: Iterable[ClusterObject], path: Path) -> None:
    known = {key_of(o) for o in here if isinstance(o, Pod)}
    for key in events.finished:
        if key not in known and key not in events.created:
            raise TraceError(
                f"{path}: pod `{key}` finishes, and is neither in the cluster nor created"
            )


def read_truth(folder: str | Path) -> Iterator[tuple[int, str, str]]:
    """What `truth.jsonl` of a trace folder tells of pods, in the order of time.

    Milliseconds after the start, what happened (`bind`, `evict`, ...), and the pod's key. Raises
    TraceError, also where the folder has none.
    """
    path = _found(Path(folder), "truth.jsonl")
    for place, value in _decoded(path):
        op, key = value.get("op"), value.get("pod")
        if not isinstance(op, str):
            raise TraceError(f"{place}: `op` is missing")
        if isinstance(key, str):
            yield _millis(value["t"]), op, key
        elif op in _RAN:
            raise TraceError(f"{place}: `pod` is missing")


def _last_runs(folder: Path) -> dict[str, int | None]:
    """When each pod that truth tells of got its node last, in milliseconds after the start."""
    found: dict[str, int | None] = {}
    for at, op, key in read_truth(folder):
        if op == "bind":
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
        if not isinstance(pod, Pod) or pod.status.phase in {"Succeeded", "Failed"}:
            continue
        key = key_of(pod)
        if key in events.created:
            raise TraceError(
                f"pod `{key}` is in the cluster at the start, and an event creates it",
                help="a pod that comes again is another one: give it another name",
            )
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
            arrives_ms=start_ms + events.created[key][0],
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
