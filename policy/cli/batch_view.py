"""A batch session as people and programs see it, recorded or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policy.audit.documents import not_carried_out
from policy.batch.explaining import choice_in_words, limit_in_words, why_waiting
from policy.batch.figures import LIMITS
from policy.batch.recording import NodeAnswer, Operation, StatementRecord, StepOutcome, TaskStep
from policy.cli import output, session, view

if TYPE_CHECKING:
    from policy.batch.resources import Resource
    from policy.batch.result import SessionResult
    from policy.scheduling.sessions import CompletedSession
    from policy.store import SessionRow, StoredSession

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
        "now": session.instant(row.now_ms),
        "environment": row.environment,
        "rule_set": row.rule_set,
        "base_revision": row.base_revision,
        "revision": row.revision,
        "bound": row.bound_count,
        "evicted": row.evicted_count,
        "actor": row.actor,
        **session.written_by(row),
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


def shown_now(held: CompletedSession, *, cluster: str) -> Shown:
    """A session that was just held."""
    made = held.recording
    return Shown(
        id=None if made is None else made.session_id,
        cluster=cluster,
        now_ms=held.now_ms,
        rule_set=held.rules.name,
        base_revision=held.base_revision,
        revision=None if made is None or not held.result.changes else made.revision,
        result=held.result,
        queues=held.queues,
        jobs=_jobs_of_pods(held.result),
    )


def shown_record(stored: StoredSession) -> Shown:
    """A session out of the record."""
    from policy.audit.session_replay import recorded_result

    row, result = stored.row, recorded_result(stored)
    return Shown(
        id=row.id,
        cluster=row.cluster,
        now_ms=row.now_ms,
        rule_set=row.rule_set,
        base_revision=row.base_revision,
        revision=row.revision,
        result=result,
        queues=stored.document["queues"],
        jobs=_jobs_of_pods(result),
    )


def _jobs_of_pods(result: SessionResult) -> dict[str, str]:
    return {step.task: step.job for step in result.steps if step.task}


# --- what a session came to --------------------------------------------------------------------


def document(shown: Shown) -> dict[str, Any]:
    """What the session did and left, for programs."""
    result = shown.result
    return {
        "id": shown.id,
        "cluster": shown.cluster,
        "now": session.instant(shown.now_ms),
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
        "queues": queue_rows(shown),
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


def queue_rows(shown: Shown) -> list[dict[str, Any]]:
    """Shares of the queues before and after, and what each won and lost."""
    result = shown.result
    lost = Counter(e["queue"] for e in evictions(shown))
    bound = Counter(shown.queues.get(s.job, "") for s in _done(result, Operation.BIND))
    figures = result.open.queues
    names = sorted({*figures, *result.queue_share, *lost, *bound} - {""})
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
            "evicted": lost[name],
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


def print_result(shown: Shown) -> None:
    """The session for people: what it did, the shares, and who still waits."""
    led = "no change" if shown.revision is None else f"revision {shown.revision}"
    output.line(
        f"{shown.name} of cluster {shown.cluster}, {session.instant(shown.now_ms)}: "
        f"{shown.rule_set} on revision {shown.base_revision}, led to {led}"
    )
    told = document(shown)
    _section("Bound", told["binds"])
    _section("Promised room that is being released", told["pipelined"])
    _section("Evicted", told["evictions"])
    queues = _without_empty(
        {n: _in_words(v) if n in ("deserved", *LIMITS) else v for n, v in row.items()}
        for row in told["queues"]
    )
    _shares("Queues", queues)
    _shares("Jobs", told["jobs"])
    _lines("Still waiting", (line for row in told["waiting"] for line in row["why"]))
    _section("Not as it should be", told["notes"])


def _without_empty(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the limits that no queue has anything of."""
    found = list(rows)
    empty = {name for name in LIMITS if not any(row.get(name) for row in found)}
    names = [name for row in found[:1] for name in row if name not in empty]
    return [{name: row.get(name) for name in names} for row in found]


def _in_words(amounts: Mapping[str, float] | None) -> str:
    return ", ".join(
        f"memory {value / 2**30:.4g}Gi"
        if name == _UNITS["memory"]
        else f"{name.removesuffix('_milli')} {value if name == 'pods' else value / 1000:.4g}"
        for name, value in (amounts or {}).items()
        if value
    )


def _shares(title: str, rows: Sequence[dict[str, Any]]) -> None:
    shares = ("share_before", "share_after")
    text = [
        {n: f"{v:.4f}" if n in shares and v is not None else v for n, v in row.items()}
        for row in rows
    ]
    _section(title, text, "weight", *shares, "bound", "pipelined", "evicted")


