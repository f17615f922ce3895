"""Reading manifests: every form that people have, as typed objects, or all that is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from itertools import count, groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from types import GenericAlias
from typing import IO, Any, Final, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from policy.cluster import collector, times
from policy.cluster.objects import KINDS, ClusterObject, Node, Pod, key_of
from policy.cluster.whole import rest_of
from policy.manifests import fields, kinds, limits, odd, sources, yaml_values
from policy.manifests.collected import Collected, ReadFrom, SeenClaim, Stop, StreamEntry
from policy.manifests.json_texts import EndOfList, Items, JsonError, JsonPart, Parts, TooLarge
from policy.manifests.limits import Limits
from policy.manifests.problems import ManifestError, first_of, shown
from policy.observing.events import EventError, claim_of
from policy.text import words
from policy.text.problems import Problem
from policy.text.yaml12 import YamlError
from policy.typed import prepared

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all); in all is 0 where it is unknown."""

OBJECTS: Final = "<objects>"
OTHER_FILES: Final = "(other files)"
EMPTY_FILE: Final = "(empty file)"
HOW_TO_EXPORT: Final = (
    "export with `kubectl get nodes,pods,pdb,priorityclasses,namespaces,services,rc,rs,sts -A"
    " -o json`"
)
"""All kinds that decide about single pods."""
_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})
_PROGRESS_EVERY: Final = 1000
_DEEPEST_LISTS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSet:
    """The objects of some manifests, each once, in the order of reading."""

    objects: list[ClusterObject]  #: as lists and watches leave them
    places: list[ReadFrom]  #: parallel to `objects`
    listed: list[ClusterObject]  #: as the lists alone have them, before any watch
    changes: list[StreamEntry]  #: what watches change of the lists, in the order of reading
    claims: list[SeenClaim]  #: what events say about preemptions
    skipped: Counter[str]  #: objects that are not used, by kind
    sources: tuple[str, ...]  #: files that were read
    #: objects that stood more than once and differed (`Pod default/web`), and how often they were
    #: replaced; the last one was taken
    repeated: Counter[str]

    def passed_over(self) -> list[str]:
        """What was skipped or replaced, in words."""
        told = []
        if self.skipped:
            told.append(f"skipped: {words.counted(self.skipped)}")
        if self.repeated:
            told.append(
                f"{words.number(len(self.repeated), 'object')} stood more than once and differed;"
                f" the last one was taken: {first_of(list(self.repeated))}"
            )
        return told


def read(
    paths: Sequence[str | Path],
    *,
    stdin: IO[bytes] | None = None,
    progress: Progress | None = None,
    limits: Limits = limits.DEFAULT,
    whole: bool = False,
) -> ManifestSet:
    """Read files, folders (recursively) and standard input (`-`).

    Understands JSON and YAML, one or many documents, JSON Lines, `List`, `PodList` and any other
    list, bare arrays, objects without kind, watch streams, each also gzipped. Kinds that the
    engine does not use are counted and skipped. Files are read piece by piece: what exceeds
    `limits` is refused before it takes memory. Raises ManifestError with every problem of every
    file; then nothing of the manifests may be used.

    whole: pods and nodes keep what else their manifests hold (`policy.cluster.whole`).
    """
    reader = _Reader(progress, limits, whole=whole)
    with collector.paused():
        reader.read(sources.find(paths), stdin)
    return reader.result()


def read_dicts(
    objects: Iterable[Mapping[str, Any]],
    *,
    admission: bool = True,
    limits: Limits = limits.DEFAULT,
    whole: bool = False,
) -> ManifestSet:
    """Read objects that are already decoded, as in the `items` of a kubectl List.

    Their places are numbered as documents from 1. Without `admission`, names, labels and operators
    that an API server would have refused are taken as they are: what was recorded of a scheduler
    alone never passed one. Raises ManifestError.
    """
    reader = _Reader(None, limits, admission=admission, whole=whole)
    with collector.paused():
        reader.read_dicts(objects)
    return reader.result()


_KEPT_WHOLE: Final = (Pod, Node)
_UNTYPED: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode
_KIND: Final = b'"kind"'
_VERSION: Final = "resourceVersion"
_NUL: Final = b"\\u0000"
_NAMED: Final = itemgetter(0)
"""Kind and version, of a pair of these and an object."""


