"""SQL for a viewer who is limited to namespaces.

The statement runs on a copy that is made for it, of what the lists of the API show the viewer: the
tables of `TABLES`. Nothing of other namespaces is in there, so nothing has to be kept
from a statement. It is SQLite's SQL, also where the record is on Postgres.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policy.audit.documents import instant
from policy.cluster import times
from policy.decision.model import Victim
from policy.server import cycles
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store.read.copied import CopiedTable, run

NEWEST: Final = 5_000
"""Decisions that are copied, and cycles of pod groups."""
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "decisions": (
        *("id", "cluster", "at", "outcome", "node", "rule_set", "origin"),
        *("preemptor", "priority", "victims"),
    ),
    "victims": (
        *("decision", "namespace", "pod", "node", "priority", "priority_class", "owner"),
        *("started", "ran_seconds"),
    ),
    "group_cycles": (
        *("id", "cluster", "at", "outcome", "rule_set", "pod_group", "bound", "evicted"),
    ),
    "group_victims": ("cycle", "namespace", "pod"),
}
SECONDS: Final = 10
"""How long a statement may take, whoever asks."""


def own_sql(
    service: PolicyService,
    principal: Principal,
    sql: str,
    parameters: Mapping[str, Any],
    *,
    limit: int,
) -> dict[str, Any]:
    """Columns, rows, whether there are more, and of how much they are. Raises InvalidValue."""
    read = service.store.read
    rows = read.decisions(limit=NEWEST + 1, namespaces=principal.namespaces)
    left_out, rows = len(rows) > NEWEST, rows[:NEWEST]
    victims = read.victims_of([row.id for row in rows])
    tables = {
        "decisions": CopiedTable(
            columns=TABLES["decisions"],
            rows=[
                tuple(line["now" if name == "at" else name] for name in TABLES["decisions"])
                for line in scope.lines(principal, rows, victims)
            ],
        ),
        "victims": CopiedTable(columns=TABLES["victims"], rows=_victims(principal, victims)),
    }
    held, lines = cycles.cycles(service, principal, limit=NEWEST + 1)
    cycles_left_out, held, lines = len(held) > NEWEST, held[:NEWEST], lines[:NEWEST]
    names = {"at": "now", "pod_group": "group"}
    tables["group_cycles"] = CopiedTable(
        columns=TABLES["group_cycles"],
        rows=[tuple(line[names.get(n, n)] for n in TABLES["group_cycles"]) for line in lines],
    )
    tables["group_victims"] = CopiedTable(
        columns=TABLES["group_victims"],
        rows=[
            (principal.shown(Numbered.SESSION, number), namespace, pod)
            for number, pods in read.evicted_in([row.id for row in held]).items()
            for pod in pods
            if principal.sees(namespace := pod.partition("/")[0])
        ],
    )
    columns, found = run(tables, sql, parameters, limit=limit + 1, timeout=SECONDS)
    return {
        "columns": columns,
        "rows": [list(row) for row in found[:limit]],
        "more": len(found) > limit,
        "decisions": len(rows),
        "older_left_out": left_out,
        "group_cycles": len(held),
        "older_cycles_left_out": cycles_left_out,
    }


def _victims(
    principal: Principal, victims: Mapping[int, Sequence[Victim]]
) -> Iterator[tuple[Any, ...]]:
    for number, some in victims.items():
        decision = principal.shown(Numbered.DECISION, number)
        for victim in some:
            namespace = victim.pod.partition("/")[0]
            if principal.sees(namespace):
                yield (
                    *(decision, namespace, victim.pod, victim.node, victim.priority),
                    *(victim.priority_class, victim.owner),
                    None if victim.start_ms == times.MISSING else instant(victim.start_ms),
                    victim.run_seconds,
                )
