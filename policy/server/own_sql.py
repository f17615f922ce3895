"""SQL for a viewer who is limited to namespaces.

The statement runs on a copy that is made for it, of what the lists of the API show the viewer: of
the tables of `TABLES` those that it names. Nothing of other namespaces is in there, so nothing has
to be kept from a statement. It is SQLite's SQL, also where the record is on Postgres.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

from policy.audit.documents import instant
from policy.cluster import times
from policy.decision.model import Victim
from policy.server import batch_sessions, cycles, views
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store.read.copied import CopiedTable, run
from policy.store.read.stoppable import Stoppable

NEWEST: Final = 5_000
"""Of a list that are copied: decisions, cycles of pod groups, batch sessions, observations."""
_STEPS: Final = 50_000
"""Of batch sessions that are copied: as many sessions as have no more of them, the newest."""
SECONDS: Final = 10
"""How long a statement may take, whoever asks."""

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
    "batch_sessions": ("id", "cluster", "at", "rule_set", "bound", "evicted"),
    "batch_steps": (
        *("batch_session", "namespace", "pod", "operation", "action", "node", "job", "claimant"),
        "carried_out",
    ),
    "observations": (
        *("id", "cluster", "at", "node", "confidence", "verdict", "rule_set"),
        *("preemptor", "preemptor_kind", "preemptor_priority"),
    ),
    "observed_victims": (
        *("observation", "namespace", "pod", "node", "priority", "priority_class", "owner"),
        *("ran_seconds", "evidence"),
    ),
}

_Row = Sequence[str | int | bool | None]


class _Copy(NamedTuple):
    """The rows of a table of what is listed, and of the one with its parts."""

    listed: list[_Row]
    parts: list[_Row]
    whole: bool  #: are these all of the list?


def own_sql(
    service: PolicyService,
    principal: Principal,
    sql: str,
    parameters: Mapping[str, Any],
    *,
    limit: int,
    left: list[Stoppable],
) -> dict[str, Any]:
    """Columns, rows, whether there are more, and of how much they are. Raises InvalidValue.

    left: takes up what had to be given up and still runs.
    """
    rows: dict[str, list[_Row]] = {name: [] for name in TABLES}
    left_out: list[str] = []
    named = [name for name in TABLES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
    for pair, copied in _COPIES.items():
        # What a statement does not name it does not read.
        if not set(pair).isdisjoint(named):
            found = copied(service, principal)
            rows |= zip(pair, (found.listed, found.parts), strict=True)
            left_out += () if found.whole else pair
    tables = {
        name: CopiedTable(columns=columns, rows=rows[name]) for name, columns in TABLES.items()
    }
    columns, result = run(tables, sql, parameters, limit=limit + 1, timeout=SECONDS, left=left)
    return {
        "columns": columns,
        "rows": [list(row) for row in result[:limit]],
        "more": len(result) > limit,
        "copied": {name: len(rows[name]) for name in named},
        "older_left_out": [name for name in named if name in left_out],
    }


def _decisions(service: PolicyService, principal: Principal) -> _Copy:
    rows, lines = views.decisions(service, principal, {}, limit=NEWEST + 1)
    victims = service.store.read.victims_of([row.id for row in rows[:NEWEST]])
    parts = list(_victims(principal, victims))
    return _Copy(_listed("decisions", lines), parts, len(rows) <= NEWEST)


def _victims(principal: Principal, victims: Mapping[int, Sequence[Victim]]) -> Iterator[_Row]:
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


def _cycles(service: PolicyService, principal: Principal) -> _Copy:
    rows, lines = cycles.cycles(service, principal, {}, limit=NEWEST + 1)
    parts: list[_Row] = [
        (principal.shown(Numbered.SESSION, number), namespace, pod)
        for number, pods in service.store.read.evicted_in([row.id for row in rows[:NEWEST]]).items()
        for pod in pods
        if principal.sees(namespace := pod.partition("/")[0])
    ]
    return _Copy(_listed("group_cycles", lines), parts, len(rows) <= NEWEST)


def _batch_sessions(service: PolicyService, principal: Principal) -> _Copy:
    rows, lines = batch_sessions.sessions(service, principal, {}, limit=NEWEST + 1)
    steps = accumulate(line["bound"] + line["evicted"] for line in lines[:NEWEST])
    kept = max(sum(1 for _ in takewhile(lambda many: many <= _STEPS, steps)), min(len(rows), 1))
    parts: list[_Row] = [
        (
            *(told["id"], step["task"].partition("/")[0], step["task"], step["operation"]),
            *(step["action"], step["node"], step["job"], step["claimant"], step["carried_out"]),
        )
        for told in batch_sessions.own_sessions(service, principal, rows[:kept])
        for step in told["steps"]
    ]
    return _Copy(_listed("batch_sessions", lines[:kept]), parts, len(rows) == kept)


def _observations(service: PolicyService, principal: Principal) -> _Copy:
    rows, documents = views.observations(service, principal, {}, limit=NEWEST + 1)
    parts: list[_Row] = [
        (
            *(told["id"], victim["namespace"], victim["victim"], victim["node"]),
            *(victim["priority"], victim["priority_class"], victim["owner"]),
            *(victim["run_seconds"], victim["evidence"]),
        )
        for told in documents[:NEWEST]
        for victim in told["victims"]
    ]
    return _Copy(_listed("observations", documents), parts, len(rows) <= NEWEST)


def _listed(table: str, lines: Iterable[Mapping[str, Any]]) -> list[_Row]:
    """Rows of a table; where a column may not be called like a field of the lines, by its own."""
    fields = [_FIELDS.get(name, name) for name in TABLES[table]]
    return [tuple(line[field] for field in fields) for line in list(lines)[:NEWEST]]


_FIELDS: Final = {"at": "now", "pod_group": "group"}
"""Fields by column."""
_COPIES: Final[Mapping[tuple[str, str], Callable[[PolicyService, Principal], _Copy]]] = {
    ("decisions", "victims"): _decisions,
    ("group_cycles", "group_victims"): _cycles,
    ("batch_sessions", "batch_steps"): _batch_sessions,
    ("observations", "observed_victims"): _observations,
}
