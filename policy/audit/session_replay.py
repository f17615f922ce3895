"""Replay of batch sessions: run again what was run, on the state and under the rules of then.

The same promises as for single decisions: where a part of what a session was made from is not
there, or is not what it was, that is said, and no session is run instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from policy.audit.differences import ONLY_DIGEST, Difference, first_of_documents
from policy.audit.inputs import Incomplete, Inputs, MissingInput, Replayed, ReplayVerdict
from policy.batch.figures import LIMITS, QueueFigures
from policy.batch.nodes import Crash, CrashKind
from policy.batch.notes import Note, Oddity
from policy.batch.recording import StatementRecord, TaskStep
from policy.batch.resources import Resource
from policy.batch.result import (
    ENGINE_VERSION,
    GroupStatus,
    JobReason,
    OpenFigures,
    SessionResult,
)
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.snapshot import Snapshot
from policy.store import SessionRow, SessionStep, Store, StoredSession
from policy.store.record.sessions import document_of, reading, step_document
from policy.typed import prepared


class SessionReplayer:
    """Runs sessions of one store again; ascending order within a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._inputs = Inputs(store, BatchRules.from_canonical, engine=ENGINE_VERSION)

    def replay_all(self, sessions: Sequence[SessionRow]) -> Iterator[Replayed[SessionRow]]:
        """Replay sessions in this order."""
        self._inputs.expect(sessions)
        for row in sessions:
            yield self.replay(row)

    def replay(self, row: SessionRow) -> Replayed[SessionRow]:
        """Run a session again and compare it with the record."""
        try:
            return self._replay(row)
        except Incomplete as exc:
            return Replayed(
                row=row, verdict=ReplayVerdict.INCOMPLETE, missing=exc.missing, detail=exc.detail
            )

    def _replay(self, row: SessionRow) -> Replayed[SessionRow]:
        result = self.again(row)
        if result.digest == row.digest:
            return Replayed(row=row, verdict=ReplayVerdict.EQUAL, digest=result.digest)
        self._inputs.check(row)
        recorded = document_of(self._store.read.session(row.id))
        found = first_of_documents(recorded, result.document())
        if found is None:
            found = Difference(path=ONLY_DIGEST, recorded=row.digest, replayed=result.digest)
        return Replayed(
            row=row, verdict=ReplayVerdict.DIFFERENT, digest=result.digest, difference=found
        )

    def again(self, row: SessionRow) -> SessionResult:
        """The session run again. Raises Incomplete."""
        snapshot, rules = self.inputs_of(row)
        return run_session(snapshot, rules)

    def inputs_of(self, row: SessionRow) -> tuple[Snapshot, BatchRules]:
        """What the session was held on, and under which rules. Raises Incomplete."""
        self._inputs.expect([row])
        return self._inputs.situation(row, lambda: self._snapshot(row))

    def _snapshot(self, row: SessionRow) -> Snapshot:
        snapshot = self._inputs.state(row)
        if snapshot.digest != row.snapshot_digest:
            raise Incomplete((MissingInput.SNAPSHOT,))
        return snapshot


# --- a recorded session as the result it was ---------------------------------------------------


def recorded_result(stored: StoredSession) -> SessionResult:
    """What the session decided, out of its rows; `changes` are in the revision that it made.

    Raises DamagedRows.
    """
    with reading(stored.row.id):
        return _result(stored, stored.document["session"])


def _result(stored: StoredSession, document: Mapping[str, Any]) -> SessionResult:
    figures = document["open"]
    return SessionResult(
        rules=stored.row.rule_set,
        rules_digest=document["rules"],
        snapshot_digest=document["snapshot"],
        binds=document["binds"],
        evicts=tuple(document["evicts"]),
        pipelined=document["pipelined"],
        allocated=document["allocated"],
        pod_groups=msgspec.convert(document["podGroups"], prepared(dict[str, GroupStatus])),
        drf=_floats(document["drf"]),
        queue_share=_floats(document["queueShare"]),
        open=OpenFigures(
            total=None if figures["total"] is None else _resource(figures["total"]),
            drf=_floats(figures["drf"]),
            queues={name: _queue(queue) for name, queue in figures["queues"].items()},
        ),
        steps=tuple(recorded_step(at, step) for at, step in enumerate(stored.steps)),
        statements=msgspec.convert(document["statements"], prepared(tuple[StatementRecord, ...])),
        reasons={
            job: msgspec.convert({**_ordered(reason), "job": job}, prepared(JobReason))
            for job, reason in document["reasons"].items()
        },
        notes=tuple(
            Note(oddity=Oddity(oddity), subject=subject, detail=detail)
            for oddity, subject, detail in document["notes"]
        ),
        crashes=tuple(
            Crash(kind=CrashKind(kind), subject=subject, of=of, node=node)
            for kind, subject, of, node in document["crashes"]
        ),
        changes=(),
    )


def recorded_step(position: int, step: SessionStep) -> TaskStep:
    """A step as it was, out of its row."""
    said = _ordered(step_document(step))
    return msgspec.convert({**said, "position": position}, prepared(TaskStep))


def _ordered(said: Mapping[str, Any]) -> dict[str, Any]:
    """With the reasons of a rejection as they were, the most frequent first."""
    found = dict(said)
    if said.get("answer") is not None:
        found["answer"] = _answer(said["answer"])
    rejection = said["rejection"]
    if rejection is not None:
        nodes = sorted(rejection["nodes"].items(), key=lambda item: (-item[1], item[0]))
        found["rejection"] = {
            **rejection,
            "nodes": dict(nodes),
            "answers": [_answer(answer) for answer in rejection["answers"]],
            "limit": _limit(rejection.get("limit")),
        }
    return found


def _answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    protections = [
        {**protection, "limit": _limit(protection["limit"])}
        for protection in answer.get("protections", ())
    ]
    return {**answer, "protections": protections}


def _limit(limit: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if limit is None:
        return None
    return {**limit, **{name: _floats(limit[name]) for name in ("asked", "used", "allowed")}}


def _floats(texts: Mapping[str, str]) -> dict[str, float]:
    return {name: float(text) for name, text in texts.items()}


def _resource(amounts: Mapping[str, str]) -> Resource:
    found = _floats(amounts)
    cpu, memory = found.pop(CPU), found.pop(MEMORY)
    return Resource(cpu, memory, found or None)


def _queue(figures: Mapping[str, Any]) -> QueueFigures:
    return QueueFigures(
        weight=figures["weight"],
        share=float(figures["share"]),
        deserved=_resource(figures["deserved"]),
        allocated=_resource(figures["allocated"]),
        request=_resource(figures["request"]),
        limits={name: _resource(figures[name]) for name in LIMITS if name in figures},
    )