def _section(title: str, rows: Sequence[dict[str, Any]], *right: str) -> None:
    if rows:
        output.line()
        output.line(title)
        output.print_table(rows, columns=tuple(rows[0]), right=right)


def _lines(title: str, lines: Iterable[str]) -> None:
    found = list(lines)
    if found:
        output.line()
        output.line(title)
        for line in found:
            output.line(f"  {line}")


# --- how it came to that -----------------------------------------------------------------------


def explanation(stored: StoredSession, job: str | None) -> dict[str, Any]:
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
    steps = _steps(shown, job)
    return {
        **said,
        "not_carried_out": not_carried_out(stored.outcomes),
        "actor": stored.row.actor,
        **session.written_by(stored.row),
        "at": session.instant(stored.row.at_ms),
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
            if s.id in {step.statement for step in steps}
        ],
    }


def _steps(shown: Shown, job: str | None) -> list[TaskStep]:
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


def print_explanation(stored: StoredSession, job: str | None) -> None:
    """The steps of a session in order, and why; for people."""
    shown = shown_record(stored)
    result, row = shown.result, stored.row
    if job is None:
        print_result(shown)
    else:
        output.line(f"{shown.name}: job {job}, queue {shown.queues.get(job, '') or 'unknown'}")
        _lines("Still waiting", why_waiting(result, job))
    _lines("Not carried out", view.not_carried_out(stored.outcomes))
    steps = _steps(shown, job)
    _section("Steps", [_step_row(step) for step in steps], "", "statement")
    _lines("Statements", _statements(result, {step.statement for step in steps}))
    _lines("Who was spared, and by whom", _vetoes(steps))
    output.line()
    output.line(f"rule set   {row.rule_set} {row.rule_set_digest}")
    output.line(f"recorded   {session.instant(row.at_ms)} by {session.writer(row)}")
    output.line(f"state      revision {row.base_revision}, {row.snapshot_digest}")
    output.line(f"digest     {row.digest}")


def _step_row(step: TaskStep) -> dict[str, Any]:
    if step.rejection is not None and step.rejection.limit is not None:
        why = limit_in_words(step.rejection.limit)
    elif step.rejection is not None:
        why = ", ".join(f"{n} {reason}" for reason, n in step.rejection.nodes.items())
    elif step.refusal is not None:
        why = step.refusal.value
    elif step.choice is not None:
        why = choice_in_words(step.choice)
    else:
        why = f"for {step.claimant}" if step.claimant else ""
    return {
        "": step.position + 1,
        "action": step.action,
        "operation": step.operation.value,
        "job": step.job,
        "task": step.task,
        "node": step.node,
        "statement": step.statement or "",
        "outcome": step.outcome.value,
        "why": why,
    }


def _statements(result: SessionResult, numbers: set[int]) -> Iterator[str]:
    for statement in result.statements:
        if statement.id in numbers:
            words = "; ".join(_ends(result, statement))
            yield f"{statement.id}: {statement.action} for {statement.job}, {words}"


def _ends(result: SessionResult, statement: StatementRecord) -> Iterator[str]:
    """What became of the steps of a statement, each named once."""
    positions: dict[StepOutcome, list[int]] = {}
    for position in statement.steps:
        positions.setdefault(result.steps[position].outcome, []).append(position + 1)
    words = {
        StepOutcome.DONE: "committed" if statement.committed else "kept, not sent",
        StepOutcome.DISCARDED: "taken back",
        StepOutcome.FAILED: "without effect",
    }
    if StepOutcome.DONE not in positions:
        yield "nothing to commit" if statement.committed else "discarded"
    for outcome, word in words.items():
        steps = positions.get(outcome, ())
        if steps:
            plural = "step" if len(steps) == 1 else "steps"
            yield f"{word}: {plural} {', '.join(map(str, steps))}"


def _vetoes(steps: Iterable[TaskStep]) -> Iterator[str]:
    for step in steps:
        rejection = step.rejection
        answers: tuple[NodeAnswer, ...] = () if rejection is None else rejection.answers
        if step.answer is not None:
            answers = (step.answer, *answers)
        for answer in answers:
            for plugin, spared in answer.vetoes.items():
                yield (
                    f"step {step.position + 1}, {answer.node}: {plugin} spares {', '.join(spared)}"
                )
            for protection in answer.protections:
                yield f"  {protection.task}: {limit_in_words(protection.limit)}"
        if rejection is not None and not answers:
            for plugin, pods in rejection.vetoes.items():
                spared_pods = output.number(pods, "pod")
                yield f"step {step.position + 1}: {plugin} spares {spared_pods} on all nodes"
