"""Batch sessions as the API and the pages show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from policy.audit import session_documents
from policy.audit.sentences import contradicted
from policy.audit.session_replay import recorded_step
from policy.batch.explaining import spared_in_words, step_in_words
from policy.batch.rules import BatchRules
from policy.rules.problems import RulesError
from policy.server import views
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store import NotFound, SessionRow
from policy.store.record.sessions import KIND, no_session, reading

STEPS: Final = 200
"""Steps of a session that a page shows together."""
JOBS: Final = 50
"""Jobs that still wait of which a page says why."""

_Found = TypeVar("_Found")


def sessions(
    service: PolicyService,
    principal: Principal,
    wanted: Mapping[str, Any],
    *,
    limit: int,
) -> tuple[list[SessionRow], list[dict[str, Any]]]:
    """Rows and lines of recorded batch sessions, newest first; see `cycles.cycles`."""
    rows = views.sessions(service, principal, wanted, kind=KIND, limit=limit)
    moved: dict[int, dict[str, int]] = {}
    if principal.namespaces is not None:
        ids = [row.id for row in rows]
        moved = service.store.read.effect_counts_in(ids, namespaces=principal.namespaces)
    return rows, [scope.session_line(principal, row, moved.get(row.id, {})) for row in rows]


def session(service: PolicyService, principal: Principal, wanted: str) -> dict[str, Any]:
    """One session whole, as `policy batch explain` has it.

    Raises NotFound, also where the viewer may not know of it.
    """
    if principal.limited:
        return own_session(service, principal, wanted)
    stored = _numbered(principal, wanted, partial(service.store.read.session, kind=KIND))
    return session_documents.explanation(stored)


def own_session(service: PolicyService, principal: Principal, wanted: str) -> dict[str, Any]:
    """What a limited viewer sees of a session. Raises NotFound."""
    read, namespaces = service.store.read, principal.namespaces
    row = _numbered(principal, wanted, partial(read.session_row, kind=KIND, namespaces=namespaces))
    (told,) = own_sessions(service, principal, [row])
    return told


def own_sessions(
    service: PolicyService, principal: Principal, rows: Sequence[SessionRow]
) -> list[dict[str, Any]]:
    """The same of several, in their order."""
    assert principal.namespaces is not None
    ids = [row.id for row in rows]
    steps = service.store.read.effects_in(ids, namespaces=principal.namespaces)
    outcomes = service.store.read.outcomes_of_sessions(ids)
    return [
        scope.batch_session(principal, row, steps.get(row.id, {}), outcomes.get(row.id, ()))
        for row in rows
    ]


def _numbered(principal: Principal, wanted: str, read: Callable[[int], _Found]) -> _Found:
    return views.numbered(principal, Numbered.SESSION, wanted, read, partial(no_session, kind=KIND))


def page_of(
    service: PolicyService, principal: Principal, wanted: str, *, effective: bool, after: int | None
) -> dict[str, Any]:
    """What a session came to, and some of its steps: of long ones the rest is not read.

    effective: only steps that bound or evicted a pod; after: only those behind this position, as
    the page before names it, None where that was the last. Raises NotFound, DamagedRows.
    """
    read = service.store.read
    stored = _numbered(principal, wanted, partial(read.session, kind=KIND, steps=False))
    number = stored.row.id
    moves = read.session_steps(number, operations=session_documents.MOVES, details=False)
    with reading(number):
        some = read.session_steps(number, effective=effective, after=after, limit=STEPS + 1)
        steps = [recorded_step(at, step) for at, step in islice(some.items(), STEPS)]
    count = read.step_count(number)
    return {
        "told": session_documents.overview(stored, moves, jobs=JOBS),
        "contradicted": [contradicted(one) for one in stored.outcomes],
        "vain": {one.position for one in stored.outcomes},
        "steps": [(step, step_in_words(step)) for step in steps],
        "spared": list(spared_in_words(steps)),
        "count": count,
        "scheduler": "" if count else _scheduler(service, stored.row.rule_set_digest),
        "after": steps[-1].position if len(some) > STEPS else None,
    }


def _scheduler(service: PolicyService, digest: str) -> str:
    """`schedulerName` of the pods that take part; "" where the rules are gone or cannot be read."""
    try:
        return BatchRules.from_canonical(service.store.read.rule_set(digest)).naming.scheduler
    except (NotFound, RulesError):
        return ""