class _Reader:
    """Walks through sources, documents and lists, and gives their objects to `Collected`."""

    def __init__(
        self,
        progress: Progress | None,
        limits: Limits,
        *,
        admission: bool = True,
        whole: bool = False,
    ) -> None:
        self._progress = progress
        self._limits = limits
        self._total = 0
        self._done = 0  # bytes of the files read before this one
        self._text_bytes = 0  # of the texts read before this one
        self._source = ""
        self._from_folder = False
        self._item = 0
        self._odd = False  # whether the values at hand may hold what `odd.problems` finds
        self._decoded_here = False  # whether the values at hand come from a checked JSON text
        self._replaces = False  # whether the values at hand are news of a watch
        self._yaml = False
        self._whole = whole
        self._collected = Collected(limits, admission=admission)

    def read(self, found: sources.FoundFiles, stdin: IO[bytes] | None) -> None:
        into = self._collected
        for problem in found.problems:
            into.problem(problem)
        if found.other_files:
            into.skipped[OTHER_FILES] = found.other_files
        known = all(source.path is not None for source in found.sources)
        self._total = sum(source.size for source in found.sources) if known else 0
        try:
            for source in found.sources:
                self._read_source(source, stdin)
                self._done += source.size
                self._tell(0)
        except Stop:
            pass  # the last problem says why

    def read_dicts(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._source = OBJECTS
        try:
            for number, value in enumerate(objects, start=1):
                self._begin(number)
                self._value(value, None)
        except Stop:
            pass  # the last problem says why

    def result(self) -> ManifestSet:
        into = self._collected
        if into.problems:
            raise ManifestError(into.problems)
        return ManifestSet(
            objects=into.objects,
            places=into.places,
            listed=into.listed,
            changes=into.changes,
            claims=into.claims,
            skipped=into.skipped,
            sources=tuple(into.sources),
            repeated=into.repeated,
        )

    def _tell(self, position: int) -> None:
        if self._progress is not None:
            self._progress(self._done + position, self._total)

    def _begin(self, document: int) -> None:
        self._item = 0
        self._collected.begin(ReadFrom(self._source, document))

    def _problem(self, message: str, *, obj: str = "", field: str = "", help: str = "") -> None:
        place = self._collected.place
        self._collected.problem(
            Problem(
                source=place.source,
                document=place.document,
                object=obj,
                field=field,
                message=message,
                help=help,
            )
        )

    def _too_large(self, label: str) -> None:
        message, advice = limits.too_large(self._limits)
        self._problem(message, obj=label, help=advice)

    def _source_problem(
        self, message: str, *, line: int = 0, column: int = 0, help: str = ""
    ) -> None:
        self._collected.problem(
            Problem(source=self._source, line=line, column=column, message=message, help=help)
        )

    # --- texts -----------------------------------------------------------------------------

    def _read_source(self, source: sources.ManifestSource, stdin: IO[bytes] | None) -> None:
        self._source = source.name
        self._from_folder = source.from_folder
        try:
            json_text = True
            if source.path is not None and source.named_as_yaml:
                # Flow style (`{kind: Pod, ...}`) begins as JSON does: try before anything is kept.
                json_text = self._is_json(source)
            with self._opened(source, stdin) as text:
                self._collected.sources.append(source.name)
                self._read_text(text, json_text=json_text)
                self._text_bytes += text.size
        except sources.SourceError as exc:
            self._collected.problem(exc.problem)

    def _opened(
        self, source: sources.ManifestSource, stdin: IO[bytes] | None
    ) -> AbstractContextManager[sources.Text]:
        return sources.opened(source, stdin, limits=self._limits, read_before=self._text_bytes)

    def _is_json(self, source: sources.ManifestSource) -> bool:
        with self._opened(source, None) as text:
            if text.beginning.lstrip()[:1] not in (b"{", b"["):
                return False
            try:
                for _ in Parts(text, most=self._limits.object_bytes):
                    pass
            except JsonError:
                return False
            except TooLarge:
                pass
        return True

    def _read_text(self, text: sources.Text, *, json_text: bool) -> None:
        start = text.beginning.lstrip()[:1]
        if json_text and start in (b"{", b"["):
            documents = self._read_json(text)
        else:
            documents = self._read_yaml(text)
        if documents == 1:  # a file of one document needs no document number
            self._collected.renumber(self._source)
        if documents == 0 and not start:
            if self._from_folder:
                self._collected.skip(EMPTY_FILE)
            else:
                self._source_problem("the file is empty", help="did the export fail?")

    def _read_json(self, text: sources.Text) -> int:
        parts = Parts(text, most=self._limits.object_bytes)
        waiting: list[JsonPart] = []  # items of a list whose kind comes after them
        number = 0
        try:
            for part in parts:
                number += 1
                if number % _PROGRESS_EVERY == 0:
                    self._tell(text.position)
                if isinstance(part, Items):
                    self._items(part)
                    self._tell(text.position)
                    continue
                if isinstance(part, EndOfList):
                    self._end_of_list(part, waiting)
                    waiting = []
                    continue
                if part.item <= 1:
                    self._begin(part.document)
                self._item = part.item
                if part.item and part.kind is None and part.text and _KIND not in part.text:
                    waiting.append(part)
                else:
                    self._json_part(part, _item_kind(part.kind) if part.kind else None)
        except JsonError as exc:
            self._source_problem(exc.message, line=exc.line, column=exc.column, help=exc.help)
        except TooLarge as exc:
            self._begin(parts.document)
            self._item = parts.item
            self._too_large(self._label_of(exc.text))
        return parts.document

    def _end_of_list(self, end: EndOfList, waiting: Sequence[JsonPart]) -> None:
        for key in end.repeated:
            self._problem(odd.TWICE, obj=shown(end.kind or "object"), field=shown(key))
        for part in waiting:
            self._item = part.item
            self._json_part(part, _item_kind(end.kind or ""))

    def _label_of(self, text: bytes) -> str:
        """Which object a text is, where it was read to its end."""
        try:
            value = _UNTYPED(text)
        except (msgspec.DecodeError, RecursionError):
            value = None
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            return self._nameless("object")
        return self._label(kind, value.get("metadata"))

    def _json_part(self, part: JsonPart, of: str | None) -> None:
        value, self._odd, self._decoded_here = part.value, True, True
        if part.text:
            try:
                value = _UNTYPED(part.text)
                self._odd = odd.maybe(part.text, value)
                if self._odd:
                    value, _ = odd.decode(part.text.decode().lstrip())
            except msgspec.DecodeError:
                value, _ = odd.decode(part.text.decode().lstrip())
            except RecursionError:
                self._problem("nested too deeply", obj=self._nameless("object"))
                return
        self._decoded(value, of)
        self._decoded_here = False

    def _items(self, items: Items) -> None:
        self._odd, self._decoded_here = False, True
        of = _item_kind(items.kind) if items.kind else None
        numbers = count(items.item)
        add_replica = self._collected.add_replica
        named = [(value.get("kind"), value.get("apiVersion")) for value in items.values]
        for (kind, api_version), run in groupby(zip(named, items.values, strict=True), _NAMED):
            values = [value for _, value in run]
            objects = self._all_typed(values, kind, api_version)
            for value, obj, number in zip_longest(values, objects, islice(numbers, len(values))):
                if (
                    type(obj) is Pod
                    and not self._whole
                    and obj.rest is None
                    and add_replica(obj, value["metadata"].get(_VERSION))
                ):
                    continue
                self._item = number
                if obj is not None:
                    self._add(value, obj)
                else:
                    self._decoded(value, of)
        self._decoded_here = False

    def _all_typed(
        self, values: list[dict[str, Any]], kind: Any, api_version: Any
    ) -> Sequence[ClusterObject]:
        """Values of one kind as typed objects; none where they are to be looked at one by one."""
        if type(kind) is not str or kind not in KINDS or type(api_version) is not str:
            return ()
        if not kinds.used(kind, api_version) or True in ["object" in value for value in values]:
            return ()
        try:
            return msgspec.convert(values, prepared(_list_of(kinds.of(kind, api_version))))
        except (msgspec.ValidationError, TypeError, ValueError):
            return ()

    def _decoded(self, value: Any, of: str | None) -> None:
        kind = value.get("kind") if type(value) is dict else None
        if type(kind) is str and kind in KINDS and "object" not in value:
            self._object(value, kind)  # nearly always; `_value` would come to the same
        else:
            self._value(value, of)

    def _read_yaml(self, text: sources.Text) -> int:
        number = 0
        self._yaml = True
        try:
            stream = cast("IO[bytes]", _Told(text, self._tell))
            for number, value in enumerate(
                yaml_values.documents(stream, most=self._limits.object_bytes), start=1
            ):
                self._begin(number)
                self._value(value, None)
        except YamlError as exc:
            self._source_problem(exc.message, line=exc.line, column=exc.column, help=exc.help)
        except yaml_values.TooLarge:
            self._begin(number + 1)
            self._too_large("object")
        self._yaml = False
        return number

    # --- decoded values: YAML, and JSON that is unusual or wrong -------------------------------

    def _value(self, value: Any, of: str | None, depth: int = 0) -> None:
        if depth > _DEEPEST_LISTS:
            message = f"lists inside of lists, more than {_DEEPEST_LISTS} deep"
            self._problem(message, obj=self._nameless("object"))
            return
        if isinstance(value, list):
            for number, item in enumerate(value, start=1):
                self._item = number
                self._value(item, of, depth + 1)
            return
        if not isinstance(value, dict) and self._from_folder:
            self._collected.skip(kinds.NO_KIND)  # some other program's file
            return
        if not isinstance(value, dict):
            self._problem(
                f"expected a Kubernetes object, got {_described(value)}",
                obj=self._nameless("object"),
            )
            return
        kind = value.get("kind") or of
        event = value.get("type")
        if isinstance(event, str) and isinstance(value.get("object"), dict):
            self._no_key_twice(value, f"{event} event")
            self._collected.received_ms = _received(value)
            self._event(event, value["object"], depth + 1)
            self._collected.received_ms = None
        elif isinstance(value.get("items"), list) and _may_be_list(kind):
            self._no_key_twice(value, kind or "object")
            inner = _item_kind(kind or "")
            for number, item in enumerate(value["items"], start=1):
                self._item = number
                self._value(item, inner, depth + 1)
        elif isinstance(kind, str) and kind.endswith("List") and value.get("items") is None:
            pass  # a list of nothing: Go writes `items: null`
        elif not isinstance(kind, str | None):
            self._problem(
                kind.message
                if isinstance(kind, odd.Unreadable)
                else f"expected a string, got {fields.described(kind)}",
                obj=self._nameless("object"),
                field="kind",
            )
        else:
            self._object(value, kind)

    def _no_key_twice(self, value: dict[str, Any], label: str) -> None:
        """Of what stands around objects; `odd.problems` looks into the objects."""
        for key in value.repeated if isinstance(value, odd.Repeating) else ():
            self._problem(odd.TWICE, obj=shown(label), field=shown(key))

    def _object(self, value: dict[str, Any], kind: str | None) -> None:
        api_version = value.get("apiVersion")
        if kind is None:
            kind = self._recognised(value)
            if kind is None:
                return
        elif kind == "Event" and _names_an_event(api_version):
            pass
        elif not kinds.used(kind, api_version if isinstance(api_version, str) else ""):
            self._collected.skip(kinds.label(kind, str(api_version or "")))
            return
        else:
            kind = kinds.of(kind, api_version if isinstance(api_version, str) else "")
        if kind in KINDS:
            self._convert(value, kind)
        elif kind == "Event":
            self._claim(value)
        else:
            self._collected.skip(kind)

    def _claim(self, value: dict[str, Any]) -> None:
        """An Event object: kept where it is about a preemption, else counted."""
        try:
            claim = claim_of(value)
        except EventError as exc:
            self._problem(str(exc), obj=self._label("Event", value.get("metadata")))
            return
        if claim is None:
            self._collected.skip("Event")
        else:
            self._collected.claim(claim)

    def _recognised(self, value: dict[str, Any]) -> str | None:
        go_name = kinds.capitalised(value)
        if go_name:
            self._problem(
                f"capitalised field names (`{go_name}`), as Kubernetes before 1.9 dumped them",
                obj=self._nameless("object"),
                help=HOW_TO_EXPORT,
            )
            return None
        kind = kinds.by_shape(value)
        if kind is None:
            meta = value.get("metadata")
            name = meta.get("name") if isinstance(meta, dict) else None
            self._problem(
                "no `kind`, and nothing tells which it is",
                obj=f"object {shown(name)}" if isinstance(name, str) else self._nameless("object"),
                help="add `kind` and `apiVersion`",
            )
        return kind

    def _event(self, event: str, value: dict[str, Any], depth: int) -> None:
        """One line of a watch: later events replace earlier ones."""
        if event == "ERROR":
            text = value.get("message")
            message = shown(text) if isinstance(text, str) and text else "no message"
            self._problem(f"the watch ended in an error: {message}")
        elif event == "DELETED":
            self._deleted(value)
        elif event in _CHANGES:
            self._replaces = True
            self._value(value, None, depth)
            self._replaces = False
        elif event != "BOOKMARK":
            self._collected.skip(f"{event} (no event of a watch)")

    def _deleted(self, value: dict[str, Any]) -> None:
        kind, meta = value.get("kind"), value.get("metadata")
        gone = None
        if isinstance(kind, str) and isinstance(meta, dict):
            of = KINDS.get(kinds.of(kind, str(value.get("apiVersion") or "")))
            if of is not None:
                gone, _ = fields.convert({"metadata": meta, "value": 0}, of)
        if gone is None or not gone.metadata.name:
            self._collected.skip(f"{kind} (deleted)")
        else:
            self._collected.remove(type(gone).__name__, key_of(gone), version=_version(value))

    def _convert(self, value: dict[str, Any], kind: str) -> None:
        label = ""
        if self._odd if self._decoded_here else self._is_odd(value):
            label = self._label(kind, value.get("metadata"))
            flaws = list(odd.problems(value))
            for flaw in flaws:
                self._problem(flaw.message, obj=label, field=flaw.field, help=flaw.help)
            if flaws:
                return
        try:
            obj: ClusterObject | None = msgspec.convert(value, prepared(KINDS[kind]))
        except (msgspec.ValidationError, TypeError, ValueError):
            obj, mismatches = fields.convert(value, KINDS[kind])
            label = label or self._label(kind, value.get("metadata"))
            for mismatch in mismatches:
                self._problem(mismatch.message, obj=label, field=mismatch.field, help=mismatch.help)
            if obj is not None and mismatches:
                self._collected.check(obj, nameless=self._nameless)
                return
        if obj is not None:
            self._add(value, obj)

    def _add(self, value: dict[str, Any], obj: ClusterObject) -> None:
        if isinstance(obj, _KEPT_WHOLE) and (self._whole or obj.rest is not None):
            # What a manifest itself holds under that name is none of ours.
            obj = replace(obj, rest=None)
            if self._whole:
                obj = replace(obj, rest=rest_of(value, obj))
        self._collected.add(
            obj, nameless=self._nameless, version=_version(value), replaces=self._replaces
        )

    def _is_odd(self, value: dict[str, Any]) -> bool:
        """Whether an object may hold what `odd.problems` finds; says where it is too large."""
        try:
            encoded = _ENCODE(value)
        except (TypeError, ValueError, RecursionError):
            return True  # from a program: something that is no JSON
        if len(encoded) > self._limits.object_bytes:
            self._too_large(self._label(str(value.get("kind") or "object"), value.get("metadata")))
        return _NUL in encoded or (self._yaml and odd.repeats(value))

    def _label(self, kind: str, meta: Any) -> str:
        name = meta.get("name") if isinstance(meta, Mapping) else None
        if not isinstance(name, str) or not name:
            return self._nameless(kind)
        namespace = meta.get("namespace")
        return f"{kind} {shown(f'{namespace}/{name}' if isinstance(namespace, str) else name)}"

    def _nameless(self, kind: str) -> str:
        return f"{kind} (item {self._item})" if self._item else kind


@cache
def _list_of(kind: str) -> type[list[ClusterObject]]:
    return cast("type[list[ClusterObject]]", GenericAlias(list, (KINDS[kind],)))


def _names_an_event(api_version: Any) -> bool:
    """Whether objects of kind Event are those of Kubernetes' own two groups."""
    return api_version in (None, "", "v1") or (
        isinstance(api_version, str) and api_version.startswith("events.k8s.io/")
    )


def _version(value: Mapping[str, Any]) -> object:
    """The resourceVersion of an object as it stands there; None where it has no metadata."""
    meta = value.get("metadata")
    return meta.get(_VERSION) if isinstance(meta, dict) else None


def _received(line: Mapping[str, Any]) -> int | None:
    """When a line of a watch was received, where whoever recorded it wrote that down.

    `received`: seconds since 1970 UTC.
    """
    seconds = line.get("received")
    if isinstance(seconds, int | float) and 0 < seconds < times.LATEST_NOW / 1000:
        return int(seconds * 1000)
    return None


def _item_kind(kind: str) -> str | None:
    """The kind of a list's items where they carry none: `Pod` of a `PodList`."""
    return kind.removesuffix("List") or None if kind.endswith("List") else None


def _may_be_list(kind: Any) -> bool:
    return kind is None or (isinstance(kind, str) and kind.endswith("List"))


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text `{shown(value)}`"
    if isinstance(value, odd.Unreadable):
        return value.message
    return f"`{json.dumps(value, default=repr)[:60]}`"


class _Told:
    """Tells how far the YAML parser has read."""

    def __init__(self, text: sources.Text, tell: Callable[[int], None]) -> None:
        self._text = text
        self._tell_position = tell

    def read(self, size: int = -1, /) -> bytes:
        self._tell_position(self._text.position)
        return self._text.read(size)
