"""Batch sessions: what a session decided, its steps, its effects and its ledger entry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, insert, or_, select

from policy.cluster import canonical
from policy.cluster.digest import Change
from policy.store import identity, rows
from policy.store.errors import DamagedRows, NotFound
from policy.store.kept import in_question
from policy.store.ledger import entries
from policy.store.model.sessions import (
    RecordedSession,
    SessionRecord,
    SessionRow,
    SessionStep,
    StoredSession,
)
from policy.store.model.state import Cause
from policy.store.outcomes import outcomes_of_sessions
from policy.store.record import environments, rule_sets
from policy.store.record.basis import Basis
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state.loading import cluster_id
from policy.store.state.revisions import puts_and_deletes, write_revision
from policy.store.state.versions import lock_head
from policy.store.tables import CLUSTERS, RULE_SETS, SESSION_STEPS, SESSIONS
from policy.store.tables.audit import STEP_BOUND, STEP_EVICTED
from policy.store.totals import Owner, Totals

if TYPE_CHECKING:
    from policy.batch.recording import TaskStep
    from policy.batch.result import SessionResult

KIND: Final = "batch"
"""`kind` of the rows of `sessions` that are batch sessions."""

_STEP_FIELDS: Final = tuple(f.name for f in fields(SessionStep) if f.name != "detail")
_ROW_FIELDS: Final = tuple(f.name for f in fields(SessionRow))

_IN_COLUMNS: Final[Mapping[str, str]] = {
    "action": "action",
    "operation": "operation",
    "job": "job",
    "task": "task",
    "node": "node",
    "claimant": "for_task",
}
"""What a step says -> the column that holds it; the rest is in `detail`."""

TOOK_EFFECT: Final = ""
"""`reason` of a step that was not taken back, refused or in vain."""


def as_record(result: SessionResult, queues: Mapping[str, str], *, now_ms: int) -> SessionRecord:
    """A session as it is recorded: the steps as rows, all the rest as one document.

    queues: job -> queue.
    """
    document = result.document()
    steps = [
        SessionStep(
            **{column: said[name] for name, column in _IN_COLUMNS.items()},
            queue=queues.get(step.job, ""),
            reason=_reason(step),
            detail={name: value for name, value in said.items() if name not in _IN_COLUMNS},
        )
        for step, said in zip(result.steps, document.pop("steps"), strict=True)
    ]
    return SessionRecord(
        digest=result.digest,
        now_ms=now_ms,
        snapshot_digest=result.snapshot_digest,
        seed=0,  # no part of a session is left to chance
        engine_version=document["engine"],
        bound_count=len(result.binds),
        evicted_count=len(result.evicts),
        steps=steps,
        document={"session": document, "queues": dict(queues)},
    )


def _reason(step: TaskStep) -> str:
    """Why the step had no effect: what most nodes are short of, a refusal, or what became of it."""
    if step.rejection is not None and step.rejection.nodes:
        return next(iter(step.rejection.nodes))
    if step.refusal is not None:
        return step.refusal.value
    return TOOK_EFFECT if step.outcome == "done" else step.outcome.value


def document_of(stored: StoredSession) -> dict[str, Any]:
    """The document of a recorded session, whole as `SessionResult.document` made it."""
    steps = [step_document(step) for step in stored.steps]
    return {**stored.document["session"], "steps": steps}


def step_document(step: SessionStep) -> dict[str, Any]:
    """What the document of its session says of a step."""
    columns = {name: getattr(step, column) for name, column in _IN_COLUMNS.items()}
    return {**step.detail, **columns}


def record(
    connection: Connection,
    cluster: str,
    session: SessionRecord,
    changes: Sequence[Change],
    *,
    expected_revision: int,
    rules: AnyRuleSet,
    environment: str = "",
    actor: str,
    at_ms: int,
) -> RecordedSession:
    """Keep a batch session together with the state changes that it causes.

    Raises StaleRevision where the cluster is no longer at `expected_revision`,
    SnapshotMismatch for a session that was run on another state than that revision's,
    RuleSetChanged where other rules are active in the environment by now.
    """
    head = lock_head(connection, cluster)
    basis = Basis.newest(head, expected_revision=expected_revision)
    if environment:
        environments.require_active(connection, environment, digest=rules.digest)
    used = rule_sets.ensure(connection, RuleSetText.of(rules), at_ms=at_ms)
    revision = head.number + 1 if changes else None
    session_id, lines = write_rows(
        connection,
        session,
        basis=basis,
        of_cluster=head.cluster_id,
        rules_row=used,
        environment=environment,
        actor=actor,
        at_ms=at_ms,
        revision=revision,
    )
    number, state = head.number, head.digest
    if changes:
        puts, deletes = puts_and_deletes(changes)
        written = write_revision(
            connection,
            head,
            puts,
            deletes,
            at_ms=session.now_ms,
            source=f"session {session_id}",
            cause=Cause.SESSION,
        )
        number, state = written.number, written.digest
        lines += written.lines
    entry = entries.append(
        connection,
        head,
        entries.EntryKind.SESSION,
        lines,
        subject_digest=session.digest,
        at_ms=at_ms,
        actor=actor,
        environment=environment,
        revision=revision,
        session_id=session_id,
    )
    return RecordedSession(
        session_id=session_id, revision=number, state_digest=state, ledger_hash=entry
    )


def write_rows(
    connection: Connection,
    session: SessionRecord,
    *,
    basis: Basis,
    of_cluster: int,
    rules_row: Mapping[str, Any],
    environment: str,
    actor: str,
    at_ms: int,
    revision: int | None = None,
    hypothetical: bool = False,
) -> tuple[int, list[bytes]]:
    """Write what a session decided on the basis; its number, and the lines for its ledger entry.

    of_cluster: number of the cluster; rules_row: of its rule set. Raises SnapshotMismatch.
    """
    subject = f"the cycle of pod group `{session.subject}`" if session.subject else "the session"
    basis.require(
        session.snapshot_digest, now_ms=session.now_ms, history=session.history, subject=subject
    )
    row: dict[str, Any] = {
        "cluster_id": of_cluster,
        "kind": session.kind,
        "subject": session.subject,
        "outcome": session.outcome,
        "digest": session.digest,
        "at_ms": at_ms,
        "now_ms": session.now_ms,
        "actor": actor,
        "environment": environment,
        "rule_set_id": rules_row["id"],
        "snapshot_digest": session.snapshot_digest,
        "base_revision": basis.revision,
        "revision": revision,
        "seed": session.seed,
        "bound_count": session.bound_count,
        "evicted_count": session.evicted_count,
        "hypothetical": hypothetical,
        "engine_version": session.engine_version,
        "document": canonical.text(session.document),
        **identity.columns(connection),
    }
    inserted = connection.execute(insert(SESSIONS).returning(SESSIONS.c.id), row)
    row["id"] = session_id = inserted.scalar_one()
    lines = [rows.line(SESSIONS, row), rows.line(RULE_SETS, rules_row)]
    steps = [
        {
            "session_id": session_id,
            "position": position,
            **{name: getattr(step, name) for name in _STEP_FIELDS},
            "detail": canonical.text(step.detail),
        }
        for position, step in enumerate(session.steps)
    ]
    if steps:
        connection.execute(insert(SESSION_STEPS), steps)
        lines += [rows.line(SESSION_STEPS, step) for step in steps]
    totals = Totals()
    totals.take(connection, Owner.SESSION, [session_id])
    totals.write(connection)
    return session_id, lines


_NAMES: Final[Mapping[str | None, str]] = {
    "batch": "batch session {}",
    "group": "cycle {} of a pod group",
}


def sessions(
    connection: Connection,
    cluster: str | None = None,
    *,
    kind: str | None = None,
    ids: Collection[int] | None = None,
    hypothetical: bool | None = False,
    simulated: bool = True,
    since_ms: int | None = None,
    until_ms: int | None = None,
    group: str | None = None,
    outcome: str | None = None,
    namespaces: Collection[str] | None = None,
    limit: int | None = None,
    before_id: int | None = None,
    after_id: int | None = None,
) -> list[SessionRow]:
    """Batch sessions and cycles of pod groups, or those of one kind, newest first. Raises NotFound.

    With `after_id` they walk forward from there. ids: only of these numbers. hypothetical: those
    that were only supposed; None for all. simulated: False for none of kept simulations, unless the
    cluster is named. since_ms, until_ms: by `now_ms`, from the one on and before the other. group:
    cycles of this one, as namespace/name. namespaces: only cycles whose group, or any of whose
    victims, is of one of them, and batch sessions that bound or evicted a pod of one; of a group of
    another namespace none, for its name is not to be found by asking for it.
    """
    query = (
        select(
            # Not the document, which may be larger than all the rest.
            *(column for column in SESSIONS.c if column.name in _ROW_FIELDS),
            CLUSTERS.c.name.label("cluster"),
            func.coalesce(RULE_SETS.c.name, "").label("rule_set"),
            func.coalesce(RULE_SETS.c.digest, "").label("rule_set_digest"),
        )
        .join(CLUSTERS, CLUSTERS.c.id == SESSIONS.c.cluster_id)
        .outerjoin(RULE_SETS, RULE_SETS.c.id == SESSIONS.c.rule_set_id)
    )
    if cluster is not None:
        query = query.where(SESSIONS.c.cluster_id == cluster_id(connection, cluster))
    if not simulated:
        query = query.where(*in_question(connection, cluster, SESSIONS.c.cluster_id))
    if kind is not None:
        query = query.where(SESSIONS.c.kind == kind)
    if ids is not None:
        query = query.where(SESSIONS.c.id.in_(ids))
    if hypothetical is not None:
        query = query.where(SESSIONS.c.hypothetical == hypothetical)
    if since_ms is not None:
        query = query.where(SESSIONS.c.now_ms >= since_ms)
    if until_ms is not None:
        query = query.where(SESSIONS.c.now_ms < until_ms)
    if group is not None:
        query = query.where(SESSIONS.c.subject == group)
    if outcome is not None:
        query = query.where(SESSIONS.c.outcome == outcome)
    if namespaces is not None:
        query = query.where(_in_namespaces(namespaces))
        if group is not None:
            query = query.where(_of(namespaces, SESSIONS.c.subject))
    if before_id is not None:
        query = query.where(SESSIONS.c.id < before_id)
    if after_id is not None:
        query = query.where(SESSIONS.c.id > after_id).order_by(SESSIONS.c.id)
    else:
        query = query.order_by(SESSIONS.c.id.desc())
    if limit is not None:
        query = query.limit(limit)
    found = connection.execute(query)
    return [SessionRow(**{name: row._mapping[name] for name in _ROW_FIELDS}) for row in found]


def _in_namespaces(namespaces: Collection[str]) -> ColumnElement[bool]:
    s, t = SESSIONS.c, SESSION_STEPS.c
    steps = select(t.position).where(t.session_id == s.id, _of(namespaces, t.task))
    group = or_(_of(namespaces, s.subject), steps.where(t.operation == "evict").exists())
    # Steps that were tried and taken back are left out: they changed no pod.
    batch = or_(
        steps.where(STEP_EVICTED).exists(),
        and_(s.bound_count > 0, steps.where(STEP_BOUND).exists()),
    )
    return or_(and_(s.kind != KIND, group), and_(s.kind == KIND, batch))


def _of(namespaces: Collection[str], key: ColumnElement[str]) -> ColumnElement[bool]:
    """Is namespace/name of one of the namespaces?"""
    return or_(false(), *(func.substr(key, 1, len(name) + 1) == f"{name}/" for name in namespaces))


def evicted_in(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """The pods that sessions evicted, by number; sessions without any are left out."""
    t = SESSION_STEPS.c
    query = select(t.session_id, t.task).where(t.session_id.in_(ids), STEP_EVICTED)
    found: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(query.order_by(t.session_id, t.position)):
        found[row.session_id].append(row.task)
    return {number: tuple(pods) for number, pods in found.items()}


def effects_in(
    connection: Connection, ids: Sequence[int], *, namespaces: Collection[str]
) -> dict[int, dict[int, SessionStep]]:
    """The steps of sessions that bound or evicted pods of the namespaces, without their details.

    By number of the session, by position. Sessions without any are left out.
    """
    t = SESSION_STEPS.c
    query = (
        select(t.session_id, t.position, *(t[name] for name in _STEP_FIELDS))
        .where(t.session_id.in_(ids), or_(STEP_EVICTED, STEP_BOUND), _of(namespaces, t.task))
        .order_by(t.session_id, t.position)
    )
    found: dict[int, dict[int, SessionStep]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.session_id][row.position] = _step(row, details=False)
    return dict(found)


def effect_counts_in(
    connection: Connection, ids: Sequence[int], *, namespaces: Collection[str]
) -> dict[int, dict[str, int]]:
    """How many pods of the namespaces each session bound and evicted: by number, by operation.

    Sessions and operations without any are left out.
    """
    t = SESSION_STEPS.c
    query = (
        select(t.session_id, t.operation, func.count().label("pods"))
        .where(t.session_id.in_(ids), or_(STEP_EVICTED, STEP_BOUND), _of(namespaces, t.task))
        .group_by(t.session_id, t.operation)
    )
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for row in connection.execute(query):
        found[row.session_id][row.operation] = row.pods
    return dict(found)


def session_row(
    connection: Connection,
    session_id: int,
    *,
    kind: str | None = None,
    namespaces: Collection[str] | None = None,
) -> SessionRow:
    """A session as lists show it; `kind` and `namespaces` as there. Raises NotFound."""
    found = sessions(connection, ids=[session_id], hypothetical=None, namespaces=namespaces)
    if not found or kind not in (None, found[0].kind):
        raise no_session(session_id, kind=kind, other=found[0].kind if found else "")
    return found[0]


def no_session(session_id: int, *, kind: str | None, other: str = "") -> NotFound:
    """What is said where there is no such session. other: the kind of the one with that number."""
    named = _NAMES.get(kind, "session {}").format(session_id)
    hint = f"there is {_NAMES[other].format(session_id)}" if other else ""
    return NotFound(f"there is no {named}", help=hint)


def session(
    connection: Connection,
    session_id: int,
    *,
    kind: str | None = None,
    namespaces: Collection[str] | None = None,
    steps: bool = True,
) -> StoredSession:
    """A session, with its steps where they are wanted; the others as `session_row` has them.

    Raises NotFound, DamagedRows.
    """
    row = session_row(connection, session_id, kind=kind, namespaces=namespaces)
    document = connection.execute(
        select(SESSIONS.c.document).where(SESSIONS.c.id == session_id)
    ).scalar_one()
    with reading(session_id):
        whole = StoredSession(
            row=row,
            steps=tuple(session_steps(connection, session_id).values()) if steps else (),
            document=rows.from_json(document),
        )
    outcomes = outcomes_of_sessions(connection, [session_id])
    return replace(whole, outcomes=outcomes.get(session_id, ()))


@contextmanager
def reading(session_id: int) -> Iterator[None]:
    """For the block that makes of a session's rows what they stand for.

    Raises DamagedRows for rows that no session has.
    """
    try:
        yield
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError) as exc:
        raise DamagedRows(
            f"the rows of session {session_id} are not those of a session",
            help="`policy audit verify` names what was changed",
        ) from exc


def session_steps(
    connection: Connection,
    session_id: int,
    *,
    operations: Collection[str] | None = None,
    effective: bool = False,
    details: bool = True,
    after: int | None = None,
    limit: int | None = None,
) -> dict[int, SessionStep]:
    """Steps of a session by position, in order.

    operations: only these. effective: only pods that were bound or evicted. details: without them,
    which are most of a step, it is faster. after: only those behind this position.
    """
    t = SESSION_STEPS.c
    columns = [t.position, *(t[name] for name in _STEP_FIELDS), *((t.detail,) if details else ())]
    query = select(*columns).where(t.session_id == session_id).order_by(t.position)
    if operations is not None:
        query = query.where(t.operation.in_(operations))
    if effective:
        query = query.where(or_(STEP_EVICTED, STEP_BOUND))
    if after is not None:
        query = query.where(t.position > after)
    if limit is not None:
        query = query.limit(limit)
    return {row.position: _step(row, details=details) for row in connection.execute(query)}


def _step(row: Row[Any], *, details: bool) -> SessionStep:
    return SessionStep(
        **{name: row._mapping[name] for name in _STEP_FIELDS},
        detail=rows.from_json(row.detail) if details else {},
    )


def step_count(connection: Connection, session_id: int) -> int:
    """How many steps a session has."""
    t = SESSION_STEPS.c
    query = select(func.count()).select_from(SESSION_STEPS).where(t.session_id == session_id)
    return connection.execute(query).scalar_one()
