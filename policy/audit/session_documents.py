"""Batch sessions as programs and pages see them: lines of lists, documents, the parts of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from policy.audit.documents import instant, not_carried_out
from policy.audit.session_replay import recorded_result
from policy.audit.writers import written_by
from policy.batch.explaining import waiting_in_words, why_waiting
from policy.batch.figures import LIMITS
from policy.batch.recording import Operation, StepOutcome, TaskStep
from policy.batch.resources import Resource
from policy.batch.result import SessionResult, evictions_taken_back
from policy.store import SessionRow, SessionStep, StoredSession
from policy.store.record.sessions import TOOK_EFFECT, reading
from policy.text.words import rounded
from policy.typed import prepared

SUMMARY: Final = (
    "id",
    "now",
    "rule_set",
    "base_revision",
    "revision",
    "bound",
    "evicted",
    "actor",
)
"""Columns of a list of sessions."""

SUMMARY_RIGHT: Final = ("id", "base_revision", "revision", "bound", "evicted")


def summary(row: SessionRow) -> dict[str, Any]:
    """One line of a list of sessions."""
    return {
        "id": row.id,
        "cluster": row.cluster,
        "now": instant(row.now_ms),
        "environment": row.environment,
        "rule_set": row.rule_set,
        "base_revision": row.base_revision,
        "revision": row.revision,
        "bound": row.bound_count,
        "evicted": row.evicted_count,
        "actor": row.actor,
        **written_by(row),
        "digest": row.digest,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A session with what is shown beside it."""

    id: int | None  #: None where it was not recorded
    cluster: str
    now_ms: int
    rule_set: str
    base_revision: int
    revision: int | None
    result: SessionResult
    queues: Mapping[str, str]  #: job -> queue
    jobs: Mapping[str, str]  #: pod -> job

    @property
    def name(self) -> str:
        return "session (not recorded)" if self.id is None else f"session {self.id}"

    def of_pod(self, pod: str) -> dict[str, str]:
        """Job and queue of a pod; empty where no step names it."""
        job = self.jobs.get(pod, "")
        return {"job": job, "queue": self.queues.get(job, "")}


def shown_record(stored: StoredSession) -> Shown:
    """A session out of the record. Raises DamagedRows."""
    row, result = stored.row, recorded_result(stored)
    with reading(row.id):
        queues = msgspec.convert(stored.document["queues"], prepared(dict[str, str]))
    return Shown(
        id=row.id,
        cluster=row.cluster,
        now_ms=row.now_ms,
        rule_set=row.rule_set,
        base_revision=row.base_revision,
        revision=row.revision,
        result=result,
        queues=queues,
        jobs=jobs_of_pods(result),
    )


def jobs_of_pods(result: SessionResult) -> dict[str, str]:
    """The job of each pod that a step names."""
    return {step.task: step.job for step in result.steps if step.task}


# --- what a session came to --------------------------------------------------------------------


def document(shown: Shown) -> dict[str, Any]:
    """What the session did and left, for programs."""
    result = shown.result
    return {
        "id": shown.id,
        "cluster": shown.cluster,
        "now": instant(shown.now_ms),
        "rule_set": shown.rule_set,
        "rule_set_digest": result.rules_digest,
        "base_revision": shown.base_revision,
        "revision": shown.revision,
        "digest": result.digest,
        "binds": _placed(shown, _done(result, Operation.BIND)),
        "pipelined": [
            {"pod": pod, "node": node, **shown.of_pod(pod)}
            for pod, node in result.pipelined.items()
        ],
        "evictions": evictions(shown),
        "queues": queue_rows(
            result,
            bound=_by_queue(shown, Operation.BIND),
            evicted=_by_queue(shown, Operation.EVICT),
        ),
        "jobs": job_rows(shown),
        "waiting": [
            {"job": job, **reason.document(), "why": why_waiting(result, job)}
            for job, reason in result.reasons.items()
        ],
        "notes": notes(result),
    }


def evictions(shown: Shown) -> list[dict[str, Any]]:
    """Everybody that the session evicted, in order, and for whom."""
    return [
        {
            "pod": step.task,
            "node": step.node,
            **shown.of_pod(step.task),
            "action": step.action,
            "for": step.claimant,
            **{f"for_{name}": value for name, value in shown.of_pod(step.claimant).items()},
        }
        for step in _done(shown.result, Operation.EVICT)
    ]


def _by_queue(shown: Shown, operation: Operation) -> Counter[str]:
    return Counter(shown.queues.get(step.job, "") for step in _done(shown.result, operation))


def queue_rows(
    result: SessionResult, *, bound: Counter[str], evicted: Counter[str]
) -> list[dict[str, Any]]:
    """Shares of the queues before and after, and what each won and lost.

    bound, evicted: how many pods, by queue.
    """
    figures = result.open.queues
    names = sorted({*figures, *result.queue_share, *evicted, *bound} - {""})
    return [
        {
            "queue": name,
            "weight": figures[name].weight if name in figures else None,
            "deserved": _amounts(figures[name].deserved) if name in figures else None,
            **{
                limit: _amounts(amount)
                for limit, amount in (figures[name].limits.items() if name in figures else ())
            },
            "share_before": figures[name].share if name in figures else None,
            "share_after": result.queue_share.get(name),
            "bound": bound[name],
            "evicted": evicted[name],
        }
        for name in names
    ]


