"""The pages of one list: all of one moment, whatever breaks between them.

Source: lists in chunks of a kube-apiserver: a continue token holds for some minutes; afterwards the
answer is 410. A list that takes longer than that is read in one piece, as client-go does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policy.live.connection import Connection, Expired, Interrupted, LiveError
from policy.live.resources import ApiResource
from policy.observing.events import version_of
from policy.typed import prepared

PAGE: Final = 500

_PAGED_TRIES: Final = 2
"""So often a list is begun in pages before it is read in one piece."""


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: Any = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Body(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list."""

    items: list[msgspec.Raw]
    version: int  #: resourceVersion of the list
    first: bool  #: what came before it is of another list, which could not be finished


def pages(
    connection: Connection, resource: ApiResource, *, again: Callable[[Interrupted], bool]
) -> Iterator[Page]:
    """One list in pages; a page that fails is requested again.

    again: gets what went wrong, waits, and says whether to go on; the list ends where it does not.
    Raises NotServed, AccessRefused, LiveError for a list without a resourceVersion.
    """
    token, version, tries = "", 0, 1
    while True:
        try:
            body = _body(connection, resource, token, whole=tries > _PAGED_TRIES)
        except Expired as exc:
            token, version, tries = "", 0, tries + 1
            said = f"the list took too long and begins again: {exc}"
            if not again(Interrupted(said)):
                return
            continue
        except Interrupted as exc:
            if not again(exc):
                return
            continue
        first = version == 0
        version = version or version_of(body.metadata.resource_version)
        token = body.metadata.continue_ or ""
        yield Page(items=body.items or [], version=version, first=first)
        if not token:
            return


def newest_version(connection: Connection, resource: ApiResource) -> int:
    """The resourceVersion at which the server is. Raises as `Connection.get` does."""
    body = _read(resource, connection.get(resource.path, {"limit": "1"}))
    return version_of(body.metadata.resource_version)


def _body(connection: Connection, resource: ApiResource, token: str, *, whole: bool) -> _Body:
    params = {} if whole else {"limit": str(PAGE)}
    if resource.field_selector:
        params["fieldSelector"] = resource.field_selector
    if token:
        params["continue"] = token
    return _read(resource, connection.get(resource.path, params))


def _read(resource: ApiResource, text: bytes) -> _Body:
    try:
        body = msgspec.json.decode(text, type=prepared(_Body))
    except msgspec.MsgspecError as exc:
        raise Interrupted(f"{resource.path}: no list: {exc}") from exc
    if not version_of(body.metadata.resource_version):
        said = msgspec.json.encode(body.metadata.resource_version).decode()
        raise LiveError(
            f"{resource.path}: the list of {resource.kind} objects has a"
            f" `metadata.resourceVersion` that is no whole number above 0: `{said}`",
            help="an API server of Kubernetes gives one; see what is between it and this program",
        )
    return body
