"""Reading manifests: every form that people have, as typed objects, or all that is wrong."""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import msgspec

from policy.cluster.objects import KINDS, ClusterObject, key_of
from policy.manifests import checks, collector, fields, kinds, sources, yaml12
from policy.manifests.problems import ManifestError, Problem

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes read so far, bytes in all); in all is 0 where it is unknown."""

OBJECTS: Final = "<objects>"
OTHER_FILES: Final = "(other files)"
_EVENTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})
_PROGRESS_EVERY: Final = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object was read."""

    source: str
    document: int  #: 1-based; 0 where the file is a single document


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSet:
    """The objects of some manifests, each once, in the order of reading."""

    objects: list[ClusterObject]
    places: list[Place]  #: parallel to `objects`
    skipped: Counter[str]  #: objects that are not used, by kind
    sources: tuple[str, ...]  #: files that were read
    repeated: int  #: objects that stood more than once and differed; the last one was taken


def read(
    paths: Sequence[str | Path],
    *,
    stdin: IO[bytes] | None = None,
    progress: Progress | None = None,
) -> ManifestSet:
    """Read files, folders (recursively) and standard input (`-`).

    Understands JSON and YAML, one or many documents, JSON Lines, `List`, `PodList` and any other
    list, bare arrays, objects without kind, watch streams, each also gzipped. Kinds that the
    engine does not use are counted and skipped. Raises ManifestError with every problem of every
    file; then nothing of the manifests may be used.
    """
    reader = _Reader(progress)
    with collector.paused():
        reader.read(sources.find(paths), stdin)
    return reader.result()


def read_dicts(objects: Iterable[Mapping[str, Any]]) -> ManifestSet:
    """Read objects that are already decoded, as in the `items` of a kubectl List.

    Their places are numbered as documents from 1. Raises ManifestError.
    """
    reader = _Reader(None)
    with collector.paused():
        reader.read_dicts(objects)
    return reader.result()


class _Envelope(msgspec.Struct):
    """The outside of one JSON document; everything inside stays undecoded."""

    kind: str | None = None
    api_version: str | None = msgspec.field(default=None, name="apiVersion")
    items: list[msgspec.Raw] | None = None
    type: msgspec.Raw | None = None
    object: msgspec.Raw | None = None


class _Head(msgspec.Struct):
    kind: str | None = None
    api_version: str | None = msgspec.field(default=None, name="apiVersion")


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_HEAD: Final = msgspec.json.Decoder(_Head)
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_LINES: Final = msgspec.json.Decoder(msgspec.Raw)
_TYPED: Final = {kind: msgspec.json.Decoder(struct) for kind, struct in KINDS.items()}


