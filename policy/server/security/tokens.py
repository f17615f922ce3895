"""The file of tokens: who may call, hashed; the token itself is shown once and kept nowhere."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from policy.text.system import explained, whose
from policy.typed import UNDECODABLE, prepared, undecodable

_VERSION: Final = 1
_PREFIX: Final = "policy_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_KEY_BYTES: Final = 32
_KEY: Final = re.compile(r"(?:[0-9a-f]{2}){32,}")
_KEY_HELP: Final = (
    "it signs the sessions of browsers, and whoever knows it can make them: put a value there that"
    " nobody knows, as `openssl rand -hex 32` gives it"
)
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Role(StrEnum):
    """What a token may do. Values are stored and never renamed."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # read, activate rule sets and roll back
    EXTENDER = "extender"  # call the extender, and nothing else
    ADMIN = "admin"  # everything


class TokenError(Exception):  # told to people in the words of its message
    """The file of tokens cannot be read, or what is wanted of it cannot be done."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token without its secret."""

    name: str
    role: Role
    sha256: str  #: of the secret, hexadecimal
    created_ms: int
    namespaces: list[str] | None = None  #: that it may see; None for all
    revoked_ms: int | None = None


class _Versioned(msgspec.Struct):
    """What is read first: another version may have other fields."""

    version: int = _VERSION


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int = _VERSION
    session_key: str = ""  #: signs the cookies of sessions, hexadecimal
    tokens: list[Token] = []


class TokenFile:
    """A file of tokens. Every change is whole, and made by one process at a time.

    uses: the file that says when each token was seen; None for `FILE.used` beside it.
    """

    def __init__(self, path: Path, *, uses: Path | None = None) -> None:
        self._path = path
        self.used = path.with_name(path.name + ".used") if uses is None else uses

    def create(
        self, name: str, role: Role, *, namespaces: Sequence[str] | None, now_ms: int
    ) -> str:
        """A new token's secret, which is kept nowhere. Raises TokenError."""
        if not _NAME.fullmatch(name):
            raise TokenError(
                f"`{name[:80]}` cannot be the name of a token",
                help="letters, digits and `.`, `_`, `@`, `-`, at most 63 of them",
            )
        for namespace in namespaces or ():
            if not _NAMESPACE.fullmatch(namespace):
                raise TokenError(f"`{namespace[:80]}` is not the name of a namespace")
        if namespaces is not None and role is not Role.VIEWER:
            raise TokenError(f"a token of role `{role}` cannot be limited to namespaces")
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._changing(make=True) as file:
            if any(token.name == name and token.revoked_ms is None for token in file.tokens):
                raise TokenError(
                    f"there is a token `{name}` already",
                    help="revoke it first, or give the new one another name",
                )
            file.tokens.append(
                Token(
                    name=name,
                    role=role,
                    sha256=hashed(secret),
                    created_ms=now_ms,
                    namespaces=None if namespaces is None else sorted(set(namespaces)),
                )
            )
        return secret

    def revoke(self, name: str, *, now_ms: int) -> None:
        """Raises TokenError where there is no such token."""
        with self._changing() as file:
            for i, token in enumerate(file.tokens):
                if token.name == name and token.revoked_ms is None:
                    file.tokens[i] = msgspec.structs.replace(token, revoked_ms=now_ms)
                    return
            raise TokenError(f"there is no token `{name[:80]}`", help="see `policy token list`")

    def tokens(self) -> list[Token]:
        """All of them, also the revoked ones. Raises TokenError."""
        return self._read().tokens

    def read(self) -> tuple[list[Token], bytes]:
        """The tokens, and the key that signs sessions. Raises TokenError."""
        file = self._read()
        return file.tokens, bytes.fromhex(file.session_key)

    def last_used(self) -> dict[str, int]:
        """When each token was last seen, by hash, as far as services have noted.

        Raises TokenError where the file is another one, OSError where it cannot be read.
        """
        try:
            data = self.used.read_bytes() or b"{}"  # made by hand, to be filled
            used = msgspec.json.decode(data, type=dict[str, int])
        except FileNotFoundError:
            return {}
        except UNDECODABLE:
            used = None
        if used is None or not all(map(_HASH.fullmatch, used)):
            raise TokenError(
                f"{self.used}: not a file of when tokens were used; it is left as it is",
                help="name one that there is not yet with --token-uses",
            )
        return used

    def note_use(self, used: dict[str, int]) -> None:
        """Add when tokens were seen. Raises as `last_used`, and where it cannot be written."""
        before = self.last_used()
        newest = {k: max(used.get(k, 0), before.get(k, 0)) for k in {*used, *before}}
        _replace(self.used, msgspec.json.encode(newest))

    def _read(self, *, missing_ok: bool = False) -> _File:
        try:
            data = self._path.read_bytes()
            version = msgspec.json.decode(data, type=prepared(_Versioned)).version
            if version != _VERSION:
                raise TokenError(
                    f"{self._path}: `version` is {version}, and this version of the program reads"
                    f" {_VERSION}",
                    help="use the version of the program that made the file",
                )
            file = msgspec.json.decode(data, type=prepared(_File))
        except FileNotFoundError:
            if missing_ok:
                return _File(session_key=secrets.token_hex(_KEY_BYTES))
            raise TokenError(
                f"there is no file of tokens at `{self._path}`",
                help="`policy token create NAME --role admin --tokens FILE` makes it",
            ) from None
        except OSError as exc:
            raise _refused(self._path, exc) from exc
        except UNDECODABLE as exc:
            raise TokenError(
                f"{self._path}: not a file of tokens: {undecodable(exc)}",
                help="name the file that `policy token create` made; where this is it, and it is"
                " damaged, restore it from a copy",
            ) from exc
        # With a key that can be guessed anybody writes themselves the session of any token.
        if not _KEY.fullmatch(file.session_key):
            raise TokenError(
                f"{self._path}: `session_key` is missing or less than {2 * _KEY_BYTES} hexadecimal"
                " digits",
                help=_KEY_HELP,
            )
        for token in file.tokens:
            if not _HASH.fullmatch(token.sha256):
                raise TokenError(
                    f"{self._path}: `sha256` of token `{token.name[:80]}` is not 64 hexadecimal"
                    " digits",
                    help="revoke it by removing its entry, and make it anew",
                )
        return file

    @contextmanager
    def _changing(self, *, make: bool = False) -> Iterator[_File]:
        # Whatever links lead to the file, who changes it holds the same lock.
        folder = _resolved(self._path).parent
        if not folder.is_dir():
            raise TokenError(f"there is no folder `{folder}` for the file of tokens")
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError as exc:
            raise _refused(self._path, exc) from exc
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            file = self._read(missing_ok=make)
            yield file
            try:
                _replace(self._path, msgspec.json.format(msgspec.json.encode(file)))
            except OSError as exc:
                raise _refused(self._path, exc) from exc
        finally:
            os.close(handle)


