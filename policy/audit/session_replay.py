"""Replay of batch sessions: run again what was run, on the state and under the rules of then.

The same promises as for single decisions: where a part of what a session was made from is not
there, or is not what it was, that is said, and no session is run instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from policy.audit.differences import ONLY_DIGEST, Difference, first_of_documents
from policy.audit.past import Damaged, Past
from policy.audit.replay import Incomplete, MissingInput, Verdict
from policy.batch.cache import Note, Oddity
from policy.batch.figures import QueueFigures
from policy.batch.nodes import Crash, CrashKind
from policy.batch.recording import StatementRecord, Step
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
from policy.cluster import canonical
from policy.cluster.requests import CPU, MEMORY
from policy.cluster.snapshot import Snapshot
from policy.rules.problems import RulesError
from policy.store import NotFound, SessionRow, Store, StoredSession, StoreError
from policy.store.record.sessions import document_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedSession:
    """The result of one replay."""

    id: int
    cluster: str
    verdict: Verdict
    recorded_digest: str
    replayed_digest: str = ""  #: "" where no session could be run
    difference: Difference | None = None
    missing: tuple[MissingInput, ...] = ()
    detail: str = ""


class SessionReplayer:
    """Runs sessions of one store again; ascending order within a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pasts: dict[str, Past] = {}
        self._rules: dict[str, BatchRules | Incomplete] = {}

    def replay_all(self, sessions: Sequence[SessionRow]) -> Iterator[ReplayedSession]:
        """Replay sessions in this order."""
        for row in sessions:
            self._past(row.cluster).expect(row.base_revision)
        for row in sessions:
            yield self.replay(row)

    def replay(self, row: SessionRow) -> ReplayedSession:
        """Run a session again and compare it with the record."""
        try:
            return self._replay(row)
        except Incomplete as exc:
            return _replayed(row, Verdict.INCOMPLETE, missing=exc.missing, detail=exc.detail)

    def _replay(self, row: SessionRow) -> ReplayedSession:
        result = self.again(row)
        if result.digest == row.digest:
            return _replayed(row, Verdict.EQUAL, digest=result.digest)
        # Is the state the one of then? All the way back, which only a difference is worth.
        with _complete():
            self._past(row.cluster).check(row.base_revision)
        recorded = document_of(self._store.session(row.id))
        found = first_of_documents(recorded, result.document())
        if found is None:
            found = Difference(path=ONLY_DIGEST, recorded=row.digest, replayed=result.digest)
        return _replayed(row, Verdict.DIFFERENT, digest=result.digest, difference=found)

    def again(self, row: SessionRow) -> SessionResult:
        """The session run again. Raises Incomplete."""
        missing: list[MissingInput] = []
        details: list[str] = []
        rules: BatchRules | None = None
        snapshot: Snapshot | None = None
        try:
            rules = self._batch_rules(row.rule_set_digest)
        except Incomplete as exc:
            missing += exc.missing
            details.append(exc.detail)
        try:
            snapshot = self._snapshot(row)
        except Incomplete as exc:
            missing += exc.missing
            details.append(exc.detail)
        if rules is None or snapshot is None:
            raise Incomplete(missing, "; ".join(text for text in details if text))
        return run_session(snapshot, rules)

    def _snapshot(self, row: SessionRow) -> Snapshot:
        if row.engine_version != ENGINE_VERSION:
            detail = f"made by engine version {row.engine_version}, this is {ENGINE_VERSION}"
            raise Incomplete((MissingInput.ENGINE,), detail)
        with _complete():
            snapshot = self._past(row.cluster).at(row.base_revision, now_ms=row.now_ms)
        if snapshot.digest != row.snapshot_digest:
            raise Incomplete((MissingInput.SNAPSHOT,))
        return snapshot

    def _past(self, cluster: str) -> Past:
        if cluster not in self._pasts:
            self._pasts[cluster] = Past(self._store, cluster)
        return self._pasts[cluster]

    def _batch_rules(self, digest: str) -> BatchRules:
        found = self._rules.get(digest)
        if found is None:
            try:
                found = _read_rules(self._store.rule_set(digest), digest)
            except NotFound as exc:
                found = Incomplete((MissingInput.RULE_SET,), exc.message)
            self._rules[digest] = found
        if isinstance(found, Incomplete):
            raise found
        return found


@contextmanager
def _complete() -> Iterator[None]:
    """Reading a state of the past. Raises Incomplete where it is not there, or not as it was."""
    try:
        yield
    except NotFound as exc:
        raise Incomplete((MissingInput.STATE,), exc.message) from exc
    except (Damaged, StoreError) as exc:
        raise Incomplete((MissingInput.STATE_DIGEST,), str(exc)) from exc


def _read_rules(text: str, digest: str) -> BatchRules | Incomplete:
    if canonical.sha256(text.encode()) != digest:
        return Incomplete(
            (MissingInput.RULE_SET_DIGEST,), f"the stored text is not that of {digest}"
        )
    try:
        return BatchRules.from_canonical(text)
    except RulesError as exc:
        return Incomplete((MissingInput.RULE_SET_UNREADABLE,), str(exc).partition("\n")[0])


def _replayed(
    row: SessionRow,
    verdict: Verdict,
    *,
    digest: str = "",
    difference: Difference | None = None,
    missing: tuple[MissingInput, ...] = (),
    detail: str = "",
) -> ReplayedSession:
    return ReplayedSession(
        id=row.id,
        cluster=row.cluster,
        verdict=verdict,
        recorded_digest=row.digest,
        replayed_digest=digest,
        difference=difference,
        missing=missing,
        detail=detail,
    )


# --- a recorded session as the result it was ---------------------------------------------------


def recorded_result(stored: StoredSession) -> SessionResult:
    """What the session decided, out of its rows; `changes` are in the revision that it made."""
    document = document_of(stored)
    figures = document["open"]
    return SessionResult(
        rules=stored.row.rule_set,
        rules_digest=document["rules"],
        snapshot_digest=document["snapshot"],
        binds=document["binds"],
        evicts=tuple(document["evicts"]),
        pipelined=document["pipelined"],
        allocated=document["allocated"],
        pod_groups=msgspec.convert(document["podGroups"], dict[str, GroupStatus]),
        drf=_floats(document["drf"]),
        queue_share=_floats(document["queueShare"]),
        open=OpenFigures(
            total=None if figures["total"] is None else _resource(figures["total"]),
            drf=_floats(figures["drf"]),
            queues={name: _queue(queue) for name, queue in figures["queues"].items()},
        ),
        steps=tuple(
            msgspec.convert({**_ordered(step), "position": position}, Step)
            for position, step in enumerate(document["steps"])
        ),
        statements=msgspec.convert(document["statements"], tuple[StatementRecord, ...]),
        reasons={
            job: msgspec.convert({**_ordered(reason), "job": job}, JobReason)
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


def _ordered(said: Mapping[str, Any]) -> dict[str, Any]:
    """With the reasons of a rejection as they were, the most frequent first."""
    rejection = said["rejection"]
    if rejection is None:
        return dict(said)
    nodes = sorted(rejection["nodes"].items(), key=lambda item: (-item[1], item[0]))
    return {**said, "rejection": {**rejection, "nodes": dict(nodes)}}


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
    )