class _Reader:
    """Collects objects, skipped kinds and problems over all sources."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._total = 0
        self._done = 0  # bytes of the sources read before this one
        self._size = 0  # bytes of this one
        self._source = ""
        self._from_folder = False
        self._document = 0
        self._item = 0
        self._found: dict[tuple[str, str], tuple[ClusterObject, Place]] = {}
        self._place = Place("", 0)
        self._skipped: Counter[str] = Counter()
        self._problems: list[Problem] = []
        self._sources: list[str] = []
        self._repeated = 0

    def read(self, found: sources.Found, stdin: IO[bytes] | None) -> None:
        self._problems.extend(found.problems)
        if found.other_files:
            self._skipped[OTHER_FILES] = found.other_files
        known = all(source.path is not None for source in found.sources)
        self._total = sum(source.size for source in found.sources) if known else 0
        for source in found.sources:
            self._source, self._size = source.name, source.size
            data = sources.load(source, stdin)
            if isinstance(data, Problem):
                self._problems.append(data)
            else:
                self._sources.append(source.name)
                self._from_folder = source.from_folder
                self._read_text(data)
            self._done += source.size
            self._tell(0.0)

    def read_dicts(self, objects: Iterable[Mapping[str, Any]]) -> None:
        self._source = OBJECTS
        for number, value in enumerate(objects, start=1):
            self._begin(number)
            self._value(value, None)

    def result(self) -> ManifestSet:
        if self._problems:
            raise ManifestError(self._problems)
        return ManifestSet(
            objects=[obj for obj, _ in self._found.values()],
            places=[place for _, place in self._found.values()],
            skipped=self._skipped,
            sources=tuple(self._sources),
            repeated=self._repeated,
        )

    def _tell(self, fraction: float) -> None:
        if self._progress is not None:
            self._progress(self._done + int(fraction * self._size), self._total)

    def _begin(self, document: int) -> None:
        self._document = document
        self._item = 0
        self._place = Place(self._source, document)

    def _problem(self, message: str, *, obj: str = "", field: str = "", help: str = "") -> None:
        self._problems.append(
            Problem(
                source=self._source,
                document=self._document,
                object=obj,
                field=field,
                message=message,
                help=help,
            )
        )

    # --- texts -----------------------------------------------------------------------------

    def _read_text(self, data: bytes) -> None:
        start = data[:4096].lstrip()[:1]
        if not start and not data.strip():
            if self._from_folder:
                self._skipped["(empty file)"] += 1
            else:
                self._begin(0)
                self._problem("the file is empty", help="did the export fail?")
        elif start in (b"{", b"["):
            self._read_json(data)
        else:
            self._read_yaml(data)

    def _read_json(self, data: bytes) -> None:
        try:
            document = msgspec.json.decode(data, type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            documents = _json_documents(data)
            if documents is None:
                if self._source.removesuffix(".gz").endswith((".yaml", ".yml")):
                    self._read_yaml(data)  # flow style: `{kind: Pod, ...}`
                else:
                    self._problems.append(_json_problem(self._source, data))
                return
            for number, document in enumerate(documents, start=1):
                self._begin(number)
                self._json_document(document)
                if number % _PROGRESS_EVERY == 0:
                    self._tell(number / len(documents))
        else:
            self._begin(0)
            self._json_document(document)

    def _read_yaml(self, data: bytes) -> None:
        stream = _Counted(data, self._tell)
        first = len(self._problems)
        number = 0
        try:
            for number, (_, value) in enumerate(yaml12.documents(stream), start=1):
                self._begin(number)
                self._value(value, None)
        except yaml12.YamlError as exc:
            self._problems.append(
                Problem(
                    source=self._source,
                    line=exc.line,
                    column=exc.column,
                    message=exc.message,
                    help=exc.help,
                )
            )
        else:
            if number == 1:  # a file of one document needs no document number
                self._problems[first:] = [
                    dataclasses.replace(problem, document=0) for problem in self._problems[first:]
                ]

    # --- JSON, undecoded as long as possible -------------------------------------------------

    def _json_document(self, raw: msgspec.Raw) -> None:
        if bytes(memoryview(raw)[:64]).lstrip()[:1] == b"[":
            self._json_items(_ARRAY.decode(raw), None)
            return
        try:
            envelope = _ENVELOPE.decode(raw)
        except msgspec.ValidationError:
            self._value(msgspec.json.decode(raw), None)
            return
        kind = envelope.kind or ""
        if envelope.object is not None and envelope.type is not None:
            self._value(msgspec.json.decode(raw), None)
        elif envelope.items is not None:
            of = _item_kind(kind)
            if of is not None and not kinds.used(of, ""):
                self._skipped[of] += len(envelope.items)
            else:
                self._json_items(envelope.items, of)
        else:
            self._json_object(raw, envelope.kind, envelope.api_version, None)

    def _json_items(self, items: Sequence[msgspec.Raw], of: str | None) -> None:
        for number, raw in enumerate(items, start=1):
            self._item = number
            try:
                head = _HEAD.decode(raw)
            except msgspec.ValidationError:
                self._value(msgspec.json.decode(raw), of)
            else:
                self._json_object(raw, head.kind, head.api_version, of)
            if number % _PROGRESS_EVERY == 0:
                self._tell(number / len(items))

    def _json_object(
        self, raw: msgspec.Raw, kind: str | None, api_version: str | None, of: str | None
    ) -> None:
        name = kind or of or ""
        if name in KINDS and kinds.used(name, api_version or ""):
            try:
                self._add(_TYPED[name].decode(raw))
            except msgspec.ValidationError:
                self._convert(msgspec.json.decode(raw), name)
        elif name and not name.endswith("List"):
            self._skipped[kinds.label(name, api_version or "")] += 1
        else:
            self._value(msgspec.json.decode(raw), of)

    # --- decoded values: YAML, and JSON that is unusual or wrong -------------------------------

    def _value(self, value: Any, of: str | None) -> None:
        if isinstance(value, list):
            for number, item in enumerate(value, start=1):
                self._item = number
                self._value(item, of)
            return
        if not isinstance(value, dict) and self._from_folder:
            self._skipped[kinds.NO_KIND] += 1  # some other program's file
            return
        if not isinstance(value, dict):
            self._problem(
                f"expected a Kubernetes object, got {_described(value)}",
                obj=self._nameless("object"),
            )
            return
        kind = value.get("kind") or of
        if value.get("type") in _EVENTS and isinstance(value.get("object"), dict):
            self._event(value["type"], value["object"])
        elif isinstance(value.get("items"), list) and _may_be_list(kind):
            inner = _item_kind(kind or "")
            for number, item in enumerate(value["items"], start=1):
                self._item = number
                self._value(item, inner)
        elif isinstance(kind, str) and kind.endswith("List") and value.get("items") is None:
            pass  # a list of nothing: Go writes `items: null`
        elif not isinstance(kind, str | None):
            self._problem(
                f"expected a string, got {fields.described(kind)}",
                obj=self._nameless("object"),
                field="kind",
            )
        else:
            self._object(value, kind)

    def _object(self, value: dict[str, Any], kind: str | None) -> None:
        api_version = value.get("apiVersion")
        if kind is None:
            kind = self._recognised(value)
            if kind is None:
                return
        elif not kinds.used(kind, api_version if isinstance(api_version, str) else ""):
            self._skipped[kinds.label(kind, str(api_version or ""))] += 1
            return
        if kind in KINDS:
            self._convert(value, kind)
        else:
            self._skipped[kind] += 1

    def _recognised(self, value: dict[str, Any]) -> str | None:
        go_name = kinds.capitalised(value)
        if go_name:
            self._problem(
                f"capitalised field names (`{go_name}`), as Kubernetes before 1.9 dumped them",
                obj=self._nameless("object"),
                help="export with `kubectl get nodes,pods,pdb,priorityclasses -A -o json`",
            )
            return None
        kind = kinds.by_shape(value)
        if kind is None:
            meta = value.get("metadata")
            name = meta.get("name") if isinstance(meta, dict) else None
            self._problem(
                "no `kind`, and nothing tells which it is",
                obj=f"object {name}" if isinstance(name, str) else self._nameless("object"),
                help="add `kind` and `apiVersion`",
            )
        return kind

    def _event(self, event: str, value: dict[str, Any]) -> None:
        """One line of a watch: later events replace earlier ones."""
        if event == "ERROR":
            text = value.get("message")
            self._problem(f"the watch ended in an error: {text or 'no message'}")
        elif event == "DELETED":
            self._deleted(value)
        elif event != "BOOKMARK":
            before = self._repeated
            self._value(value, None)
            self._repeated = before

    def _deleted(self, value: dict[str, Any]) -> None:
        kind, meta = str(value.get("kind")), value.get("metadata")
        gone = None
        if kind in KINDS and isinstance(meta, dict):
            gone, _ = fields.convert({"metadata": meta, "value": 0}, KINDS[kind])
        if gone is None or self._found.pop((kind, key_of(gone)), None) is None:
            self._skipped[f"{kind} (deleted)"] += 1

    def _convert(self, value: dict[str, Any], kind: str) -> None:
        try:
            obj: ClusterObject | None = msgspec.convert(value, KINDS[kind])
        except (msgspec.ValidationError, TypeError, ValueError):
            obj, mismatches = fields.convert(value, KINDS[kind])
            label = self._label(kind, value.get("metadata"))
            for mismatch in mismatches:
                self._problem(mismatch.message, obj=label, field=mismatch.field, help=mismatch.help)
        if obj is not None:
            self._add(obj)

    def _add(self, obj: ClusterObject) -> None:
        kind = type(obj).__name__
        wrong = checks.problems(obj)
        if wrong:
            meta = obj.metadata
            label = f"{kind} {key_of(obj)}" if meta.name else self._nameless(kind)
            for mismatch in wrong:
                self._problem(mismatch.message, obj=label, field=mismatch.field, help=mismatch.help)
            return
        at = (kind, key_of(obj))
        if at in self._found and self._found[at][0] != obj:
            self._repeated += 1
        self._found[at] = (obj, self._place)

    def _label(self, kind: str, meta: Any) -> str:
        name = meta.get("name") if isinstance(meta, Mapping) else None
        if not isinstance(name, str) or not name:
            return self._nameless(kind)
        namespace = meta.get("namespace")
        return f"{kind} {namespace}/{name}" if isinstance(namespace, str) else f"{kind} {name}"

    def _nameless(self, kind: str) -> str:
        return f"{kind} (item {self._item})" if self._item else kind


def _item_kind(kind: str) -> str | None:
    """The kind of a list's items where they carry none: `Pod` of a `PodList`."""
    return kind.removesuffix("List") or None if kind.endswith("List") else None


