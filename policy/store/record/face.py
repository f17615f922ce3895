"""What is kept of imports, changes, decisions, sessions, rule sets and environments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from policy.cluster import collector
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject
from policy.store.faces import Face, writes, writes_ahead, writes_together
from policy.store.model.state import ImportResult, PruneScope
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
from policy.store.record.tally import Tally


class RecordFace(Face):
    """Everything that is written: each call is one transaction with one entry in the ledger.

    Without an entry: keys of writes, which are no part of the record.
    """

    decision = writes(decisions.record)
    decision_group = writes_together(decisions.record_group)
    decision_group_ahead = writes_ahead(decisions.record_group)
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
        incoming = importing.read(objects)  # before the database is locked
        tally = Tally()
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
                tally=tally,
                progress=progress,
            )
            begins = any(obj is not None for segment in segments for _, _, obj in segment)
            if not (result.revision or begins) or not (segments or identity):
                return result  # a cluster begins with its first object
            followed = following.follow(
                connection,
                cluster,
                segments,
                at_ms=at_ms,
                source=source,
                actor=actor,
                identity=identity,
            )
        tally.followed(segments, followed.written)
        return replace(
            result,
            revision=followed.revision,
            state_digest=followed.state_digest,
            new_revision=result.new_revision or bool(followed.written),
            kinds=tally.counts(),
        )
