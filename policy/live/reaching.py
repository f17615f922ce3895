"""Whether a cluster can be followed: its server answers, and lets every kind be listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What an API server says of itself."""

    version: str  #: as `v1.35.6`; "" where it does not say it
    newest: int  #: the resourceVersion at which it is
    #: kinds that this user may not list, and that are not needed, with the server's words
    closed: dict[str, str]


def reach(
    connection: Connection, resources: Sequence[ApiResource], *, again: Callable[[str], bool]
) -> Server | None:
    """The server, once it answers; None where `again` gives up.

    again: gets what a busy server said, waits, and says whether to go on. Raises LiveError for a
    server that cannot be read, AccessRefused with all the kinds that this user may not list.
    """
    while True:
        try:
            return _look(connection, resources)
        except Busy as exc:
            if not again(str(exc)):
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
    return Server(version=_version(connection), newest=newest, closed=closed)


def _version(connection: Connection) -> str:
    try:
        return connection.version()
    except (NotServed, AccessRefused):
        return ""  # the kubelets say it as well
