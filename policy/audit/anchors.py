"""Anchors: ledger heads that are kept outside the database, one JSON object a line.

    {"anchor":1,"anchored_at":TIME,"at":TIME,"cluster":NAME,"hash":HASH,"sequence":N,
     "signature":"ed25519:BASE64"}

`at` is the time of the entry, `anchored_at` that of the anchor. The signature, if there is one, is
over the canonical JSON of the object without it (docs/formats.md).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policy.cluster import canonical, times
from policy.extras import require
from policy.store import Finding, KeptHead, LedgerHead, StoreError, TamperKind

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

FORMAT: Final = 1
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SIGNATURE: Final = "ed25519:"
_MAKE_KEYS: Final = (
    "make a pair with `openssl genpkey -algorithm ed25519 -out key.pem` and"
    " `openssl pkey -in key.pem -pubout -out public.pem`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A ledger head, and when it was anchored."""

    head: LedgerHead
    anchored_ms: int

    def line(self, key: Ed25519PrivateKey | None) -> str:
        """The anchor as it is kept, signed where there is a key."""
        value: dict[str, Any] = {
            "anchor": FORMAT,
            "anchored_at": times.to_text(self.anchored_ms),
            "at": times.to_text(self.head.at_ms),
            "cluster": self.head.cluster,
            "hash": self.head.hash,
            "sequence": self.head.sequence,
        }
        if key is not None:
            signature = base64.b64encode(key.sign(canonical.encode(value))).decode()
            value["signature"] = _SIGNATURE + signature
        return canonical.text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnchors:
    """The heads of a file, and what is wrong with lines that are no genuine anchors."""

    heads: tuple[KeptHead, ...]
    findings: tuple[Finding, ...]


class _Forged(Exception):
    """A line that is no anchor, or is not signed as it has to be."""


class _NoAnchor(_Forged):
    """A line that is nothing like one."""


def append(path: str, line: str) -> None:
    """Write a line behind the others; it is on the disk afterwards. Raises StoreError."""
    file = Path(path)
    try:
        new = not file.exists()
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            folder = os.open(file.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from exc


def read_anchors(path: str, *, public_key: str | None) -> ReadAnchors:
    """Every anchor of a file; with a key, only those that are signed with it.

    What is no anchor among others is a finding: it was one, or hides that one is missing. Raises
    StoreError for a file that cannot be read, or in which no line is like an anchor.
    """
    key = None if public_key is None else load_public_key(public_key)
    heads: list[KeptHead] = []
    findings: list[Finding] = []
    unlike = 0  # lines that are nothing like an anchor
    for number, line in _lines(path):
        source = f"{path}:{number}"
        try:
            heads.append(_head(_value(line), source, key))
        except _Forged as exc:
            unlike += isinstance(exc, _NoAnchor)
            detail = f"{source}: {exc}"
            findings.append(
                Finding(cluster="", subject="an anchor", harm=TamperKind.FORGED, detail=detail)
            )
    if not heads and unlike == len(findings):
        raise StoreError(
            f"{path}: there is no anchor in this file",
            help="name the file that `policy audit anchor --file` wrote; where this is it, its"
            " anchors were taken out, and nothing is proved",
        )
    return ReadAnchors(heads=tuple(heads), findings=tuple(findings))


def newest(path: str) -> dict[str, KeptHead]:
    """The last anchor of each cluster in a file; none where there is no file yet."""
    if not Path(path).exists():
        return {}
    found: dict[str, KeptHead] = {}
    for number, line in _lines(path):
        try:
            head = _head(_value(line), f"{path}:{number}", None)
        except _Forged as exc:
            raise StoreError(f"{path}:{number}: {exc}", help="name another file") from exc
        found[head.cluster or ""] = head
    return found


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        text = Path(path).read_bytes().decode(errors="replace")
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from exc
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def _value(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _NoAnchor("the line is not JSON") from None
    if not isinstance(value, dict) or "anchor" not in value:
        raise _NoAnchor("the line is not an anchor")
    if value["anchor"] != FORMAT:
        raise _Forged(f"the line is not an anchor of format {FORMAT}")
    return value


def _head(value: dict[str, Any], source: str, key: Ed25519PublicKey | None) -> KeptHead:
    if key is not None:
        _check_signature(dict(value), key)
    cluster, sequence, found = value.get("cluster"), value.get("sequence"), value.get("hash")
    if (
        not isinstance(cluster, str)
        or not isinstance(found, str)
        or _HASH.fullmatch(found) is None
        or not isinstance(sequence, int)
        or not 0 < sequence < 2**63
    ):
        raise _Forged("the anchor needs `cluster`, `sequence` and `hash`")
    return KeptHead(hash=found, cluster=cluster, sequence=sequence, source=source)


def _check_signature(value: dict[str, Any], key: Ed25519PublicKey) -> None:
    from cryptography.exceptions import InvalidSignature

    signature = value.pop("signature", None)
    if signature is None:
        raise _Forged("the anchor is not signed")
    try:
        if not isinstance(signature, str) or not signature.startswith(_SIGNATURE):
            raise _Forged("the signature is not an Ed25519 one")
        raw = base64.b64decode(signature[len(_SIGNATURE) :], validate=True)
        key.verify(raw, canonical.encode(value))
    except (InvalidSignature, binascii.Error, UnicodeEncodeError):
        raise _Forged("the anchor is not what was signed, or another key signed it") from None


def load_private_key(path: str) -> Ed25519PrivateKey:
    """A key to sign with. Raises StoreError for what is not an Ed25519 key without password."""
    require("sign", "signatures need")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_key_bytes(path), password=None)
    except (ValueError, TypeError) as exc:  # TypeError: it has a password
        raise _no_key(path, "private") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private")
    return key


def load_public_key(path: str) -> Ed25519PublicKey:
    """A key to check signatures with. Raises StoreError for what is not an Ed25519 key."""
    require("sign", "signatures need")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_key_bytes(path))
    except ValueError as exc:
        raise _no_key(path, "public") from exc
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "public")
    return key


def _no_key(path: str, kind: str) -> StoreError:
    return StoreError(f"{path}: not an Ed25519 {kind} key in PEM without password", help=_MAKE_KEYS)


def _key_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise StoreError(f"{path}: {exc.strerror}") from exc
