"""Environments and the rule sets that are active in them, as part of the audited chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, insert, select

from policy.cluster import canonical, times
from policy.store import bulk, identity, rows
from policy.store.errors import Conflict, NoActiveRules, NotFound
from policy.store.ledger import entries
from policy.store.model.environments import ActivationRow, EnvironmentRow, Proofs
from policy.store.record import rule_sets
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state.versions import lock_head, require_name
from policy.store.tables import ACTIVATIONS, CLUSTERS, ENVIRONMENTS, RULE_SETS
from policy.typed import prepared

_BEFORE: Final = RULE_SETS.alias("before")

KINDS: Final = {False: "rule sets for single pods", True: "rules of batch sessions"}
"""What an environment holds: the kind of its first activation, which the others share."""


def create(
    connection: Connection, name: str, cluster: str, *, at_ms: int, actor: str
) -> EnvironmentRow:
    """Raises Conflict where the name is taken, InvalidValue where it is none."""
    require_name("an environment", name)
    head = lock_head(connection, cluster)
    taken = connection.execute(select(ENVIRONMENTS.c.id).where(ENVIRONMENTS.c.name == name)).first()
    if taken is not None:
        raise Conflict(f"there is an environment `{name}` already")
    row: dict[str, Any] = {
        "cluster_id": head.cluster_id,
        "name": name,
        "created_ms": at_ms,
        "created_by": actor,
        **identity.columns(connection),
    }
    inserted = connection.execute(insert(ENVIRONMENTS).returning(ENVIRONMENTS.c.id), row)
    row["id"] = inserted.scalar_one()
    entries.append(
        connection,
        head,
        entries.EntryKind.ENVIRONMENT,
        [rows.line(ENVIRONMENTS, row)],
        subject_digest="",
        at_ms=at_ms,
        actor=actor,
        environment=name,
        environment_id=row["id"],
    )
    return environment(connection, name)


def activate(
    connection: Connection,
    name: str,
    *,
    rules: AnyRuleSet,
    reason: str,
    source: str,
    at_ms: int,
    actor: str,
    proofs: Proofs | None = None,
    instead_of: str | None = None,
    expected_activation: int | None = None,
) -> ActivationRow:
    """Make a rule set the active one.

    instead_of: digest of the rule set that must be active until now, as something was proved
    against it. expected_activation: number of the activation that must be the newest, 0 for none,
    as somebody saw it before they chose. Raises NotFound for an unknown environment, RuleSetChanged
    or ActivationChanged where another one is, Conflict where the environment holds rules of the
    other kind.
    """
    rule_set = RuleSetText.of(rules)
    head = lock_head(connection, environment(connection, name).cluster)
    require_newest(connection, name, expected=expected_activation)
    if instead_of is not None:
        require_active(connection, name, digest=instead_of)
    found = connection.execute(select(ENVIRONMENTS).where(ENVIRONMENTS.c.name == name)).one()
    used = rule_sets.ensure(connection, rule_set, at_ms=at_ms)
    last = connection.execute(
        select(ACTIVATIONS.c.rule_set_id, rule_sets.IS_BATCH.label("batch"))
        .join(RULE_SETS, RULE_SETS.c.id == ACTIVATIONS.c.rule_set_id)
        .where(ACTIVATIONS.c.environment_id == found.id)
        .order_by(ACTIVATIONS.c.id.desc())
        .limit(1)
    ).first()
    batch = rule_sets.is_batch(rule_set.canonical)
    if last is not None and bool(last.batch) != batch:
        raise Conflict(
            f"environment `{name}` holds {KINDS[bool(last.batch)]}, and not {KINDS[batch]} such as"
            f" `{rule_set.name}`",
            help="give it an environment of its own: `policy env create NAME`",
        )
    row: dict[str, Any] = {
        "environment_id": found.id,
        "rule_set_id": used["id"],
        "previous_rule_set_id": None if last is None else last.rule_set_id,
        "at_ms": at_ms,
        "actor": actor,
        "reason": reason,
        "source": source,
        "proofs": None if proofs is None else canonical.text(msgspec.to_builtins(proofs)),
        **identity.columns(connection),
    }
    inserted = connection.execute(insert(ACTIVATIONS).returning(ACTIVATIONS.c.id), row)
    row["id"] = inserted.scalar_one()
    entries.append(
        connection,
        head,
        entries.EntryKind.ACTIVATION,
        [rows.line(ACTIVATIONS, row), rows.line(RULE_SETS, used)],
        subject_digest=rule_set.digest,
        at_ms=at_ms,
        actor=actor,
        environment=name,
        activation_id=row["id"],
    )
    return activations(connection, name, limit=1)[0]


class RuleSetChanged(Conflict):
    """The active rule set is not the one that the decision was made by: decide again under it."""

    def __init__(self, environment: str) -> None:
        super().__init__(
            f"another rule set is active in environment `{environment}` by now",
            help="decide again under the active one",
        )


class ActivationChanged(Conflict):
    """Rules were activated since the environment was read."""

    def __init__(self, environment: str, newest: ActivationRow | None) -> None:
        """newest: the activation that counts now; None where nothing was activated."""
        now = "nothing is active"
        if newest is not None:
            at = times.to_text(newest.at_ms)
            now = f"`{newest.rule_set}` is active since {at}, activated by `{newest.actor}`"
        super().__init__(
            f"environment `{environment}` has changed: {now}",
            help="nothing was activated; look at the environment as it is now before you try again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRuleSet:
    """The rule set that decides in an environment."""

    name: str
    digest: str
    canonical: str

    @property
    def batch(self) -> bool:
        """Are they rules of batch sessions?"""
        return rule_sets.is_batch(self.canonical)


_NEWEST_ACTIVATION: Final = (
    "SELECT r.name, r.digest FROM activations a"
    " JOIN environments e ON e.id = a.environment_id JOIN rule_sets r ON r.id = a.rule_set_id"
    " WHERE e.name = ? ORDER BY a.id DESC LIMIT 1"
)


def active(connection: Connection, name: str, *, unless: str = "") -> ActiveRuleSet | None:
    """What is active; None where it still is the one with digest `unless`.

    Raises NotFound, and NoActiveRules where nothing was activated yet.
    """
    found = bulk.fetch(connection, _NEWEST_ACTIVATION, (name,))
    if not found:
        environment(connection, name)
        raise NoActiveRules(name)
    ((rule_set, digest),) = found
    if digest == unless:
        return None
    text = connection.execute(
        select(RULE_SETS.c.canonical).where(RULE_SETS.c.digest == digest)
    ).scalar_one()
    return ActiveRuleSet(name=rule_set, digest=digest, canonical=text)


class AskedActive:
    """What is active in an environment, which was asked for.

    Whoever activates holds the cluster's lock, and so does the caller: what is found stays true
    until the transaction ends.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self._name = name
        self._asked = bulk.Asked(connection, _NEWEST_ACTIVATION, (name,))

    def require(self, digest: str) -> None:
        """Raises RuleSetChanged where that is another rule set, or none."""
        if [active_digest for _, active_digest in self._asked.rows()] != [digest]:
            raise RuleSetChanged(self._name)