def _may_be_list(kind: Any) -> bool:
    return kind is None or (isinstance(kind, str) and kind.endswith("List"))


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text `{value.splitlines()[0][:60] if value else ''}`"
    return f"`{json.dumps(value)[:60]}`"


class _Counted(io.BytesIO):
    """Tells how far the YAML parser has read."""

    def __init__(self, data: bytes, tell: Callable[[float], None]) -> None:
        super().__init__(data)
        self._length = max(1, len(data))
        self._tell_fraction = tell

    def read(self, size: int | None = -1, /) -> bytes:
        self._tell_fraction(self.tell() / self._length)
        return super().read(size)


# --- JSON texts of several documents -----------------------------------------------------------


def _json_documents(data: bytes) -> list[msgspec.Raw] | None:
    """The documents of JSON Lines, or of several JSON texts one after the other; else None."""
    try:
        return _LINES.decode_lines(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    scan = json.JSONDecoder().raw_decode
    text = data.decode()
    documents = []
    position = len(text) - len(text.lstrip())
    try:
        while position < len(text):
            _, end = scan(text, position)
            documents.append(msgspec.Raw(text[position:end].encode()))
            position = end + len(text[end:]) - len(text[end:].lstrip())
    except (json.JSONDecodeError, RecursionError):
        return None
    return documents


def _json_problem(source: str, data: bytes) -> Problem:
    """Where a text stops being JSON. Python's parser gives line and column, msgspec does not."""
    text = data.decode()
    try:
        scan = json.JSONDecoder().raw_decode
        position = len(text) - len(text.lstrip())
        while True:
            _, end = scan(text, position)
            position = end + len(text[end:]) - len(text[end:].lstrip())
    except RecursionError:
        return Problem(source=source, message="nested too deeply")
    except json.JSONDecodeError as exc:
        if not text[exc.pos :].strip():
            return Problem(
                source=source,
                line=exc.lineno,
                column=exc.colno,
                message="the text ends in the middle of a JSON value",
                help="the file was cut off; export or copy it again",
            )
        return Problem(
            source=source,
            line=exc.lineno,
            column=exc.colno,
            message=f"not valid JSON: {exc.msg[:1].lower()}{exc.msg[1:]}",
        )
