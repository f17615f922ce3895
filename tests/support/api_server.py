"""An API server for tests: lists in pages, watches, bookmarks, 410, and everything that breaks.

It speaks HTTP as kube-apiserver does for the paths that are listed and watched, over a real socket,
and serves objects and watch lines as they were recorded.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import ssl
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATHS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "Service": "/api/v1/services",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "Event": "/apis/events.k8s.io/v1/events",
}
"""Kinds that every server has."""

COMPRESSED = 128 * 1024
"""Answers that are longer come compressed, as a kube-apiserver sends them."""

Object = dict[str, Any]


@dataclass
class Faults:
    """What goes wrong; each is used up as it happens."""

    #: kind -> after how many lines each watch breaks off, in turn; -1: within the first line
    cuts: dict[str, list[int]] = field(default_factory=dict)
    #: kind -> how many lines before its resourceVersion each watch repeats, in turn
    repeats: dict[str, list[int]] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)  #: seconds before each line of a kind
    refusals: list[int] = field(default_factory=list)  #: statuses of the next answers
    retry_after: str = ""  #: the header `Retry-After` of refusals
    #: kind -> what each watch answers instead, in turn: pieces that are sent as they are
    streams: dict[str, list[list[bytes]]] = field(default_factory=dict)
    piece: int = 0  #: bytes of which each chunk of a watch consists, 0 for whole lines
    compressed_watches: bool = False  #: whether watches come compressed
    error_events: list[str] = field(default_factory=list)  #: kinds whose next watch gets ERROR 410
    held: set[str] = field(default_factory=set)  #: kinds that are not answered for the time being
    expired_pages: int = 0  #: so many of the next pages behind the first have expired
    hang_ups: int = 0  #: so many of the next answers never come: the connection is closed
    list_version: Callable[[int], object] = str  #: how lists write their resourceVersion


class ApiServer:
    """Objects by kind, and all that happened to them."""

    def __init__(
        self,
        *,
        version: str = "v1.35.6",
        tls: ssl.SSLContext | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """more: paths of kinds that only some servers have."""
        self.version = version
        self.paths = {**PATHS, **more}
        self.kinds = {path: kind for kind, path in self.paths.items()} | {"/api/v1/events": "Event"}
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self.token = ""  #: that a request must carry; "" for none
        self.absent: set[str] = set()  #: kinds that are not served
        self.forbidden: set[str] = set()  #: kinds that this user may not list
        self.selects_events = True  #: whether `events.k8s.io` can select by reason
        self.headers: dict[str, str] = {}  #: of the newest request, names in lower case
        self._objects: dict[str, dict[str, Object]] = {kind: {} for kind in self.paths}
        self._log: list[tuple[int, str, str, Object]] = []  # version, kind, type, object
        self._in_order: dict[str, tuple[int, list[Object]]] = {}
        self._compacted = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._epoch = 0
        self.resource_version = 1
        server = self

        class Handler(_Handler):
            api = server

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True
            request_queue_size = 64

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
            self.url = self.url.replace("http", "https")
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> ApiServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # --- what happens in the cluster ----------------------------------------------------------

    def load(self, items: list[Object]) -> None:
        """Objects that are there from the beginning."""
        with self._changed:
            for item in items:
                self._objects[item["kind"]][_uid(item)] = item
                self._reached(item)

    def publish(self, type: str, item: Object) -> None:
        """One event of a watch, as it was recorded."""
        with self._changed:
            kind = item["kind"]
            if type == "DELETED":
                self._objects[kind].pop(_uid(item), None)
            else:
                self._objects[kind][_uid(item)] = item
            self._reached(item)
            self._log.append((_version(item), kind, type, item))
            self._changed.notify_all()

    def bookmark(self) -> None:
        """A bookmark for every open watch: how far it has come."""
        with self._changed:
            for kind in self.paths:
                item = {"kind": kind, "metadata": {"resourceVersion": str(self.resource_version)}}
                self._log.append((self.resource_version, kind, "BOOKMARK", item))
            self._changed.notify_all()

    def compact(self) -> None:
        """What happened up to now is forgotten: watches from before are answered with 410."""
        with self._changed:
            self.resource_version += 1
            self._compacted = self.resource_version

    def end_watches(self) -> None:
        """Every open watch ends, as servers end them after a while."""
        with self._changed:
            self._epoch += 1
            self._changed.notify_all()

    def remove_silently(self, item: Object) -> None:
        """An object goes, and no watch will ever tell."""
        with self._changed:
            self._objects[item["kind"]].pop(_uid(item))
            self.resource_version += 1

    def release(self, *kinds: str) -> None:
        """What was held back is answered."""
        with self._changed:
            self.faults.held -= set(kinds)
            self._changed.notify_all()

    def restore(self, items: list[Object], version: int) -> None:
        """An older backup: these objects, and a counter that stands at an earlier version."""
        with self._changed:
            self._objects = {kind: {} for kind in self.paths}
            for item in items:
                self._objects[item["kind"]][_uid(item)] = item
            self._log.clear()
            self._in_order.clear()
            self.resource_version = version
            self._epoch += 1
            self._changed.notify_all()

    def await_release(self, kind: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: kind not in self.faults.held or self._stopped)

    def listed(self, kind: str) -> list[Object]:
        with self._changed:
            return list(self._objects[kind].values())

    def _reached(self, item: Object) -> None:
        self.resource_version = max(self.resource_version, _version(item))

    # --- what clients get ---------------------------------------------------------------------

    def page(self, kind: str, limit: int, token: str) -> tuple[int, Object]:
        with self._changed:
            items = self._sorted(kind)
            version, start = self.resource_version, 0
            if token:
                version, start = json.loads(base64.b64decode(token))
                expired = self.faults.expired_pages > 0
                self.faults.expired_pages -= expired
                if expired or version < self._compacted:
                    return 410, _status(
                        410, "Expired", "the provided continue parameter is too old"
                    )
            meta: Object = {"resourceVersion": self.faults.list_version(version)}
            if start + limit < len(items):
                following = json.dumps([version, start + limit]).encode()
                meta["continue"] = base64.b64encode(following).decode()
                meta["remainingItemCount"] = len(items) - start - limit
            bare = [
                {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
                for item in items[start : start + limit]
            ]
            return 200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": meta, "items": bare}

    def named(self, kind: str, name: str) -> Object:
        """The list of what has this name."""
        with self._changed:
            items = [i for i in self._objects[kind].values() if i["metadata"]["name"] == name]
            meta = {"resourceVersion": str(self.resource_version)}
            return {"kind": f"{kind}List", "apiVersion": "v1", "metadata": meta, "items": items}

    def _sorted(self, kind: str) -> list[Object]:
        """In the order of their names; sorted once as long as nothing happens."""
        version, items = self._in_order.get(kind, (-1, []))
        if version != self.resource_version:
            items = sorted(self._objects[kind].values(), key=_name)
            self._in_order[kind] = (self.resource_version, items)
        return items

    def lines(self, kind: str, since: int, wanted: Mapping[str, str]) -> Iterator[Object]:
        """The events of a kind after a resourceVersion, until the end of the test."""
        place = 0
        with self._changed:
            epoch = self._epoch
            expired = since < self._compacted or kind in self.faults.error_events
            if kind in self.faults.error_events:
                self.faults.error_events.remove(kind)
            repeats = self.faults.repeats.get(kind)
            if repeats:
                again = repeats.pop(0)
                older = [v for v, of, _, _ in self._log if of == kind and v <= since]
                since = older[-again - 1] if len(older) > again else 0
        if expired:
            status = _status(410, "Expired", f"too old resource version: {since}")
            yield {"type": "ERROR", "object": status}
            return
        while True:
            with self._changed:
                while place >= len(self._log) and not self._stopped and epoch == self._epoch:
                    if not self._changed.wait(float(wanted.get("timeoutSeconds", 30))):
                        return
                self._changed.wait_for(lambda: kind not in self.faults.held or self._stopped)
                if self._stopped or epoch != self._epoch:
                    return
                version, of, what, item = self._log[place]
                place += 1
            if of != kind or (version <= since and what != "BOOKMARK"):
                continue
            if what == "BOOKMARK" and version < since:
                continue
            yield {"type": what, "object": item}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client went away
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        api = self.api
        url = urlsplit(self.path)
        wanted = {key: values[-1] for key, values in parse_qs(url.query).items()}
        # What a client looks up before it lists: the counter, and the uid of kube-system.
        named = wanted.get("fieldSelector", "").startswith("metadata.name=")
        probe = named or wanted.get("limit") == "1"
        how = " watch" if "watch" in wanted else " probe" if probe else ""
        api.requests[url.path + how] += 1
        api.headers = {name.lower(): value for name, value in self.headers.items()}
        if api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
            self._json(401, _status(401, "Unauthorized", "Unauthorized"))
            return
        if url.path == "/version":
            self._json(200, {"gitVersion": api.version})
            return
        kind = api.kinds.get(url.path)
        if kind is None or kind in api.absent:
            self._json(404, _status(404, "NotFound", "the server could not find the resource"))
            return
        if kind in api.forbidden:
            plural, verb = url.path.rpartition("/")[2], "watch" if "watch" in wanted else "list"
            said = f'{plural} is forbidden: User "ann" cannot {verb} resource "{plural}"'
            self._json(403, _status(403, "Forbidden", said))
            return
        if "fieldSelector" in wanted and "events.k8s.io" in url.path and not api.selects_events:
            said = "field label not supported: reason"
            self._json(400, _status(400, "BadRequest", said))
            return
        if not how.startswith(" probe"):
            api.await_release(kind)
        if api.faults.hang_ups and not how.startswith(" probe"):
            api.faults.hang_ups -= 1
            self._break()
            return
        if api.faults.refusals:
            code = api.faults.refusals.pop(0)
            retry = {"Retry-After": api.faults.retry_after} if api.faults.retry_after else {}
            self._json(code, _status(code, "ServiceUnavailable", "try again"), retry)
            return
        if "watch" in wanted:
            self._watch(kind, wanted)
            return
        if named:
            self._json(200, api.named(kind, wanted["fieldSelector"].partition("=")[2]))
            return
        code, body = api.page(kind, int(wanted.get("limit", 1 << 30)), wanted.get("continue", ""))
        self._json(code, body)

    def _json(
        self, code: int, body: Object, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if len(text) > COMPRESSED and "gzip" in self.headers.get("Accept-Encoding", ""):
            text = gzip.compress(text, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _watch(self, kind: str, wanted: Mapping[str, str]) -> None:
        faults = self.api.faults
        cuts = faults.cuts.get(kind)
        cut = cuts.pop(0) if cuts else None
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        packed = faults.compressed_watches and "gzip" in self.headers.get("Accept-Encoding", "")
        if packed:
            self.send_header("Content-Encoding", "gzip")
        packing = zlib.compressobj(wbits=31) if packed else None
        self.end_headers()
        pause = faults.delays.get(kind, 0.0)
        if faults.streams.get(kind):
            for piece in faults.streams[kind].pop(0):
                self._chunk(piece)
            self.wfile.write(b"0\r\n\r\n")
            return
        try:
            for number, line in enumerate(
                self.api.lines(kind, int(wanted.get("resourceVersion", 0)), wanted)
            ):
                text = json.dumps(line, ensure_ascii=False).encode() + b"\n"
                if packing is not None:
                    text = packing.compress(text) + packing.flush(zlib.Z_SYNC_FLUSH)
                if cut is not None and (number == cut or cut < 0):
                    self._chunk(text[: len(text) // 2] if cut < 0 else b"")
                    self._break()
                    return
                if pause:
                    threading.Event().wait(pause)
                for start in range(0, len(text), faults.piece or len(text)):
                    self._chunk(text[start : start + (faults.piece or len(text))])
            if packing is not None:
                self._chunk(packing.flush())
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

    def _break(self) -> None:
        """The connection is torn down without an end of the stream."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _uid(item: Object) -> str:
    meta = item["metadata"]
    return meta.get("uid") or _name(item)


def _name(item: Object) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _version(item: Object) -> int:
    return int(item["metadata"].get("resourceVersion") or 0)


def _status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def kubeconfig(folder: Path, url: str, *, token: str = "") -> str:
    """A kubeconfig for the server, as a file."""
    user: Object = {"token": token} if token else {"username": "ann", "password": "secret"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": "ann", "namespace": "shop"}}
        ],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "ann", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return str(file)


@contextmanager
def serving(
    items: list[Object], prepare: Callable[[ApiServer], None] = lambda _: None
) -> Iterator[ApiServer]:
    """A server with these objects."""
    server = ApiServer()
    server.load(items)
    prepare(server)
    with server:
        yield server
