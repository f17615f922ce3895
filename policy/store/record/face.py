"""What is kept of imports, changes, decisions, sessions, rule sets and environments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policy.cluster import collector
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject
from policy.store.faces import Face, writes
from policy.store.model import ImportResult, PruneScope
from policy.store.observed import ClusterIdentity
from policy.store.record import (
    changing,
    decisions,
    environments,
    following,
    importing,
    keys,
    observing,
    schedulers,
    sessions,
    simulating,
)


class RecordFace(Face):
    """Everything that is written: each call is one transaction with one entry in the ledger.

    Without an entry: keys of writes, which are no part of the record.
    """

    decision = writes(decisions.record)
    decision_group = writes(decisions.record_group)
    hypothetical = writes(decisions.record_hypothetical)
    session = writes(sessions.record)
    change = writes(changing.change)
    follow = writes(following.follow)
    observations = writes(observing.record)
    simulation = writes(simulating.record)
    create_environment = writes(environments.create)
    activate = writes(environments.activate)
    roll_back = writes(environments.roll_back)
    set_scheduler = writes(schedulers.set_scheduler)
    take_key = writes(keys.take)
    key_answered = writes(keys.answered)
    give_key_back = writes(keys.give_back)

    @collector.paused()
    def import_objects(
        self,
        cluster: str,
        objects: Iterable[ClusterObject],
        *,
        at_ms: int,
        of_ms: int | None = None,
        source: str,
        actor: str = "",
        prune: PruneScope | None = None,
        progress: importing.Progress | None = None,
        segments: Sequence[Sequence[Change]] = (),
        identity: ClusterIdentity | None = None,
    ) -> ImportResult:
        """Make the stored objects equal to the given ones: all of it or nothing of it.

        of_ms: the time of which they are, `at_ms` by default; never before the newest revision.
        Objects that are not in the import stay, unless `prune` covers them. segments: what recorded
        watches change of that, each a revision of its own. identity: of the real cluster, where it
        is known. Raises ImportConflict where it holds two different objects under one key,
        OtherCluster where the cluster of that name is another one, StoreError for values that are
        none.
        """
        incoming = importing.read(objects, progress)  # before the database is locked
        with self._transactions.writing() as connection:
            result = importing.write(
                connection,
                cluster,
                incoming,
                at_ms=at_ms,
                of_ms=of_ms,
                source=source,
                actor=actor,
                scope=prune,
            )
            if not segments and identity is None:
                return result
            followed = following.follow(
                connection,
                cluster,
                segments,
                at_ms=at_ms,
                source=source,
                actor=actor,
                identity=identity,
            )
            return importing.followed_by(result, followed)
