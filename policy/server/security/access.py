"""From a request to who makes it: a token, a session's cookie, a client certificate."""

from __future__ import annotations

import base64
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from starlette.requests import HTTPConnection

from policy.server.config import Config
from policy.server.security.numbers import Numbered, Numbers
from policy.server.security.tokens import Role, Token, TokenError, TokenFile, find
from policy.text.system import explained

log = logging.getLogger("policy.server")

SESSION_SECONDS: Final = 12 * 3600
PEER: Final = "policy.peer"
"""Key of a connection's scope: the common name of its client certificate."""
CALLER: Final = "policy.caller"
"""Key of a request's scope: the name of whoever makes it, once that is known."""
CALLING: Final = ContextVar("policy.calling", default="")
"""The same within the request."""

_REREAD_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who makes a request, and what they may do."""

    name: str
    role: Role
    namespaces: frozenset[str] | None = None  #: that they may see; None for all
    session: bool = False  #: by cookie, so that writes need a form's own token
    #: that tokens limited to namespaces see; None where there are no tokens
    numbers: Numbers | None = field(default=None, repr=False, compare=False)

    @property
    def limited(self) -> bool:
        """May they see some namespaces only?"""
        return self.namespaces is not None

    @property
    def view(self) -> Hashable:
        """The same for those who are shown the same of the record."""
        return self.namespaces, self.numbers if self.limited else None

    def may(self, role: Role) -> bool:
        """Is what needs that role allowed? Each of viewer, operator, admin may what the former may.

        The role extender is apart: it reads nothing, and only an admin has it as well.
        """
        if self.role is Role.ADMIN or self.role is role:
            return True
        return (self.role, role) == (Role.OPERATOR, Role.VIEWER)

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    def shown(self, of: Numbered, number: int, *, within: str = "") -> int:
        """A number of the record as they see it. within: as of `Numbers.shown`."""
        if not self.limited:
            return number
        assert self.numbers is not None  # of no service without tokens
        return self.numbers.shown(of, number, within=within)

    def shown_to_limited(self, of: Numbered, number: int) -> int | None:
        """The same as tokens see it that are limited to namespaces; None where they are not told.

        For links that everyone can follow: who sees everything may give either number.
        """
        if self.limited or self.numbers is None:
            return None
        return self.numbers.shown(of, number)

    def actual(self, of: Numbered, given: int, *, within: str = "") -> int | None:
        """The number of the record that they mean; None where they were shown no such number.

        Who sees everything may also give what a limited token is shown.
        """
        found = None if self.numbers is None else self.numbers.actual(of, given, within=within)
        return given if found is None and not self.limited else found


LOCAL: Final = Principal(name="loopback", role=Role.ADMIN)
"""Whoever calls a service without tokens, which listens on the machine itself only."""


NOBODY: Final = Principal(name="", role=Role.VIEWER, namespaces=frozenset())
"""Whoever reads what everybody may read."""


class Access:
    """Knows the tokens; the file is read again where it changed."""

    def __init__(self, config: Config, *, clock: Callable[[], int]) -> None:
        """Raises TokenError for a bad file of tokens, or of their uses."""
        self._file = TokenFile(config.tokens, uses=config.token_uses) if config.tokens else None
        self._path = config.tokens
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: list[Token] = []
        # Without tokens it is of the process: what its forms carry is not to be known either.
        self._key = secrets.token_bytes(32)
        self._numbers: Numbers | None = None
        self._stamp: tuple[int, int] | None = None
        self._looked = 0.0
        self._problem = ""  #: why the file cannot be read
        self._noted: float | None = None  #: when the file of last uses was begun to be written
        self._unnoted = False  #: was a token used since?
        self._writer: threading.Thread | None = None  #: writes that file
        self._notable = True  #: could it be written the last time?
        self._used: dict[str, int] = {}
        if self._file is not None:
            self._read(self._file)
            with suppress(OSError):  # the log will say so; no other file is taken for it, though
                self._file.last_used()

    @property
    def open_to_all(self) -> bool:
        """Are there no tokens?"""
        return self._file is None

    @property
    def problem(self) -> str:
        """Why no token is accepted now, because the file cannot be read; "" where it can."""
        self._reread()
        return f"no token is accepted: {self._problem}" if self._problem else ""

    def reread(self) -> None:
        """Read the file now, whether it seems to have changed or not."""
        with self._lock:
            self._looked, self._stamp = 0.0, None
        self._reread()

    def principal(self, request: HTTPConnection) -> Principal | None:
        """Who makes the request; None where nothing says so, or nothing valid does."""
        return _noted(request, self._of_reader(request))

    def caller(self, request: HTTPConnection) -> Principal | None:
        """Who calls the extender: a client certificate counts there, a cookie does not."""
        return _noted(request, self._of_scheduler(request))

    def _of_reader(self, request: HTTPConnection) -> Principal | None:
        if self._file is None:
            return LOCAL
        self._reread()
        secret = _secret(request)
        if secret is not None:
            return self.of_secret(secret)
        cookie = self._sent_cookie(request)
        return self._of_session(cookie) if cookie else None

    def _of_scheduler(self, request: HTTPConnection) -> Principal | None:
        if self._file is None:
            return LOCAL
        peer = request.scope.get(PEER)
        if peer:
            return Principal(name=f"certificate {peer}", role=Role.EXTENDER)
        self._reread()
        secret = _secret(request)
        return self.of_secret(secret) if secret is not None else None

    def of_secret(self, secret: str) -> Principal | None:
        """Who holds a token."""
        token = find(self._tokens, secret)
        if token is None:
            return None
        self._note(token)
        return self._principal(token)

    # --- sessions ------------------------------------------------------------------------------

    @staticmethod
    def cookie(request: HTTPConnection) -> str:
        """Name of the session's cookie; the prefix keeps others from setting it over TLS."""
        return "__Host-policy" if request.url.scheme == "https" else "policy"

    @classmethod
    def _sent_cookie(cls, request: HTTPConnection) -> str:
        """The value of the session's cookie as it was sent, the last where several are; "" without.

        `request.cookies` unquotes what anybody sends, for which Python before 3.11.10 and 3.12.6
        takes a time that grows as the square of its length (CVE-2024-7592).
        """
        sent = ";".join(request.headers.getlist("cookie")).split(";")
        pairs = [part.strip().partition("=") for part in sent]
        name = cls.cookie(request)
        return next((value for key, _, value in reversed(pairs) if key == name), "")

    def session(self, secret: str) -> str | None:
        """The value of a cookie for whoever holds the token; None where that is not valid."""
        self._reread()
        token = find(self._tokens, secret)
        if token is None:
            return None
        self._note(token)
        expires = self._clock() // 1000 + SESSION_SECONDS
        told = f"{_beginning(token)}.{expires}"
        return f"{told}.{self._signed('session', told)}"

    def form_token(self, request: HTTPConnection) -> str:
        """What a form has to carry: neither other sites nor other tokens know it."""
        secret = _secret(request)
        cookie = self._sent_cookie(request)
        return self._signed("form", cookie if secret is None else f"of {secret}")

    def is_own_form(self, request: HTTPConnection, given: str) -> bool:
        """Does a form come from a page of this session?"""
        return hmac.compare_digest(self.form_token(request).encode(), given.encode())

    def _of_session(self, cookie: str) -> Principal | None:
        told, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signed("session", told).encode(), signature.encode()):
            return None
        beginning, _, expires = told.partition(".")
        if int(expires) * 1000 < self._clock():
            return None
        found = None
        for token in self._tokens:
            same = hmac.compare_digest(_beginning(token).encode(), beginning.encode())
            if same and token.revoked_ms is None:
                found = token
        if found is None:
            return None
        self._note(found)
        return self._principal(found, session=True)

    def _signed(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose} {text}".encode(), sha256).hexdigest()

    # --- the file ------------------------------------------------------------------------------

    def _reread(self) -> None:
        now = time.monotonic()
        if now - self._looked < _REREAD_SECONDS or self._file is None or self._path is None:
            return
        with self._lock:
            self._looked = now
            problem = ""
            try:
                status = self._path.stat()
                stamp = (status.st_mtime_ns, status.st_ino)
                if stamp != self._stamp:
                    self._read(self._file)
                    self._stamp = stamp
            # A file that is gone or broken lets no request in until it is mended.
            except TokenError as exc:
                problem = exc.message
            except (OSError, ValueError) as exc:
                problem = f"{self._path}: {explained(exc).message}"
            if problem:
                self._tokens = []
                self._stamp = None
            if problem and problem != self._problem:
                log.error("no token is accepted: %s", problem)
            elif self._problem and not problem:
                log.warning("tokens are accepted again: `%s` can be read", self._path)
            self._problem = problem

    def _read(self, file: TokenFile) -> None:
        self._tokens, self._key = file.read()
        self._numbers = Numbers(self._key)

    def _principal(self, token: Token, *, session: bool = False) -> Principal:
        return Principal(
            name=token.name,
            role=token.role,
            namespaces=None if token.namespaces is None else frozenset(token.namespaces),
            session=session,
            numbers=self._numbers,
        )

    def close(self) -> None:
        """Note when tokens were used last, as far as that is not in the file yet."""
        if self._writer is not None:
            self._writer.join()
        if self._unnoted:
            self._write_use()

    def _note(self, token: Token) -> None:
        with self._lock:
            self._used[token.sha256] = self._clock()
            self._unnoted = True
            due = self._noted is None or time.monotonic() - self._noted >= _NOTE_SECONDS
            if due and (self._writer is None or not self._writer.is_alive()):
                self._noted = time.monotonic()
                # No request waits for the disk, which may stand still.
                self._writer = threading.Thread(target=self._write_use, name="uses", daemon=True)
                self._writer.start()

    def _write_use(self) -> None:
        if self._file is None:
            return
        with self._lock:
            used, self._unnoted = dict(self._used), False
        try:
            self._file.note_use(used)
        except TokenError as exc:
            self._not_kept(exc.message)
        except OSError as exc:
            self._not_kept(f"`{self._file.used}` cannot be written: {exc.strerror}")
        else:
            self._notable = True

    def _not_kept(self, why: str) -> None:
        if self._notable:  # once: a secret that is mounted can never be written
            log.warning(
                "when tokens are used is not kept: %s; name another file with --token-uses", why
            )
        self._notable = False
        self._unnoted = True


def _noted(request: HTTPConnection, found: Principal | None) -> Principal | None:
    """Whoever makes the request, whose name is noted beside it."""
    if found is not None:
        request.scope[CALLER] = found.name
        CALLING.set(found.name)
    return found


def _beginning(token: Token) -> str:
    """Which token a session began with: 128 bits of its hash."""
    return token.sha256[:32]


def _secret(request: HTTPConnection) -> str | None:
    """The token of a request: as bearer, or as the password that a URL carries."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer":
            return given.strip()
        case "basic":
            # kube-scheduler can send nothing else: `urlPrefix: https://extender:TOKEN@host/...`
            try:
                return base64.b64decode(given, validate=True).decode().partition(":")[2]
            except ValueError:  # not ASCII, not Base64, not UTF-8
                return ""
    return None
