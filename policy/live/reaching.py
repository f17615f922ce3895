"""Whether a cluster can be followed: its server answers, and lets every kind be listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from policy.live.connection import (
    AccessRefused,
    Busy,
    Connection,
    Interrupted,
    LiveError,
    NotServed,
)
from policy.live.paging import newest_version
from policy.live.resources import ApiResource
from policy.typed import prepared

SYSTEM: Final = "kube-system"
"""The namespace whose uid says which cluster it is: it lives as long as the cluster."""


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Namespaces(msgspec.Struct):
    items: list[_Namespace] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What an API server says of itself."""

    version: str  #: as `v1.35.6`; "" where it does not say it
    newest: int  #: the resourceVersion at which it is
    #: uid of its namespace kube-system; "" where it has none, or this user may not read it
    uid: str
    #: kinds that this user may not list, and that are not needed, with the server's words
    closed: dict[str, str]


def reach(
    connection: Connection,
    resources: Sequence[ApiResource],
    *,
    again: Callable[[Interrupted], bool],
) -> Server | None:
    """The server, once it answers; None where `again` gives up.

    again: gets what a busy server said, waits, and says whether to go on. Raises LiveError for a
    server that cannot be read, AccessRefused with all the kinds that this user may not list.
    """
    while True:
        try:
            return _look(connection, resources)
        except Busy as exc:
            if not again(exc):
                return None
        except Interrupted as exc:
            raise LiveError(
                f"{connection.source} cannot be read: {exc}",
                help="`kubectl get pods -A` with the same context shows what is wrong",
            ) from exc


def _look(connection: Connection, resources: Sequence[ApiResource]) -> Server:
    newest, refused, closed = 0, [], {}
    for resource in resources:
        try:
            newest = max(newest, newest_version(connection, resource))
        except NotServed:
            continue  # it may have it elsewhere; its watcher finds out
        except AccessRefused as exc:
            if resource.required:
                refused.append(exc)
            else:
                closed[resource.kind] = str(exc)
    if refused:
        raise AccessRefused("; ".join(map(str, refused)), help=refused[0].help)
    return Server(
        version=server_version(connection),
        newest=newest,
        uid=cluster_uid(connection),
        closed=closed,
    )


def cluster_uid(connection: Connection) -> str:
    """The uid of the namespace kube-system, which says which cluster it is.

    "" where there is none, or where it may not be read. Raises Interrupted, LiveError.
    """
    wanted = {"fieldSelector": f"metadata.name={SYSTEM}"}
    try:
        body = msgspec.json.decode(
            connection.get("/api/v1/namespaces", wanted), type=prepared(_Namespaces)
        )
    except (NotServed, AccessRefused):
        return ""
    except msgspec.MsgspecError as exc:
        raise Interrupted(f"/api/v1/namespaces: no list: {exc}") from exc
    return next((one.metadata.uid for one in body.items or () if one.metadata.name == SYSTEM), "")


def server_version(connection: Connection) -> str:
    """As `v1.35.6`; "" where the server does not say it. Raises Interrupted, LiveError."""
    try:
        return connection.version()
    except (NotServed, AccessRefused):
        return ""  # the kubelets say it as well
