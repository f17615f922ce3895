"""A batch session as people see it, recorded or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from policy.audit.session_documents import (
    Shown,
    document,
    jobs_of_pods,
    queues_in_words,
    shown_record,
    steps_of,
)
from policy.batch.explaining import spared_in_words, step_in_words, why_waiting
from policy.batch.recording import StatementRecord, StepOutcome, TaskStep
from policy.cli import output, session, view

if TYPE_CHECKING:
    from policy.batch.result import SessionResult
    from policy.scheduling.sessions import CompletedSession
    from policy.store import StoredSession


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
        jobs=jobs_of_pods(held.result),
    )


# --- what a session came to --------------------------------------------------------------------


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
    _shares("Queues", queues_in_words(told["queues"]))
    _shares("Jobs", told["jobs"])
    _lines("Still waiting", (line for row in told["waiting"] for line in row["why"]))
    _section("Not as it should be", told["notes"])


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
    steps = steps_of(shown, job)
    _section("Steps", [_step_row(step) for step in steps], "", "statement")
    _lines("Statements", _statements(result, {step.statement for step in steps}))
    _lines("Who was spared, and by whom", spared_in_words(steps))
    output.line()
    output.line(f"rule set   {row.rule_set} {row.rule_set_digest}")
    output.line(f"recorded   {session.instant(row.at_ms)} by {session.writer(row)}")
    output.line(f"state      revision {row.base_revision}, {row.snapshot_digest}")
    output.line(f"digest     {row.digest}")


def _step_row(step: TaskStep) -> dict[str, Any]:
    why = step_in_words(step) or (f"for {step.claimant}" if step.claimant else "")
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
