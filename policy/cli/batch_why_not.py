"""`policy batch explain --why-not`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policy.cli import output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import StoredSession


def printed(db: str, id: int, *, job: str | None, node: str, form: str) -> int:
    """Hold a recorded session again, and print what its attempts had against a node."""
    import difflib

    from policy.audit.inputs import Incomplete
    from policy.audit.session_replay import SessionReplayer, recorded_result
    from policy.batch.explaining import trial_in_words, why_waiting
    from policy.batch.trials import trials
    from policy.store import NotFound

    with session.open_store(db) as store:
        stored = store.read.session(id, kind="batch")
        if job is not None:
            require_job(stored, job)
        try:
            snapshot, rules = SessionReplayer(store).inputs_of(stored.row)
        except Incomplete as exc:
            output.say(f"session {id} cannot be held again: {exc}")
            return Exit.ERROR
    result = recorded_result(stored)
    waiting = {one: why for one, why in result.reasons.items() if job in (None, one)}
    try:
        found = trials(snapshot, rules, node=node)
    except KeyError:
        close = difflib.get_close_matches(node, snapshot.nodes.names, n=1)
        count = output.number(len(snapshot.nodes.names), "node")
        raise NotFound(
            f"session {id} has no node `{node}`",
            help=f"did you mean `{close[0]}`?" if close else f"it was held on {count}",
        ) from None
    if job is not None:
        found = tuple(trial for trial in found if trial.job == job)
    limited = [one for one in waiting if one not in {trial.job for trial in found}]
    if form == "table":
        for trial in found:
            for line in trial_in_words(trial):
                output.line(line)
        for one in limited:
            head, *limits = why_waiting(result, one)
            output.line(f"no action looked for a node for {head}")
            for line in limits:
                output.line(f"  {line}")
    else:
        output.document([trial.document() for trial in found], form)
        for one in limited:
            output.say(f"no action looked for a node for {why_waiting(result, one)[0]}")
    if not found and not limited:
        output.say("no pod waited for a node")
    return Exit.OK


def require_job(stored: StoredSession, job: str) -> None:
    """Raises NotFound for a job that the session does not name."""
    import difflib

    from policy.store import NotFound

    known: Sequence[str] = list(stored.document["queues"])
    if job in known:
        return
    close = difflib.get_close_matches(job, known, n=1)
    raise NotFound(
        f"session {stored.row.id} names no job `{job}`",
        help=f"did you mean `{close[0]}`?" if close else "without --job all of them are shown",
    )
