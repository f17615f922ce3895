"""Recorded scenarios: a cluster, a pending pod, and what kube-scheduler did with it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from policy.typed import prepared

_GZIP: Final = b"\x1f\x8b"


class RecordedCandidate(msgspec.Struct, frozen=True):
    """Victims on one node, in the order of the list, and how many violate a budget."""

    victims: list[str]
    violations: int = msgspec.field(default=0, name="numPDBViolations")


class RecordedStatus(msgspec.Struct, frozen=True):
    code: str
    plugin: str | None = None
    reasons: list[str] = []


class RecordedPostFilter(msgspec.Struct, frozen=True, rename="camel"):
    code: str
    message: str = ""
    #: a node, "" to clear the nomination; None: leave it, or (after Success) any of `best`
    nominated_node: str | None = None


class RecordedPreempt(msgspec.Struct, frozen=True, rename="camel"):
    """The result of the generic scheduler (1.14)."""

    node: str | None
    any_of: list[str] = []
    victims: list[str] = []
    cleared_nominations: list[str] = []


class Expect(msgspec.Struct, frozen=True, rename="camel"):
    """What the real scheduler did; absent where its generation does not tell."""

    fits: bool = False
    error: str | None = None
    eligible: bool | None = None
    reason: str | None = None
    filter: dict[str, RecordedStatus | list[str]] = {}
    potential_nodes: list[str] | None = None
    candidates: dict[str, RecordedCandidate] | None = None
    alternatives: dict[str, list[RecordedCandidate]] = {}
    statuses: dict[str, RecordedStatus] | None = None
    best: list[str] = []
    best_any_order: list[str] = []
    post_filter: RecordedPostFilter | None = None
    preempt: RecordedPreempt | None = None
    fit_error: str | None = None
    cleared_nominations: list[str] | None = None
    cleared_nominations_by_best: dict[str, list[str]] = {}
    deleted: list[str] | None = None
    disruption_target: list[str] | None = None


class Scenario(msgspec.Struct, frozen=True):
    id: str
    family: str
    cluster: dict[str, Any]
    pod: str
    expect: Expect

    @property
    def objects(self) -> list[Mapping[str, Any]]:
        """The cluster's objects, as in a kubectl List."""
        return self.cluster.get("items") or []

    @property
    def starts_count(self) -> bool:
        """Whether the scheduler looked at start times: all but the generic one (1.14) did."""
        return self.expect.preempt is None

    def best(self) -> frozenset[str]:
        """Nodes that the real scheduler may choose.

        The generic scheduler breaks the last tie by the order of a hash map, and its recordings
        tried that a number of times only: nodes that equal a recorded one in every criterion of
        1.14 (violations, priority of the first victim, sum, number) belong to them too.
        """
        expect = self.expect
        if self.starts_count or len(expect.best) < 2:
            return frozenset(expect.best)
        priority = {key: pod.get("spec", {}).get("priority") or 0 for key, pod in self.pods()}

        def values(candidate: RecordedCandidate) -> tuple[int, ...]:
            found = [priority[key] for key in candidate.victims]
            return candidate.violations, found[0] if found else 0, sum(found), len(found)

        candidates = expect.candidates or {}
        equal = values(candidates[expect.best[0]])
        return frozenset(node for node, found in candidates.items() if values(found) == equal)

    def pods(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Key and object of every pod, in snapshot order (namespace, name)."""
        found = [
            (f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}", obj)
            for obj in self.objects
            if obj.get("kind") == "Pod"
        ]
        return sorted(found, key=lambda pair: pair[0].split("/", 1))


class LineHead(msgspec.Struct, frozen=True):
    """Enough of a line to know what it is; the rest stays undecoded."""

    id: str | None = None
    family: str | None = None
    #: a pod group; as `family`, in cases of Volcano's tests
    group: str | None = None
    pod: str | None = None
    cluster: msgspec.Raw = msgspec.Raw()
    expect: msgspec.Raw = msgspec.Raw()
    config: msgspec.Raw = msgspec.Raw()
    #: of a running scheduler
    pending: str | None = None
    objects: msgspec.Raw = msgspec.Raw()
    notes: Notes | str | list[str] | None = None

    @property
    def of_family(self) -> str:
        """The family, wherever the form of the recording names it; "" without one."""
        noted = self.notes.family if isinstance(self.notes, Notes) else ""
        return self.family or self.group or noted


class Notes(msgspec.Struct, frozen=True):
    family: str = ""


_HEAD: Final = msgspec.json.Decoder(prepared(LineHead))
_SCENARIO: Final = msgspec.json.Decoder(prepared(Scenario))


def head(line: bytes) -> LineHead:
    """Raises msgspec.DecodeError for a line that is no record."""
    return _HEAD.decode(line)


def parse(line: bytes) -> Scenario:
    """Raises msgspec.DecodeError for a line that is no scenario."""
    return _SCENARIO.decode(line)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and text of the lines of a recording, gzipped or not."""
    with _opened(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield number, line


def _opened(path: Path) -> IO[bytes]:
    stream = path.open("rb")
    packed = stream.read(2) == _GZIP
    stream.seek(0)
    # GzipFile closes only what it opened itself.
    if not packed:
        return stream
    stream.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]  # readable bytes, as declared
