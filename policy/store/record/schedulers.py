"""What the schedulers of real clusters run, as an environment says it, in the audited chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from policy.cluster import canonical
from policy.store import identity, rows
from policy.store.ledger import entries
from policy.store.model.environments import SchedulerRow
from policy.store.record import rule_sets
from policy.store.record.environments import environment
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state.versions import Head, lock_head
from policy.store.tables import CLUSTERS, ENVIRONMENTS, RULE_SETS, SCHEDULERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """One profile of a scheduler's configuration, as a rule set."""

    profile: str  #: its `schedulerName`
    rules: AnyRuleSet
    notices: tuple[str, ...] = ()  #: what of the configuration the rule set does not model


def set_scheduler(
    connection: Connection,
    name: str,
    profiles: Sequence[SchedulerProfile],
    *,
    source: str,
    at_ms: int,
    actor: str,
) -> list[SchedulerRow]:
    """Say what an environment's own scheduler runs, from now on; gives what was changed.

    profiles: all that it has. Of one that is not among them any more, and of all where there are
    none, the rule set of the server's version counts again. Raises NotFound.
    """
    head = lock_head(connection, environment(connection, name).cluster)
    number = connection.execute(
        select(ENVIRONMENTS.c.id).where(ENVIRONMENTS.c.name == name)
    ).scalar_one()
    before = {row.profile: row for row in schedulers(connection, name) if row.rule_set_digest}
    wanted: dict[str, SchedulerProfile | None] = {one.profile: one for one in profiles}
    for profile in before.keys() - wanted.keys():
        wanted[profile] = None
    changed = [
        _write(
            connection, head, name, number, profile, one, source=source, at_ms=at_ms, actor=actor
        )
        for profile, one in sorted(wanted.items())
        if one is None
        or profile not in before
        or before[profile].rule_set_digest != one.rules.digest
    ]
    return [row for row in schedulers(connection, name) if row.id in set(changed)]


def _write(
    connection: Connection,
    head: Head,
    name: str,
    environment_id: int,
    profile: str,
    one: SchedulerProfile | None,
    *,
    source: str,
    at_ms: int,
    actor: str,
) -> int:
    used = None
    if one is not None:
        used = rule_sets.ensure(connection, RuleSetText.of(one.rules), at_ms=at_ms)
    row: dict[str, Any] = {
        "environment_id": environment_id,
        "profile": profile,
        "rule_set_id": None if used is None else used["id"],
        "at_ms": at_ms,
        "actor": actor,
        "source": source,
        "notices": canonical.text([] if one is None else list(one.notices)),
        **identity.columns(connection),
    }
    inserted = connection.execute(insert(SCHEDULERS).returning(SCHEDULERS.c.id), row)
    row["id"] = inserted.scalar_one()
    lines = [rows.line(SCHEDULERS, row)]
    if used is not None:
        lines.append(rows.line(RULE_SETS, used))
    entries.append(
        connection,
        head,
        entries.EntryKind.SCHEDULER,
        lines,
        subject_digest="" if one is None else one.rules.digest,
        at_ms=at_ms,
        actor=actor,
        environment=name,
        scheduler_id=row["id"],
    )
    return int(row["id"])


def schedulers(connection: Connection, name: str) -> list[SchedulerRow]:
    """What counts for each profile that an environment's scheduler has or had, by name.

    Raises NotFound.
    """
    environment(connection, name)
    newest: dict[str, SchedulerRow] = {}
    for row in _rows(connection, ENVIRONMENTS.c.name == name):
        newest[row.profile] = row
    return sorted(newest.values(), key=lambda row: row.profile)


def scheduler_rules(connection: Connection, cluster: str) -> Mapping[str, SchedulerRow]:
    """What the scheduler of a cluster runs, by `schedulerName`, as its environments say it.

    Of several environments of a cluster the one that said it last counts.
    """
    newest: dict[str, SchedulerRow] = {}
    for row in _rows(connection, CLUSTERS.c.name == cluster):
        newest[row.profile] = row
    return {profile: row for profile, row in newest.items() if row.rule_set_digest}


def _rows(connection: Connection, wanted: Any) -> list[SchedulerRow]:
    """Oldest first."""
    s = SCHEDULERS.c
    query = (
        select(
            SCHEDULERS,
            ENVIRONMENTS.c.name.label("environment"),
            CLUSTERS.c.name.label("cluster"),
            RULE_SETS.c.name.label("rule_set"),
            RULE_SETS.c.digest.label("rule_set_digest"),
        )
        .join(ENVIRONMENTS, ENVIRONMENTS.c.id == s.environment_id)
        .join(CLUSTERS, CLUSTERS.c.id == ENVIRONMENTS.c.cluster_id)
        .outerjoin(RULE_SETS, RULE_SETS.c.id == s.rule_set_id)
        .where(wanted)
        .order_by(s.id)
    )
    return [
        SchedulerRow(
            id=row.id,
            environment=row.environment,
            cluster=row.cluster,
            profile=row.profile,
            rule_set=row.rule_set or "",
            rule_set_digest=row.rule_set_digest or "",
            at_ms=row.at_ms,
            actor=row.actor,
            source=row.source,
            notices=tuple(rows.from_json(row.notices)),
            process_uid=row.process_uid,
            process_user=row.process_user,
            database_user=row.database_user,
        )
        for row in connection.execute(query)
    ]