def require_active(connection: Connection, name: str, *, digest: str) -> None:
    """Raises RuleSetChanged where the environment has another active rule set."""
    AskedActive(connection, name).require(digest)


def require_newest(connection: Connection, name: str, *, expected: int | None) -> None:
    """Raises ActivationChanged where another activation than the expected one is the newest.

    expected: its number, 0 for none at all; None where any will do.
    """
    if expected is None:
        return
    newest = next(iter(activations(connection, name, limit=1)), None)
    if expected != (0 if newest is None else newest.id):
        raise ActivationChanged(name, newest)


_BACK: Final = "rollback to activation "


def rollback_target(connection: Connection, name: str) -> ActivationRow | None:
    """The activation that a rollback goes back to; None where there is none. Raises NotFound."""
    stack: list[ActivationRow] = []
    for row in reversed(activations(connection, name)):
        if row.source.startswith(_BACK):
            stack.pop()
        else:
            stack.append(row)
    return stack[-2] if len(stack) > 1 else None


def roll_back(
    connection: Connection,
    name: str,
    *,
    reason: str,
    at_ms: int,
    actor: str,
    expected_activation: int | None = None,
) -> ActivationRow:
    """Activate what was active before; doing it again goes further back.

    expected_activation: as of `activate`. Raises NotFound, ActivationChanged, or Conflict where
    there is nothing to go back to.
    """
    lock_head(connection, environment(connection, name).cluster)
    require_newest(connection, name, expected=expected_activation)
    target = rollback_target(connection, name)
    if target is None:
        raise Conflict(
            f"environment `{name}` has no earlier rule set to go back to",
            help=f"`policy env show {name}` lists what was active",
        )
    text = connection.execute(
        select(RULE_SETS.c.canonical).where(RULE_SETS.c.digest == target.rule_set_digest)
    ).scalar_one()
    return activate(
        connection,
        name,
        rules=RuleSetText(digest=target.rule_set_digest, name=target.rule_set, canonical=text),
        reason=reason,
        source=f"{_BACK}{target.id}",
        at_ms=at_ms,
        actor=actor,
    )


