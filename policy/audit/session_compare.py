"""Two sessions side by side: what becomes of each pod, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policy.batch.result import SessionResult
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, key_of, kind_of
from policy.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FateChange:
    """A pod, or a job that waits, of which two sessions make different things."""

    subject: str  #: namespace/name of the pod; `job namespace/name` of a job
    before: str
    after: str


def changes(before: SessionResult, after: SessionResult) -> list[FateChange]:
    """What the second session decides otherwise; pods first, then jobs, by name."""
    return [*_differing("", fates(before), fates(after)), *_jobs(before, after)]


def fates(result: SessionResult) -> dict[str, str]:
    """What becomes of every pod that the session did anything to."""
    found = {key: f"placed on {node}, not sent" for key, node in result.allocated.items()}
    found |= {key: f"promised room on {node}" for key, node in result.pipelined.items()}
    found |= {key: f"bound to {node}" for key, node in result.binds.items()}
    return found | dict.fromkeys(result.evicts, "evicted")


def _jobs(before: SessionResult, after: SessionResult) -> Iterator[FateChange]:
    one, other = (
        {job: f"waits: {reason.reason.value}" for job, reason in result.reasons.items()}
        for result in (before, after)
    )
    yield from _differing("job ", one, other)


def _differing(
    prefix: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[FateChange]:
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name, ""), after.get(name, "")
        if one != other:
            yield FateChange(subject=prefix + name, before=one, after=other)


def with_objects(snapshot: Snapshot, objects: Iterable[ClusterObject]) -> Snapshot:
    """The cluster with some objects added, or in place of those of the same name."""
    found: Sequence[Change] = [(kind_of(obj), key_of(obj), obj) for obj in objects]
    return snapshot.apply(found)
