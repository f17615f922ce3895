"""The store as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject
from policy.decision.model import Decision
from policy.decision.record import History, Keep
from policy.store import migrate
from policy.store.connection import Database, parse_url
from policy.store.errors import shown
from policy.store.model import (
    ActivationRow,
    Cause,
    ChangedState,
    ChangesSince,
    ClusterRow,
    DecisionRow,
    EnvironmentRow,
    ImportResult,
    LoadedState,
    NominationRow,
    PruneScope,
    QueueInfo,
    Recorded,
    RecordedSession,
    RevisionRow,
    SessionRecord,
    SessionRow,
    StoredDecision,
    StoredSession,
)
from policy.store.read import queries, sql
from policy.store.read.queries import DecisionFilter
from policy.store.read.sql import SqlResult
from policy.store.record import environments
from policy.store.record.rule_sets import RuleSetText
from policy.store.state import loading

# What a list of decisions should not wait for is imported where it is used: writing, the ledger,
# figures of the past, reading in bulk.
if TYPE_CHECKING:
    from policy.store.ledger.entries import LedgerHead
    from policy.store.ledger.findings import Pruning, VerifyResult
    from policy.store.ledger.pruning import PrunePlan
    from policy.store.ledger.verify import Progress as VerifyProgress
    from policy.store.ledger.witnesses import KeptHead
    from policy.store.read.audit_queries import AuditQueries
    from policy.store.read.history import Moment
    from policy.store.read.reports import ReportQueries
    from policy.store.record.environments import ActiveRuleSet
    from policy.store.record.importing import Progress

DEFAULT_CANDIDATES_KEPT: Final = 10
DEFAULT_FINDINGS: Final = 100
"""Findings of a verification that are given in full, unless more are wanted."""


class Store:
    """One database: cluster states, decisions, ledger. Safe to use from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str, *, read_only: bool = False, create: bool = True) -> Self:
        """Open a database by path or URL; a new file or empty schema is filled on first use.

        create: False to insist on an existing database. Raises StoreError for a database that
        is unreachable, of another kind, or has another schema than this version works with.
        """
        parsed = parse_url(url)
        database = Database(parsed, read_only=read_only, create=create)
        try:
            with database.reading() as connection:
                schema = migrate.schema_of(connection, parsed)
            if schema.revision is None and create and not read_only:
                migrate.upgrade(url)
            else:
                migrate.require_newest(schema, parsed)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def location(self) -> str:
        """The database as it may be printed: without password."""
        return shown(self._database.url)

    def close(self) -> None:
        """Release every connection and file."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- cluster state ---------------------------------------------------------------------------

    def import_objects(
        self,
        cluster: str,
        objects: Iterable[ClusterObject],
        *,
        at_ms: int,
        source: str,
        actor: str = "",
        prune: PruneScope | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:
        """Make the stored objects equal to the given ones: all of it or nothing of it.

        Objects that the import lacks stay, unless `prune` covers them. Raises ImportConflict
        where it holds two different objects under one key, StoreError for values that are none.
        """
        from policy.store.record import importing

        incoming = importing.read(objects, progress)
        with self._database.writing() as connection:
            return importing.write(
                connection,
                cluster,
                incoming,
                at_ms=at_ms,
                source=source,
                actor=actor,
                scope=prune,
            )

    def load_state(self, cluster: str, *, at: int | None = None) -> LoadedState:
        """The cluster at a revision, the newest by default. Raises NotFound."""
        with self._database.reading() as connection:
            return loading.load(connection, cluster, at)

    def changes_since(
        self, cluster: str, revision: int, *, until: int | None = None
    ) -> ChangesSince:
        """Net changes from a revision to a later one, the newest by default. Raises NotFound."""
        with self._database.reading() as connection:
            return loading.changes_between(connection, cluster, revision, until)

    def change(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        at_ms: int,
        source: str,
        cause: Cause,
        actor: str = "",
        expected_revision: int | None = None,
    ) -> ChangedState:
        """Write changes that no decision made (live events, simulation steps) as one revision.

        Raises StaleRevision where `expected_revision` is given and is no longer the newest.
        """
        from policy.store.record import changing

        with self._database.writing() as connection:
            return changing.write(
                connection,
                cluster,
                changes,
                at_ms=at_ms,
                source=source,
                cause=cause,
                actor=actor,
                expected_revision=expected_revision,
            )

    def head_revision(self, cluster: str) -> int:
        """Number of the newest revision. Raises NotFound."""
        with self._database.reading() as connection:
            return loading.require_head(connection, cluster).number

    def revision_at(self, cluster: str, time_ms: int) -> int:
        """The newest revision that was there at an instant; 0 before the first."""
        with self._database.reading() as connection:
            return loading.revision_at(connection, cluster, time_ms)

    def revisions(
        self, cluster: str, *, limit: int | None = None, before: int | None = None
    ) -> list[RevisionRow]:
        """The cluster's history, newest first."""
        with self._database.reading() as connection:
            return loading.revisions(connection, cluster, limit=limit, before=before)

    def clusters(self) -> list[ClusterRow]:
        """All clusters by name."""
        with self._database.reading() as connection:
            return loading.clusters(connection)

    # --- decisions -------------------------------------------------------------------------------

    def record(
        self,
        cluster: str,
        decision: Decision,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rule_set_canonical: str,
        rule_set_name: str,
        environment: str = "",
        actor: str,
        at_ms: int,
        queue: QueueInfo | None = None,
        candidates_kept: Keep = DEFAULT_CANDIDATES_KEPT,
        cause: Cause = Cause.DECISION,
        hypothetical: bool = False,
        history: History | None = None,
    ) -> Recorded:
        """Keep a decision together with the state changes that it causes.

        history: the figures of the snapshot that it was made on. Raises StaleRevision where the
        cluster is no longer at `expected_revision`, RuleSetChanged where another rule set is
        active in the environment by now: decide again.
        """
        from policy.store.record import decisions
        from policy.store.record.decisions import Envelope

        rule_set = RuleSetText(
            digest=decision.rule_set_digest, name=rule_set_name, canonical=rule_set_canonical
        )
        with self._database.writing() as connection:
            if environment and not hypothetical:
                environments.require_active(
                    connection, environment, cluster=cluster, digest=decision.rule_set_digest
                )
            return decisions.record(
                connection,
                cluster,
                decision,
                changes,
                expected_revision=expected_revision,
                rule_set=rule_set,
                envelope=Envelope(actor=actor, at_ms=at_ms, environment=environment),
                queue=queue or QueueInfo(),
                keep=candidates_kept,
                cause=cause,
                hypothetical=hypothetical,
                history=history,
            )

    def history(
        self,
        cluster: str,
        needs: Collection[tuple[str, int | None]],
        *,
        now_ms: int,
        before: Moment | None = None,
    ) -> dict[str, dict[str, int]]:
        """Figures of the past for (function, window in seconds) pairs, as snapshots carry them.

        before: only what had been recorded then.
        """
        from policy.store.read.history import figures

        with self._database.reading() as connection:
            return figures(connection, cluster, needs, now_ms=now_ms, before=before)

    def decisions(
        self,
        cluster: str | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        namespace: str | None = None,
        node: str | None = None,
        rule_set: str | None = None,
        outcome: str | None = None,
        preemptor: str | None = None,
        hypothetical: bool | None = False,
        limit: int | None = None,
        before_id: int | None = None,
        after_id: int | None = None,
    ) -> list[DecisionRow]:
        """Decisions, newest first (with `after_id`: walking forward from there)."""
        wanted = DecisionFilter(
            cluster=cluster,
            since_ms=since_ms,
            until_ms=until_ms,
            namespace=namespace,
            node=node,
            rule_set=rule_set,
            outcome=outcome,
            preemptor=preemptor,
            hypothetical=hypothetical,
        )
        with self._database.reading() as connection:
            return queries.decisions(
                connection, wanted, limit=limit, before_id=before_id, after_id=after_id
            )

    def decision(self, id_or_digest: int | str) -> StoredDecision:
        """A decision by number or by the beginning of its digest. Raises NotFound."""
        with self._database.reading() as connection:
            return queries.decision(connection, id_or_digest)

    def rule_set(self, digest: str) -> str:
        """Canonical text of a rule set by (the beginning of) its digest. Raises NotFound."""
        with self._database.reading() as connection:
            return queries.rule_set_text(connection, digest)[2]

    def record_session(
        self,
        cluster: str,
        session: SessionRecord,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rule_set_canonical: str,
        rule_set_name: str,
        rule_set_digest: str,
        environment: str = "",
        actor: str,
        at_ms: int,
    ) -> RecordedSession:
        """Keep a batch session together with the state changes that it causes.

        Raises StaleRevision where the cluster is no longer at `expected_revision`.
        """
        from policy.store.record import sessions
        from policy.store.record.decisions import Envelope

        rule_set = RuleSetText(
            digest=rule_set_digest, name=rule_set_name, canonical=rule_set_canonical
        )
        with self._database.writing() as connection:
            return sessions.record(
                connection,
                cluster,
                session,
                changes,
                expected_revision=expected_revision,
                rule_set=rule_set,
                envelope=Envelope(actor=actor, at_ms=at_ms, environment=environment),
            )

    def sessions(
        self, cluster: str | None = None, *, limit: int | None = None, before_id: int | None = None
    ) -> list[SessionRow]:
        """Batch sessions, newest first."""
        from policy.store.record import sessions

        with self._database.reading() as connection:
            return sessions.sessions(
                connection, cluster=cluster, session_id=None, limit=limit, before_id=before_id
            )

    def session(self, session_id: int) -> StoredSession:
        """A batch session with its steps. Raises NotFound."""
        from policy.store.record import sessions

        with self._database.reading() as connection:
            return sessions.session(connection, session_id)

    def nominations(
        self,
        cluster: str | None = None,
        *,
        pod: str | None = None,
        node: str | None = None,
        standing: bool | None = None,
        limit: int | None = None,
    ) -> list[NominationRow]:
        """Nominations, newest first; `standing`: only those not ended (True) or ended (False)."""
        with self._database.reading() as connection:
            return queries.nominations(
                connection, cluster=cluster, pod=pod, node=node, standing=standing, limit=limit
            )

    # --- environments ----------------------------------------------------------------------------

    def create_environment(
        self, name: str, cluster: str, *, at_ms: int, actor: str
    ) -> EnvironmentRow:
        """A name for a cluster and the rule set that is active for it. Raises StoreError."""
        with self._database.writing() as connection:
            return environments.create(connection, name, cluster, at_ms=at_ms, actor=actor)

    def activate(
        self,
        environment: str,
        *,
        rule_set_canonical: str,
        rule_set_name: str,
        rule_set_digest: str,
        reason: str,
        source: str,
        at_ms: int,
        actor: str,
    ) -> ActivationRow:
        """Make a rule set the active one of an environment. Raises NotFound."""
        rule_set = RuleSetText(
            digest=rule_set_digest, name=rule_set_name, canonical=rule_set_canonical
        )
        with self._database.writing() as connection:
            return environments.activate(
                connection,
                environment,
                rule_set,
                reason=reason,
                source=source,
                at_ms=at_ms,
                actor=actor,
            )

    def roll_back(self, environment: str, *, reason: str, at_ms: int, actor: str) -> ActivationRow:
        """Activate the rule set that was active before. Raises NotFound, StoreError."""
        with self._database.writing() as connection:
            return environments.roll_back(
                connection, environment, reason=reason, at_ms=at_ms, actor=actor
            )

    def environments(self) -> list[EnvironmentRow]:
        """All environments by name."""
        with self._database.reading() as connection:
            return environments.environments(connection)

    def environment(self, name: str) -> EnvironmentRow:
        """An environment with what is active in it. Raises NotFound."""
        with self._database.reading() as connection:
            return environments.environment(connection, name)

    def active_rule_set(
        self, environment: str, *, unless: int | None = None
    ) -> ActiveRuleSet | None:
        """The rule set that decides now; None where it is the one of activation `unless`.

        Raises NotFound for an unknown environment, StoreError for one without rule set.
        """
        with self._database.reading() as connection:
            return environments.active(connection, environment, unless=unless)

    def activations(self, environment: str, *, limit: int | None = None) -> list[ActivationRow]:
        """What was active in an environment, newest first. Raises NotFound."""
        with self._database.reading() as connection:
            return environments.activations(connection, environment, limit=limit)

    # --- the record itself -----------------------------------------------------------------------

    def ledger_heads(self, cluster: str | None = None) -> list[LedgerHead]:
        """The newest ledger entry of every cluster, or of one."""
        from policy.store.ledger import entries

        with self._database.reading() as connection:
            return entries.heads(connection, cluster)

    def ledger_head(self, cluster: str) -> LedgerHead:
        """The newest ledger entry of a cluster. Raises NotFound."""
        from policy.store.ledger import entries

        with self._database.reading() as connection:
            loading.require_head(connection, cluster)
            return entries.heads(connection, cluster)[0]

    def verify_ledger(
        self,
        cluster: str | None = None,
        *,
        from_hash: str | None = None,
        kept: Sequence[str | KeptHead] = (),
        accept_pruning: bool = False,
        limit: int = DEFAULT_FINDINGS,
        progress: VerifyProgress | None = None,
    ) -> VerifyResult:
        """Compute every hash again from the rows, and name what was changed.

        from_hash: begin with the entry that has this hash, and take what is before it on trust.
        kept: heads that were kept elsewhere, as hashes or with their entry's number; each must be
        of an entry that is read. accept_pruning: these, and `from_hash`, may also be of entries
        that were pruned. limit: how many findings are given in full; the others are counted.
        Raises NotFound for an unknown cluster, StoreError for a head of an entry before
        `from_hash`.
        """
        from policy.store.ledger import verify
        from policy.store.ledger.witnesses import KeptHead

        with self._database.reading() as connection:
            return verify.verify(
                connection,
                cluster=cluster,
                from_hash=from_hash,
                kept=[KeptHead(hash=k) if isinstance(k, str) else k for k in kept],
                accept_pruning=accept_pruning,
                limit=limit,
                progress=progress,
            )

    def prunings(self, cluster: str | None = None) -> list[Pruning]:
        """Old stretches of the record that were taken out. Raises NotFound."""
        from policy.store.ledger import witnesses

        with self._database.reading() as connection:
            ids = None if cluster is None else [loading.cluster_id(connection, cluster)]
            return witnesses.prunings(connection, ids)

    def plan_prune(self, older_than_ms: int, *, cluster: str | None = None) -> PrunePlan:
        """What `prune` would take out: its decisions could no longer be shown or replayed."""
        from policy.store.ledger import pruning

        with self._database.reading() as connection:
            return pruning.plan(connection, older_than_ms, cluster=cluster)

    def prune(
        self, older_than_ms: int, *, actor: str, at_ms: int, cluster: str | None = None
    ) -> PrunePlan:
        """Take out whole stretches of the past; keep each `head`: it proves what stays."""
        from policy.store.ledger import pruning

        with self._database.writing() as connection:
            return pruning.prune(
                connection, older_than_ms, cluster=cluster, actor=actor, at_ms=at_ms
            )

    def sql(
        self,
        query: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        timeout: int | None = sql.TIMEOUT_SECONDS,
        trust_connection: bool = False,
    ) -> SqlResult:
        """Run one statement that reads; `:name` stands for a parameter.

        The database refuses everything else. On Postgres the connection's role must be one that
        can do nothing else, unless `trust_connection` says that whoever wrote the query may do
        all that the role may do. timeout: seconds that the database may take, None for no limit.
        Close the result. Raises StoreError.
        """
        return sql.run(
            self._database.url,
            query,
            parameters or {},
            timeout=timeout,
            trusted=trust_connection,
        )

    def audit_queries(self) -> AuditQueries:
        """Reading in bulk: revisions with their changes, victims of many decisions, tables."""
        from policy.store.read.audit_queries import AuditQueries

        return AuditQueries(self._database)

    def report_queries(self) -> ReportQueries:
        """Reading for reports: evictions, nominations, how often rules decided."""
        from policy.store.read.reports import ReportQueries

        return ReportQueries(self._database)
