"""A simulation and its ledger entry: one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select

from policy.cluster import canonical
from policy.store import identity, rows
from policy.store.errors import NotFound
from policy.store.ledger import entries
from policy.store.record import rule_sets
from policy.store.record.rule_sets import AnyRuleSet, RuleSetText
from policy.store.state.versions import lock_head
from policy.store.tables import CLUSTERS, RULE_SETS, SIMULATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSimulation:
    """What is kept of a simulation."""

    digest: str  #: `sha256:` and the SHA-256 of the canonical result
    trace: str  #: its name
    trace_digest: str
    seed: int
    start_ms: int
    end_ms: int
    engine_version: str
    kept_in: str  #: name of the cluster that holds its decisions; "" where they are not kept
    options: Mapping[str, Any]
    result: Mapping[str, Any]


def record(
    connection: Connection,
    cluster: str,
    simulation: NewSimulation,
    *,
    rules: AnyRuleSet,
    at_ms: int,
    actor: str,
) -> int:
    """Keep a simulation under a cluster's name, made where there is none; its number."""
    head = lock_head(connection, cluster)
    rule_set = rule_sets.ensure(connection, RuleSetText.of(rules), at_ms=at_ms)
    row: dict[str, Any] = {
        "cluster_id": head.cluster_id,
        "at_ms": at_ms,
        "actor": actor,
        "digest": simulation.digest,
        "trace": simulation.trace,
        "trace_digest": simulation.trace_digest,
        "rule_set_id": rule_set["id"],
        "seed": simulation.seed,
        "start_ms": simulation.start_ms,
        "end_ms": simulation.end_ms,
        "engine_version": simulation.engine_version,
        "kept_in": simulation.kept_in,
        "options": canonical.text(simulation.options),
        "result": canonical.text(simulation.result),
        **identity.columns(connection),
    }
    inserted = connection.execute(insert(SIMULATIONS).returning(SIMULATIONS.c.id), row)
    number = row["id"] = int(inserted.scalar_one())
    entries.append(
        connection,
        head,
        entries.EntryKind.SIMULATION,
        [rows.line(SIMULATIONS, row), rows.line(RULE_SETS, rule_set)],
        subject_digest=simulation.digest,
        at_ms=at_ms,
        actor=actor,
        simulation_id=number,
    )
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRow:
    """A recorded simulation, without its result."""

    id: int
    cluster: str
    at_ms: int
    actor: str
    digest: str
    trace: str
    trace_digest: str
    rule_set: str
    rule_set_digest: str
    seed: int
    kept_in: str


def simulation_documents(connection: Connection, cluster: str) -> list[tuple[str, str]]:
    """Options and result of the simulations under a cluster's name, as JSON, the oldest first."""
    c = SIMULATIONS.c
    query = (
        select(c.options, c.result)
        .join(CLUSTERS, CLUSTERS.c.id == c.cluster_id)
        .where(CLUSTERS.c.name == cluster)
        .order_by(c.id)
    )
    return [(str(options), str(result)) for options, result in connection.execute(query)]


def simulation_document(connection: Connection, number: int) -> tuple[str, str]:
    """Options and result of one simulation, as JSON. Raises NotFound."""
    c = SIMULATIONS.c
    found = connection.execute(select(c.options, c.result).where(c.id == number)).one_or_none()
    if found is None:
        raise NotFound(f"there is no simulation {number}", help="`/simulations` lists them")
    return str(found.options), str(found.result)


def simulated_clusters(connection: Connection) -> set[str]:
    """Clusters under which simulations are recorded."""
    query = select(CLUSTERS.c.name).join(SIMULATIONS, CLUSTERS.c.id == SIMULATIONS.c.cluster_id)
    return set(connection.execute(query.distinct()).scalars())


def simulations(connection: Connection) -> list[SimulationRow]:
    """The recorded simulations, the newest first."""
    c = SIMULATIONS.c
    query = (
        select(
            *(c.id, CLUSTERS.c.name.label("cluster"), c.at_ms, c.actor, c.digest, c.trace),
            *(c.trace_digest, RULE_SETS.c.name.label("rule_set")),
            *(RULE_SETS.c.digest.label("rule_set_digest"), c.seed, c.kept_in),
        )
        .join(CLUSTERS, CLUSTERS.c.id == c.cluster_id)
        .join(RULE_SETS, RULE_SETS.c.id == c.rule_set_id)
        .order_by(c.id.desc())
    )
    return [SimulationRow(**row) for row in connection.execute(query).mappings()]
