"""Names as an API server accepts them: RFC 1123 names, and the syntax of labels.

Source: apimachinery `util/validation`. Every function tells whether a text is valid, no more; the
answers are kept, because a cluster repeats few labels many times.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

LONGEST_LABEL: Final = 63
LONGEST_SUBDOMAIN: Final = 253

_DNS_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL: Final = re.compile(_DNS_LABEL)
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

_KEPT: Final = 65536


def is_subdomain(text: str) -> bool:
    """Names of most objects: lower case, digits, `-` and `.`, at most 253 characters."""
    return len(text) <= LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


@lru_cache(_KEPT)
def is_dns_label(text: str) -> bool:
    """Names of namespaces and containers: lower case, digits and `-`, at most 63 characters."""
    return len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text) is not None


@lru_cache(_KEPT)
def is_repeated_subdomain(text: str) -> bool:
    """`is_subdomain` for names that many objects hold, such as the node of a pod."""
    return is_subdomain(text)


@lru_cache(_KEPT)
def valid_label_key(key: str) -> bool:
    """Is this a qualified name: an optional DNS prefix, a slash, at most 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return _NAME.fullmatch(name) is not None


@lru_cache(_KEPT)
def valid_label_value(value: str) -> bool:
    """At most 63 letters, digits, `-`, `_` and `.`, or nothing."""
    return _VALUE.fullmatch(value) is not None


def typed_pod(text: str | None) -> str | None:
    """`namespace/name` of a pod or pod group; one that was typed without is in `default`."""
    return text if text is None or "/" in text else f"default/{text}"
