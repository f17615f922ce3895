"""One kind of one cluster: listed in pages, then watched from there, and again after a break.

Source: the semantics of lists and watches as a kube-apiserver has them: every list has a
resourceVersion from which a watch goes on; a watch ends at any time; one from a version that is
too old answers 410 Gone or with one ERROR event; bookmarks say how far a quiet watch has come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from policy.cluster.objects import KINDS, NAMESPACED, ClusterObject, key_of
from policy.live.backoff import Backoff
from policy.live.connection import (
    AccessRefused,
    Connection,
    Expired,
    Interrupted,
    NotServed,
    refusal,
)
from policy.live.paging import newest_version, pages
from policy.live.resources import EVENT, ApiResource
from policy.observing.events import Claim, EventError, claim_of, version_of
from policy.typed import prepared

WATCH_SECONDS: Final = 300
"""So long a watch is asked to last; servers end it at about that time."""

_GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Everything of a kind, as it was at a resourceVersion."""

    kind: str
    objects: Sequence[ClusterObject]
    claims: Sequence[Claim]
    version: int
    reason: str  #: why it was listed: "" for the first time, else what broke the watch off
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One event of a watch."""

    kind: str
    key: str
    after: ClusterObject | None  #: None where it was deleted
    claim: Claim | None  #: of an event about a preemption
    version: int
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Everything of a kind up to a resourceVersion has been told."""

    kind: str
    version: int
    received_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A request that failed, an object that cannot be read, a kind that is not served."""

    kind: str
    message: str
    fatal: Exception | None = None  #: where it is no use to go on
    not_served: bool = False
    failing: bool = False  #: the kind cannot be read until `Recovered`
    refused: bool = False  #: this user may not list or watch it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A kind that could not be read can be read again."""

    kind: str


