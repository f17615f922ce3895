"""`POST /extender/{filter,prioritize,preempt}`, and the same below `/extender/ENVIRONMENT/`.

Only a status of 200 is an answer to kube-scheduler; every other fails the call, of which it shows
the status and its `urlPrefix`, and not the text. So a call that cannot be decided in time is
answered all the same, by `--on-failure`, and a status of 4xx says that the call itself is wrong:
the text is in the log of the service.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from policy.server.config import OnFailure
from policy.server.extender import channel, wire
from policy.server.extender.channel import Call
from policy.server.extender.desks import InDoubt, NoDecision
from policy.server.extender.spool import SpooledCall, SpoolFull
from policy.server.http import (
    EXTENDER_BYTES,
    EXTENDER_ROOM,
    Failure,
    Room,
    Shared,
    body_of,
    in_extender_thread,
)
from policy.server.security.access import Access, Principal
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.server.tracing import TRACE, UNTRACED, Trace
from policy.store import StoreError
from policy.store.model.decisions import CallAnswer, CallMode
from policy.text.system import explained

log = logging.getLogger("policy.server")

P = ParamSpec("P")
T = TypeVar("T")

_VERBS = ("filter", "prioritize", "preempt")
_PATIENCE: Final = 0.75
"""Part of the deadline that a call may wait for a newer state; the rest is to decide and record."""
_UNSURE: Final = 16
"""Environments that are taken to be there while the database does not say so."""
_SHORT: Final = 1 << 20
"""Bodies below are read at once, in a millisecond or two; others in a thread, beside what waits."""
_SAID_SECONDS: Final = 60.0
"""How long a refusal is not said again."""
_SAID_MOST: Final = 16
"""Refusals that are said in that time: whoever may not call fills no log."""
_SAID_CHARACTERS: Final = 1000
"""Of each of them: names in calls are as long as whoever calls likes."""

_IN_DOUBT: Final = (
    "the database did not say whether the decision was committed; whether the call was decided is"
    " in the record"
)


def routes(service: PolicyService, access: Access) -> list[Route]:
    extender = ExtenderEndpoint(service, access)
    return [
        *(Route(f"/extender/{v}", extender.serve, methods=["POST"], name=v) for v in _VERBS),
        *(
            # Names of environments may hold slashes.
            Route(f"/extender/{{environment:text}}/{v}", extender.serve, methods=["POST"], name=v)
            for v in _VERBS
        ),
        Route("/extender/{rest:text}", extender.unknown, methods=["POST"]),
    ]


def _shortened(text: str) -> str:
    return text if len(text) <= _SAID_CHARACTERS else f"{text[: _SAID_CHARACTERS - 1]}…"


class Refusals:
    """Says in the log why calls are refused or not judged, each reason once a minute.

    A scheduler that may ignore its extender says nothing of it, unless its log is verbose.
    """

    def __init__(self) -> None:
        self._said: dict[str, float] = {}  #: by text, on the monotonic clock

    def say(self, message: str) -> None:
        message = _shortened(message)
        now = time.monotonic()
        self._said = {text: at for text, at in self._said.items() if now - at < _SAID_SECONDS}
        if message in self._said or len(self._said) == _SAID_MOST:
            return
        self._said[message] = now
        log.warning("%s", message)

    def refused(self, failure: Failure) -> None:
        self.say(f"a scheduler's call is refused with status {failure.status}: {failure.message}")


class ExtenderEndpoint:
    """Answers schedulers."""

    def __init__(self, service: PolicyService, access: Access) -> None:
        self._service = service
        self._access = access
        self._room = Room(EXTENDER_ROOM)
        self._refusals = Refusals()
        #: names of environments, asked for by the newest call for one that has no desk
        self._there = Shared(service.environments)
        self._unsure: set[str] = set()  #: those that could not be looked up since one was

    async def serve(self, request: Request) -> Response:
        """One call of one of the verbs."""
        if request.path_params.get("environment") == "":  # `/extender//preempt`
            return await self.unknown(request)
        try:
            return await self._answered(request)
        except Failure as exc:
            self._refusals.refused(exc)
            raise

    async def _answered(self, request: Request) -> Response:
        verb = request.url.path.rpartition("/")[2]
        metrics = self._service.metrics
        mode = self._service.config.mode.value
        started = time.monotonic()
        outcome = "refused"
        try:
            caller = self._caller(request)  # of others no body is read
            asked = time.monotonic()
            environment = await self._environment(request)
            waited = time.monotonic() - asked
            with self._room.share(caller.name) as take:
                body = await body_of(request, limit=EXTENDER_BYTES, take=take)
                caller = self._caller(request)  # the token may be revoked since its body began
                if verb == "preempt":
                    answer, outcome = await self._preempt(
                        environment, caller, body, request.scope[TRACE], waited=waited
                    )
                else:
                    answer, outcome = await _read(_about_nodes, body, verb), "passed"
        except wire.BadRequest as exc:
            raise Failure(400, "bad-request", str(exc)) from exc
        finally:
            metrics.calls.labels(verb, mode, outcome).inc()
            metrics.seconds.labels(verb).observe(time.monotonic() - started)
        return Response(answer, media_type="application/json")

    async def unknown(self, request: Request) -> Response:
        """A path that no verb of the configuration should lead to."""
        try:
            self._caller(request)
            raise Failure(
                404,
                "not-found",
                f"the extender does not know `{request.url.path[:200]}`",
                help="use the verbs `filter`, `prioritize` and `preempt`, without a bindVerb, and a"
                " `urlPrefix` that ends in /extender or /extender/ENVIRONMENT",
            )
        except Failure as exc:
            self._refusals.refused(exc)
            raise

    def _caller(self, request: Request) -> Principal:
        caller = self._access.caller(request)
        if caller is None:
            raise Failure(401, "not-authenticated", "the extender needs a token or a certificate")
        if not caller.may(Role.EXTENDER):
            raise Failure(
                403, "not-allowed", f"a token of role `{caller.role}` may not call the extender"
            )
        return caller

    async def _environment(self, request: Request) -> str:
        """The environment that a call is for. Raises Failure where there is none.

        Where the database does not say so in time the desk will.
        """
        named: str = request.path_params.get("environment", self._service.config.environment)
        if not named:
            raise Failure(
                404,
                "not-found",
                "the path names no environment, and the service was started without one",
                help="use /extender/ENVIRONMENT as `urlPrefix`, or start with --environment",
            )
        if named == self._service.config.environment or self._service.desks.has(named):
            return named
        try:
            there = await self._there.result(seconds=self._service.config.deadline_ms / 1000)
        except (TimeoutError, StoreError):
            # Each has a desk, and figures, until it is known that there is none.
            if named not in self._unsure and len(self._unsure) >= _UNSURE:
                told = f"whether there is an environment `{named[:80]}` cannot be looked up now"
                raise Failure(503, "unavailable", told) from None
            self._unsure.add(named)
            return named
        self._unsure.clear()
        if named not in there:
            raise Failure(404, "not-found", f"there is no environment `{named[:80]}`")
        return named

    async def _preempt(
        self, environment: str, caller: Principal, body: bytes, trace: Trace, *, waited: float
    ) -> tuple[bytes, str]:
        """waited: seconds that it took to look the environment up."""
        config = self._service.config
        enforce = config.mode is CallMode.ENFORCE
        seconds = config.deadline_ms / 1000
        started, arrived_ms = time.monotonic() - waited, self._service.clock()
        request = await _read(wire.read_preempt, body)
        call = Call(
            request=request,
            environment=environment,
            mode=config.mode.value,
            caller="" if self._access.open_to_all else caller.name,
            arrived_ms=arrived_ms,
            started=started,
            seconds=seconds,
            # What is offered in shadow mode needs no state.
            patience=_PATIENCE * seconds if enforce else 0.0,
            traced=trace is not UNTRACED,
        )
        way_out = config.way_out
        try:
            return await self._service.desks.ask(call, body, trace)
        except NoDecision as exc:
            reason, text, doubtful = exc.reason, exc.text, exc.doubtful
        except InDoubt:
            reason, text, doubtful = channel.IN_DOUBT, _IN_DOUBT, True
            if enforce:
                raise Failure(503, "unavailable", _IN_DOUBT) from None
            # In shadow mode that is the answer in either case.
            way_out = OnFailure.PASS_THROUGH
        except (wire.BadRequest, Failure) as exc:
            if enforce:
                raise
            return self._unjudged(call, exc)
        return await self._way_out(call, body, reason, text, way_out, doubtful=doubtful)

    def _unjudged(self, call: Call, why: wire.BadRequest | Failure) -> tuple[bytes, str]:
        """The answer of shadow mode to a call that is in no record, and would not be later either.

        Its pod cannot be read, there are no rules, or the service failed: the scheduler goes on as
        it would without the service.
        """
        self._service.metrics.unrecorded.inc()
        self._refusals.say(f"the call for `{call.request.key}` is in no record: {why}")
        return call.request.as_offered(), OnFailure.PASS_THROUGH.value

    async def _way_out(
        self,
        call: Call,
        body: bytes,
        reason: str,
        text: str,
        way_out: OnFailure,
        *,
        doubtful: bool,
    ) -> tuple[bytes, str]:
        """The answer of `--on-failure`, once the call is on the disk."""
        offered = way_out is OnFailure.PASS_THROUGH
        self._service.metrics.failures.labels(reason).inc()
        told = "the call for `%s` was answered by --on-failure %s: %s"
        log.warning(told, _shortened(call.request.key), way_out, text)
        spooled = SpooledCall(
            environment=call.environment,
            mode=call.mode,
            caller=call.caller,
            answer=(CallAnswer.OFFERED if offered else CallAnswer.NONE).value,
            failure=text,
            arrived_ms=call.arrived_ms,
            duration_us=int((time.monotonic() - call.started) * 1_000_000),
            body=body,
            doubtful=doubtful,
        )
        try:
            await asyncio.wrap_future(self._service.spool.add(spooled))
        except (OSError, SpoolFull) as exc:
            self._service.metrics.unrecorded.inc()
            why = (
                str(exc)
                if isinstance(exc, SpoolFull)
                else f"the spool `{self._service.config.spool}` cannot be written:"
                f" {explained(exc).message}"
            )
            log.error("a call is in no record: %s", why)
        return call.request.as_offered() if offered else wire.answer(()), way_out.value


async def _read(
    work: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **kwargs: P.kwargs
) -> T:
    """What reads a body; a long one in a thread. Raises BadRequest.

    It comes back as a value: raised there, it and the thread's future would hold one another, and
    with them the body, until the collector comes round.
    """

    def found() -> T | wire.BadRequest:
        try:
            return work(body, *args, **kwargs)
        except wire.BadRequest as exc:
            return exc.with_traceback(None)

    read = found() if len(body) < _SHORT else await in_extender_thread(found)
    try:
        if isinstance(read, wire.BadRequest):
            raise read
        return read
    finally:
        del read  # the exception holds this frame, which is not to hold it


def _about_nodes(body: bytes, verb: str) -> bytes:
    """Filter and prioritize decide nothing here: every node passes, and none is preferred."""
    request = wire.read_nodes(body)
    return wire.all_pass(request) if verb == "filter" else wire.all_equal(request)