def job_rows(shown: Shown) -> list[dict[str, Any]]:
    """Shares of the jobs before and after, and what each won and lost."""
    result = shown.result
    counts = {
        "bound": Counter(s.job for s in _done(result, Operation.BIND)),
        "pipelined": Counter(shown.of_pod(pod)["job"] for pod in result.pipelined),
        "evicted": Counter(s.job for s in _done(result, Operation.EVICT)),
    }
    jobs = sorted({*result.open.drf, *result.drf, *shown.queues})
    return [
        {
            "job": job,
            "queue": shown.queues.get(job, ""),
            "share_before": result.open.drf.get(job),
            "share_after": result.drf.get(job),
            **{name: count[job] for name, count in counts.items()},
        }
        for job in jobs
    ]


def notes(result: SessionResult) -> list[dict[str, str]]:
    """What of the cluster could not be used as it is."""
    return [
        {"note": n.oddity.value, "subject": n.subject, "detail": n.detail} for n in result.notes
    ] + [
        {"note": f"crash-{c.kind.value}", "subject": c.subject, "detail": c.of or c.node}
        for c in result.crashes
    ]


def _done(result: SessionResult, operation: Operation) -> list[TaskStep]:
    return [s for s in result.steps if s.operation is operation and s.outcome is StepOutcome.DONE]


def _placed(shown: Shown, steps: Iterable[TaskStep]) -> list[dict[str, Any]]:
    return [{"pod": s.task, "node": s.node, **shown.of_pod(s.task)} for s in steps]


_UNITS: Final = {"cpu": "cpu_milli", "memory": "memory_bytes", "pods": "pods"}


def _amounts(resource: Resource) -> dict[str, float]:
    return {_UNITS.get(n, f"{n}_milli"): value for n, value in resource.amounts().items()}


def queues_in_words(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`queue_rows` with amounts as people write them, without limits that no queue has any of."""
    found = [
        {n: _in_words(v) if n in ("deserved", *LIMITS) else v for n, v in row.items()}
        for row in rows
    ]
    empty = {name for name in LIMITS if not any(row.get(name) for row in found)}
    names = [name for row in found[:1] for name in row if name not in empty]
    return [{name: row.get(name) for name in names} for row in found]


def _in_words(amounts: Mapping[str, float] | None) -> str:
    return ", ".join(_amount(name, value) for name, value in (amounts or {}).items() if value)


def _amount(name: str, value: float) -> str:
    if name == _UNITS["memory"]:
        return f"memory {rounded(value / 2**30, 4)}Gi"
    shown = rounded(value if name == "pods" else value / 1000, 4)
    return f"{name.removesuffix('_milli')} {shown}"


# --- how it came to that -----------------------------------------------------------------------


def explanation(stored: StoredSession, job: str | None = None) -> dict[str, Any]:
    """The session with its steps and statements, for programs; of one job where it is given."""
    shown = shown_record(stored)
    result = shown.result
    said = document(shown)
    if job is not None:
        said["binds"] = [row for row in said["binds"] if row["job"] == job]
        said["pipelined"] = [row for row in said["pipelined"] if row["job"] == job]
        said["evictions"] = [r for r in said["evictions"] if job in (r["job"], r["for_job"])]
        said["jobs"] = [row for row in said["jobs"] if row["job"] == job]
        said["waiting"] = [row for row in said["waiting"] if row["job"] == job]
    steps = steps_of(shown, job)
    statements = {step.statement for step in steps}
    return {
        **said,
        "not_carried_out": not_carried_out(stored.outcomes),
        "environment": stored.row.environment,
        "actor": stored.row.actor,
        **written_by(stored.row),
        "at": instant(stored.row.at_ms),
        "snapshot_digest": stored.row.snapshot_digest,
        "steps": [
            {
                "position": step.position,
                "queue": shown.queues.get(step.job, ""),
                **step.document(),
            }
            for step in steps
        ],
        "statements": [
            {"id": s.id, "action": s.action, "job": s.job, "committed": s.committed}
            | {"steps": list(s.steps)}
            for s in result.statements
            if s.id in statements
        ],
    }


def steps_of(shown: Shown, job: str | None) -> list[TaskStep]:
    """All steps; of a job: those on its tasks, for them, or in one of its statements."""
    result = shown.result
    if job is None:
        return list(result.steps)
    own = {s.id for s in result.statements if s.job == job}
    return [
        step
        for step in result.steps
        if job in (step.job, shown.jobs.get(step.claimant)) or step.statement in own
    ]


# --- a session by parts ------------------------------------------------------------------------


MOVES: Final = (Operation.BIND, Operation.EVICT)
"""Operations of the steps that `overview` counts."""


def overview(
    stored: StoredSession, moves: Mapping[int, SessionStep], *, jobs: int
) -> dict[str, Any]:
    """What a session came to, without reading all of its steps; a part of `explanation`.

    stored: may be without its steps; moves: its steps of `MOVES`, by position, may be without their
    details. jobs: of those that still wait the first, at most so many.
    """
    result = recorded_result(stored)
    done = [step for step in moves.values() if step.reason == TOOK_EFFECT]
    by_queue = {
        operation: Counter(step.queue for step in done if step.operation == operation)
        for operation in MOVES
    }
    evictions = {at for at, step in moves.items() if step.operation == Operation.EVICT}
    taken_back = evictions_taken_back(result.statements, evictions)
    return {
        **summary(stored.row),
        "at": instant(stored.row.at_ms),
        "rule_set_digest": stored.row.rule_set_digest,
        "promised": len(result.pipelined),
        "waiting": len(result.reasons),
        "queues": queues_in_words(
            queue_rows(result, bound=by_queue[Operation.BIND], evicted=by_queue[Operation.EVICT])
        ),
        "why": [
            list(waiting_in_words(reason, taken_back.get(job, ())))
            for job, reason in islice(result.reasons.items(), jobs)
        ],
        "notes": notes(result),
    }
