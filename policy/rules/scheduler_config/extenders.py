"""Extenders of a configuration, as rule files have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_LONGEST: Final = 3600
_CREDENTIALS: Final = re.compile(r"(https?://)[^/?#]*@")
_COPIED: Final = (
    "urlPrefix",
    "filterVerb",
    "prioritizeVerb",
    "preemptVerb",
    "weight",
    "nodeCacheCapable",
    "ignorable",
)
_SILENT: Final = frozenset({"enablehttps", "httptimeout", "managedresources"})


def extender(value: Mapping[str, Any], path: str, notices: list[str]) -> dict[str, Any]:
    """One extender. Keys are read without regard to case, as Policy files were."""
    lowered = {str(key).lower(): item for key, item in value.items()}
    found: dict[str, Any] = {}
    for key in _COPIED:
        item = lowered.get(key.lower())
        if item not in (None, "", False, 0):
            found[key] = item
    prefix = found.get("urlPrefix")
    if isinstance(prefix, str) and _CREDENTIALS.match(prefix):
        # Rule sets are recorded, and shown to everyone who may read the record.
        found["urlPrefix"] = _CREDENTIALS.sub(r"\1", prefix, count=1)
        notices.append(f"{path}.urlPrefix: the credentials before `@` are left out")
    timeout = lowered.get("httptimeout")
    if timeout not in (None, 0, "0s", "0"):
        seconds = duration(timeout)
        if seconds is None:
            notices.append(f"{path}.httpTimeout: `{timeout}` is no duration; 5 s stay")
        else:
            whole = min(max(1, ceil(seconds)), _LONGEST)
            found["httpTimeoutSeconds"] = whole
            if whole != seconds:
                notices.append(f"{path}.httpTimeout: `{timeout}` becomes {whole} s")
    managed = lowered.get("managedresources")
    if isinstance(managed, list) and managed:
        found["managedResources"] = [
            {
                "name": str(entry.get("name") or ""),
                "ignoredByScheduler": entry.get("ignoredByScheduler") is True,
            }
            for entry in managed
            if isinstance(entry, Mapping)
        ]
    if lowered.get("bindverb"):
        notices.append(f"{path}.bindVerb: not modelled: the scheduler itself binds")
    https = lowered.get("enablehttps") is True
    if https and str(lowered.get("urlprefix") or "").startswith("http://"):
        notices.append(f"{path}.enableHTTPS: the address begins with `http://`, which counts")
    if lowered.get("tlsconfig"):
        notices.append(f"{path}.tlsConfig: not modelled: the system's certificates count")
    known = {key.lower() for key in _COPIED} | _SILENT | {"bindverb", "tlsconfig"}
    notices += [f"{path}.{key}: not modelled" for key in value if str(key).lower() not in known]
    return found


def duration(text: Any) -> Fraction | None:
    """Seconds of `2s`, `1m30s`, `500ms`, or of a number of nanoseconds; None for anything else."""
    if type(text) is int:
        return Fraction(text, 10**9)
    if not isinstance(text, str) or not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return None
    return sum((Fraction(n) * _SECONDS[unit] for n, unit in _DURATION.findall(text)), Fraction(0))
