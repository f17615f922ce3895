"""Which versions of kube-scheduler a shipped rule set stands for, as its file says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from policy.rules.documents import parse, plain
from policy.rules.files import shipped, shipped_names

Version: TypeAlias = tuple[int, int, int]
"""Major, minor and patch."""

_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?![\d.])")
_RANGE: Final = re.compile(r">=(\S+) <(\S+)")


class VersionError(ValueError):
    """A text that names no version of Kubernetes; the message says which."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class VersionRange:
    """From the first version on, up to `end`, which is not part of it."""

    first: Version
    end: Version

    @staticmethod
    def parse(text: str) -> VersionRange:
        """Of `>=1.31.0 <1.31.3`, as `metadata.versions` has it."""
        found = _RANGE.fullmatch(text)
        if found is None:
            raise VersionError(f"`{text}` is no range of versions")
        first, end = (parse_version(part) for part in found.groups())
        return VersionRange(first=lowest(first), end=lowest(end))

    def __contains__(self, version: Version) -> bool:
        return self.first <= version < self.end

    def __str__(self) -> str:
        """`1.31.0 to 1.31.2`, `1.31.3 and later patches`, `1.19 to 1.26`."""
        (major, minor, patch), (_, end_minor, end_patch) = self.first, self.end
        first = f"{major}.{minor}.{patch}"
        if end_patch:
            last = f"{major}.{end_minor}.{end_patch - 1}"
            return first if first == last else f"{first} to {last}"
        if patch:
            return f"{first} and later patches"
        last = f"{major}.{end_minor - 1}"
        return last if minor == end_minor - 1 else f"{major}.{minor} to {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A shipped rule set that stands for versions of kube-scheduler."""

    name: str
    versions: VersionRange
    why: str  #: what tells these versions from the neighbouring ones
    description: str


def parse_version(text: str) -> tuple[int, int, int | None]:
    """Major, minor and patch (None where left out) of `1.30.8`, `v1.30.8+k3s1`, `v1.29.3-eks-1`.

    Raises VersionError.
    """
    found = _VERSION.match(text.strip())
    if found is None:
        raise VersionError(f"`{text}` is no version of Kubernetes")
    major, minor, patch = found.groups()
    return int(major), int(minor), None if patch is None else int(patch)


def lowest(version: tuple[int, int, int | None]) -> Version:
    """The version itself, or the first patch of a minor version."""
    major, minor, patch = version
    return major, minor, patch or 0


@cache
def generations() -> tuple[Generation, ...]:
    """The shipped rule sets that stand for versions, the oldest versions first."""
    found = []
    for name in shipped_names():
        root = parse(shipped()[name].read_text("utf-8"), name, [])
        metadata: Mapping[str, Any] = plain(root)["metadata"]
        if "versions" in metadata:
            found.append(
                Generation(
                    name=name,
                    versions=VersionRange.parse(metadata["versions"]),
                    why=metadata["why"],
                    description=metadata["description"],
                )
            )
    return tuple(sorted(found, key=lambda g: g.versions))


def of_version(version: Version) -> Generation | None:
    """The rule set that decides like this version; None where none is shipped."""
    return next((g for g in generations() if version in g.versions), None)


def of_server(text: str) -> Generation | None:
    """The rule set that decides like the server that calls itself so.

    A minor version without a patch stands for its newest patches. None where none is shipped, or
    the text is no version.
    """
    try:
        major, minor, patch = parse_version(text)
    except VersionError:
        return None
    if patch is None:
        return next(reversed(of_minor(major, minor)), None)
    return of_version((major, minor, patch))


def newest(texts: Iterable[str]) -> str | None:
    """The newest of the versions; None where none of the texts is one."""
    versions = {}
    for text in texts:
        with contextlib.suppress(VersionError):
            versions[text] = lowest(parse_version(text))
    return max(versions, key=lambda text: versions[text], default=None)


def of_minor(major: int, minor: int) -> tuple[Generation, ...]:
    """The rule sets of a minor version, the one of the newest patches last."""
    return tuple(
        g
        for g in generations()
        if g.versions.first < (major, minor + 1, 0) and (major, minor, 0) < g.versions.end
    )
