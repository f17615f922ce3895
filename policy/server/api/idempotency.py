"""`Idempotency-Key`: a write that is sent again is answered as the first time, and done once.

Answers are kept in this process, for a day, the newest thousand of them. A write that failed did
nothing, so its key may be sent again.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request

from policy.server.api.result import ApiResult
from policy.server.http import Failure
from policy.server.security.access import Principal

HEADER: Final = "Idempotency-Key"
_LONGEST: Final = 255
_KEPT: Final = 1000
_SECONDS: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    body: str  #: digest of what was sent
    until: float
    result: ApiResult | None  #: None while the first request is being answered


class Answers:
    """What was answered to the writes that named a key. Used by the event loop alone."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str, str], _Answered] = OrderedDict()

    async def once(
        self,
        request: Request,
        principal: Principal,
        body: object,
        answer: Callable[[], Awaitable[ApiResult]],
    ) -> ApiResult:
        """The answer, made now or before. body: as it was validated, of JSON types.

        Raises Failure for a key that was sent with another body, or is being answered.
        """
        key = request.headers.get(HEADER, "")
        if not key:
            return await answer()
        if len(key) > _LONGEST or not key.isprintable():
            raise Failure(400, "invalid", f"`{HEADER}` has at most {_LONGEST} printable characters")
        place = (principal.name, f"{request.method} {request.url.path}", key)
        sent = hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()
        known = self._known.get(place)
        if known is not None and known.until > self._monotonic():
            return _again(known, sent)
        self._keep(place, sent, None)
        try:
            made = await answer()
        except BaseException:
            del self._known[place]
            raise
        self._keep(place, sent, made)
        return made

    def _keep(self, place: tuple[str, str, str], sent: str, result: ApiResult | None) -> None:
        until = self._monotonic() + _SECONDS
        self._known[place] = _Answered(body=sent, until=until, result=result)
        self._known.move_to_end(place)
        done = [key for key, one in self._known.items() if one.result is not None]
        for key in done[: max(0, len(self._known) - _KEPT)]:
            del self._known[key]


def _again(known: _Answered, sent: str) -> ApiResult:
    if known.body != sent:
        raise Failure(422, "conflict", f"this `{HEADER}` was sent with another body before")
    if known.result is None:
        raise Failure(409, "conflict", f"the first request with this `{HEADER}` is being answered")
    return known.result