News: TypeAlias = Listed | Changed | Reached | Trouble | Recovered


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: Any = None


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Line(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class KindWatcher:
    """Tells all that happens to one kind, until it is stopped."""

    def __init__(
        self,
        connection: Connection,
        resource: ApiResource,
        tell: Callable[[News], None],
        *,
        stop: threading.Event,
        clock: Callable[[], int],
        since: int = 0,
        refused: str = "",
        backoff: Backoff | None = None,
        watch_seconds: int = WATCH_SECONDS,
    ) -> None:
        """since: resourceVersion up to which everything is known already, 0 to list first.

        refused: why the kind could not be read so far, which was reported.
        """
        self._connection = connection
        self._resource = resource
        self._tell = tell
        self._stop = stop
        self._clock = clock
        self._version = since
        self._backoff = backoff or Backoff()
        self._watch_seconds = watch_seconds
        self._reason = f"it could not be read before: {refused}" if refused and not since else ""
        self._known = False  # whether a list or a watch of it has succeeded
        self._failing = bool(refused)
        self._decode = (
            None if resource.kind == EVENT else msgspec.json.Decoder(prepared(KINDS[resource.kind]))
        )

    def run(self) -> None:
        """List where needed, and watch; goes on until it is stopped or refused for good."""
        try:
            self._go_on()
        except Exception as exc:  # noqa: BLE001  # the outermost frame here; raised by the follower
            self._tell(Trouble(kind=self._resource.kind, message=str(exc), fatal=exc))

    def _go_on(self) -> None:
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                else:
                    self._watch()
            except Expired as exc:
                self._version, self._reason = 0, f"expired: {exc}"
                self._stop.wait(self._backoff.next())
            except Interrupted as exc:
                self._again(exc)
            except (NotServed, AccessRefused) as exc:
                if not self._bears(exc):
                    return

    def _bears(self, refused: NotServed | AccessRefused) -> bool:
        """Whether to go on after a refusal: where it was granted before, it may be again."""
        kind = self._resource.kind
        denied = isinstance(refused, AccessRefused)
        if self._known or (denied and not self._resource.required):
            # A server that has just started refuses what it does not know yet.
            return self._again(Interrupted(str(refused)), refused=denied)
        if denied:
            self._tell(Trouble(kind=kind, message=str(refused), fatal=refused))
            return False
        older = self._resource.where_older()
        if older is not None:
            self._resource = older
            return True
        self._tell(Trouble(kind=kind, message=str(refused), not_served=True))
        return False

    def _trouble(self, message: str) -> None:
        self._tell(Trouble(kind=self._resource.kind, message=message))

    # --- lists -------------------------------------------------------------------------------

    def _list(self) -> None:
        objects: list[ClusterObject] = []
        claims: list[Claim] = []
        version = 0
        for page in pages(self._connection, self._resource, again=self._again):
            if page.first:
                objects, claims = [], []
            version = page.version
            for item in page.items:
                self._take(item, objects, claims)
            if self._stop.is_set():
                return
        if self._stop.is_set():
            return
        self._version, self._known = version, True
        self._works()
        self._tell(
            Listed(
                kind=self._resource.kind,
                objects=objects,
                claims=claims,
                version=version,
                reason=self._reason,
                received_ms=self._clock(),
            )
        )
        self._reason = ""

    def _again(self, failed: Interrupted, *, refused: bool = False) -> bool:
        """Whether to try again, after a while."""
        self._failing = True
        kind, said = self._resource.kind, str(failed)
        self._tell(Trouble(kind=kind, message=said, failing=True, refused=refused))
        return not self._stop.wait(self._backoff.next(failed))

    def _works(self) -> None:
        if self._failing:
            self._failing = False
            self._tell(Recovered(kind=self._resource.kind))

    def _take(self, item: msgspec.Raw, objects: list[ClusterObject], claims: list[Claim]) -> None:
        obj, claim = self._read(item)
        if obj is not None:
            objects.append(obj)
        if claim is not None:
            claims.append(claim)

    def _read(self, raw: msgspec.Raw) -> tuple[ClusterObject | None, Claim | None]:
        """The object, or what an event says; what cannot be read is reported and left out."""
        try:
            if self._decode is None:
                return None, claim_of(msgspec.json.decode(raw))
            return self._decode.decode(raw), None
        except (msgspec.MsgspecError, EventError) as exc:
            name = _label(raw)
            self._trouble(f"{self._resource.kind} {name} cannot be read and is left out: {exc}")
            return None, None

    # --- watches -----------------------------------------------------------------------------

    def _watch(self) -> None:
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._version),
            "timeoutSeconds": str(self._watch_seconds),
        }
        if self._resource.field_selector:
            params["fieldSelector"] = self._resource.field_selector
        silence = self._watch_seconds + _GRACE_SECONDS
        before, heard, began = self._version, False, time.monotonic()
        path = self._resource.path
        try:
            with self._connection.watch(path, params, silence_seconds=silence) as lines:
                self._works()
                for line in lines:
                    self._line(line)
                    heard = True
                    if self._version != before:
                        self._backoff.reset()
                    if self._stop.is_set():
                        return
        finally:
            if time.monotonic() - began >= self._backoff.most:
                # It held, and nothing happened: that is no failure, however it ended.
                self._backoff.reset()
        self._known = True
        if not heard:
            self._check_counter()
            self._reached(self._version, self._clock())
        if self._version == before:
            # A server that ends watches at once must not be called again at once.
            self._stop.wait(self._backoff.next())

    def _check_counter(self) -> None:
        """Raise Expired where the server counts from an earlier version than the one known.

        A watch from a version that is still to come is silent.
        """
        newest = newest_version(self._connection, self._resource)
        if newest < self._version:
            raise Expired(f"the server is at resourceVersion {newest}, before {self._version}")

    def _line(self, text: bytes) -> None:
        try:
            line = msgspec.json.decode(text, type=prepared(_Line))
        except msgspec.MsgspecError as exc:
            raise Interrupted(f"{self._resource.path}: no event of a watch: {exc}") from exc
        if line.type == "ERROR":
            raise refusal(self._resource.path, 0, bytes(line.object))
        now_ms = self._clock()
        try:
            named = msgspec.json.decode(line.object, type=prepared(_Named)).metadata
        except msgspec.MsgspecError as exc:
            # The same would come again: the server has stored it.
            self._trouble(f"an object that cannot be read is left out: {exc}")
            return
        version = version_of(named.resource_version)
        if line.type == "BOOKMARK":
            self._reached(version, now_ms)
            return
        if line.type not in ("ADDED", "MODIFIED", "DELETED"):
            self._trouble(f"a watch event of the unknown type {line.type!r} is left out")
            return
        obj, claim = self._read(line.object)
        gone = line.type == "DELETED"
        if self._decode is not None and obj is None and not gone:
            self._reached(version, now_ms)
            return
        if self._decode is None and (claim is None or gone):
            self._reached(version, now_ms)
            return
        self._version = max(self._version, version)
        self._tell(
            Changed(
                kind=self._resource.kind,
                key=_key(self._resource.kind, named) if obj is None else key_of(obj),
                after=None if gone else obj,
                claim=claim,
                version=version,
                received_ms=now_ms,
            )
        )

    def _reached(self, version: int, now_ms: int) -> None:
        if version:
            self._version = max(self._version, version)
            self._tell(Reached(kind=self._resource.kind, version=self._version, received_ms=now_ms))


def _key(kind: str, meta: _Meta) -> str:
    return f"{meta.namespace or 'default'}/{meta.name}" if kind in NAMESPACED else meta.name


def _label(raw: msgspec.Raw) -> str:
    try:
        meta = msgspec.json.decode(raw, type=prepared(_Named)).metadata
    except msgspec.MsgspecError:
        return "without a name"
    if not meta.name:
        return "without a name"
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
