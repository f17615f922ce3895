"""`Idempotency-Key`: a write that is sent again is answered as the first time, and done once.

Keys and answers are kept in the database for a day, so every process on it knows them. A write that
was refused did nothing, so its key may be sent again; after an error that was not foreseen the key
stays taken, as after the end of a process, and after a connection that broke: what was being
committed may be done.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request

from policy.server.api.result import ApiResult
from policy.server.http import Failure, in_thread
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import StoreError
from policy.store.errors import ConnectionLost
from policy.store.record.keys import KnownWrite, WriteKey

log = logging.getLogger("policy.server")

HEADER: Final = "Idempotency-Key"
LONGEST: Final = 255


async def once(
    service: PolicyService,
    request: Request,
    principal: Principal,
    body: object,
    answer: Callable[[], Awaitable[ApiResult]],
) -> ApiResult:
    """The answer, made now or before. body: as it was validated, of JSON types.

    Raises Failure for what is no key, one that was sent with another body, or is being answered.
    """
    given = request.headers.getlist(HEADER)
    if not given:
        return await answer()
    key = given[0]
    if len(given) > 1:
        raise Failure(400, "invalid", f"`{HEADER}` is there {len(given)} times")
    # One that is empty is mostly a variable that was never set: nothing would be done once by it.
    if not 0 < len(key) <= LONGEST or not key.isprintable():
        raise Failure(400, "invalid", f"`{HEADER}` has 1 to {LONGEST} printable characters")
    # Not of `request.url`, which leaves line ends and tabs of names out.
    operation = f"{request.method} {request.scope['path']}"
    place = WriteKey(principal=principal.name, operation=operation, key=key)
    sent = hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()
    record = service.store.record
    known = await in_thread(record.take_key, place, request_digest=sent, at_ms=service.clock())
    if known is not None:
        return _again(known, sent)
    try:
        made = await answer()
    except ConnectionLost:
        raise
    except (Failure, StoreError):
        await in_thread(record.give_key_back, place)
        raise
    text = msgspec.json.encode(made.document).decode()
    try:
        await in_thread(record.key_answered, place, status=made.status, answer=text)
    except StoreError as exc:
        # It is done all the same. Whoever sends it again hears that its answer is not known.
        log.warning("the answer to a write was not kept for its %s: %s", HEADER, exc.message)
    return made


def _again(known: KnownWrite, sent: str) -> ApiResult:
    if known.request_digest != sent:
        raise Failure(422, "conflict", f"this `{HEADER}` was sent with another body before")
    if known.status is None:
        raise Failure(
            409,
            "conflict",
            f"the first request with this `{HEADER}` has no answer yet",
            help="it is being answered, or its process ended, or the connection to the database was"
            " lost: see whether it was done before you send it with another key",
        )
    return ApiResult(document=msgspec.json.decode(known.answer), status=known.status)