def _resolved(path: Path) -> Path:
    """Where the file itself is: links to it stay links."""
    return Path(os.path.realpath(path))


def _replace(path: Path, data: bytes) -> None:
    """The whole file or what was there before, with the same owner, group and mode.

    A new one can be read by its owner only. Raises OSError, also where the file of another user
    could not be given back to them: a service that runs as that user would not read it any more.
    """
    path = _resolved(path)
    try:
        before = path.stat()
    except FileNotFoundError:
        before = None
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            if before is not None:
                made = os.fstat(handle)
                if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
                    os.fchown(handle, before.st_uid, before.st_gid)
                os.fchmod(handle, stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _refused(path: Path, exc: OSError) -> TokenError:
    """What the system refused, and whose the file is where that may be the reason."""
    said = explained(exc)
    owner = whose(path) if isinstance(exc, PermissionError) else None
    if owner is None:
        return TokenError(f"{path}: {said.message}", help=said.help)
    return TokenError(
        f"{path}: {said.message}: {owner.message}",
        help=f"{owner.help}; the file keeps its owner, group and mode",
    )


def hashed(secret: str) -> str:
    """SHA-256 of a secret: of 256 random bits, so that nothing slower is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def find(tokens: Sequence[Token], secret: str) -> Token | None:
    """The valid token with that secret; as long for each, whichever it is."""
    wanted = hashed(secret)
    found = None
    for token in tokens:
        if hmac.compare_digest(token.sha256, wanted) and token.revoked_ms is None:
            found = token
    return found