def environments(connection: Connection) -> list[EnvironmentRow]:
    """All environments by name, each with what is active in it."""
    query = (
        select(ENVIRONMENTS, CLUSTERS.c.name.label("cluster"))
        .join(CLUSTERS, CLUSTERS.c.id == ENVIRONMENTS.c.cluster_id)
        .order_by(ENVIRONMENTS.c.name)
    )
    return [_environment(connection, row) for row in connection.execute(query).all()]


def environment(connection: Connection, name: str) -> EnvironmentRow:
    """Raises NotFound."""
    for row in environments(connection):
        if row.name == name:
            return row
    names = ", ".join(f"`{row.name}`" for row in environments(connection))
    raise NotFound(
        f"there is no environment `{name}` in this database",
        help=f"it holds {names}" if names else "create one: `policy env create NAME`",
    )


def _environment(connection: Connection, row: Row[Any]) -> EnvironmentRow:
    last = _activations(connection, row.id, row.name, limit=1)
    return EnvironmentRow(
        name=row.name,
        cluster=row.cluster,
        created_ms=row.created_ms,
        created_by=row.created_by,
        process_uid=row.process_uid,
        process_user=row.process_user,
        database_user=row.database_user,
        active=last[0] if last else None,
    )


def activations(
    connection: Connection, name: str, *, limit: int | None = None
) -> list[ActivationRow]:
    """The history of an environment, newest first. Raises NotFound."""
    environment(connection, name)
    found = connection.execute(
        select(ENVIRONMENTS.c.id).where(ENVIRONMENTS.c.name == name)
    ).scalar_one()
    return _activations(connection, found, name, limit=limit)


def _activations(
    connection: Connection, environment_id: int, name: str, *, limit: int | None
) -> list[ActivationRow]:
    a = ACTIVATIONS.c
    query = (
        select(
            a.id,
            RULE_SETS.c.name.label("rule_set"),
            RULE_SETS.c.digest.label("rule_set_digest"),
            _BEFORE.c.digest.label("previous_digest"),
            a.at_ms,
            a.actor,
            a.reason,
            a.source,
            a.proofs,
            rule_sets.IS_BATCH.label("batch"),
            a.process_uid,
            a.process_user,
            a.database_user,
        )
        .join(RULE_SETS, RULE_SETS.c.id == a.rule_set_id)
        .outerjoin(_BEFORE, _BEFORE.c.id == a.previous_rule_set_id)
        .where(a.environment_id == environment_id)
        .order_by(a.id.desc())
    )
    if limit is not None:
        query = query.limit(limit)
    return [_activation(name, row._asdict()) for row in connection.execute(query)]


def _activation(environment: str, values: dict[str, Any]) -> ActivationRow:
    proofs, batch = values.pop("proofs"), bool(values.pop("batch"))
    kept = None if proofs is None else msgspec.json.decode(proofs, type=prepared(Proofs))
    return ActivationRow(environment=environment, proofs=kept, batch=batch, **values)
