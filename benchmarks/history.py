"""How fast questions about a long record are answered: a million decisions in one SQLite file.

    python -m benchmarks.history --output FILE

A generated record is written straight into the tables, one decision every 20 seconds: seven of ten
preempt one to four pods, with ten candidates kept, the rules and filters that were asked, the
nomination, the revision and the preemptor's own version, with the trace of a decision of the same
outcome that the engine made; and a batch session that evicts twenty pods beside every thousandth
decision. Nothing that a question reads is left out, and the indexes
grow row by row as they do in use. The ledger stays empty: no question here reads it.

    python -m benchmarks.history --decisions 10_000_000 --saved-only

The same generator, without the traces and candidates, which no saved query reads (half of the
bytes), and only the saved queries are asked. The indexes are made after the rows.

Measured are `policy decisions --limit 50` (as a process of its own, and with each of its filters
through `Store.decisions`), one or more typical queries of each view, and each saved query: over
the last 7 and 90 days, and over the whole record, which is what it answers without parameters.
Each figure is the median of several runs that fetch all rows, each through a connection of its
own. The file has been read before: the figures are those of a database in the page cache.
`cpu_ms` is what the machine worked for an answer (to 10 ms): less than `median_ms` where it was
busy with something else.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks import postgres
from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.read.saved_queries import DEFAULTS, saved_queries

if TYPE_CHECKING:
    import psycopg

MARK_MS = 1_000
RUNS = 5
LONG_SECONDS = 3.0  #: what took longer is not run again
_SIZE = "SELECT pg_database_size(current_database())"
RECENT_DAYS = (7, 90)  #: that saved queries are asked for, beside the whole record

START_MS = 1_760_000_000_000
STEP_MS = 20_000
DAY_MS = 86_400_000
NODES = 5_000
RUNNING = 30_000  #: pods that run from the first revision on
NAMESPACES = 60
PREEMPTORS = 20_000
WAITS = 40  #: revisions that a preemptor is pending for
KEPT_CANDIDATES = 10
SESSION_EVERY = 1_000
SESSION_EVICTIONS = 20
BATCH = 5_000

OUTCOMES = ("preempt",) * 7 + ("bind", "no-candidate", "not-eligible")
CRITERIA = (
    "fewest-pdb-violations",
    "lowest-top-priority",
    "lowest-priority-sum",
    "fewest-victims",
    "latest-start",
)
RULES = (("eligibility", "otherwise"), ("victims.eligible", "lower-priority"))
RARE_RULE = "last-resort"
"""That decides twenty times in a million."""
MANIFEST = json.dumps(
    {
        "metadata": {"name": "job", "namespace": "team"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    }
)
WRITTEN_BY = {"process_uid": 1000, "process_user": "ann", "database_user": ""}

Row: TypeAlias = dict[str, Any]
Tables: TypeAlias = dict[str, list[Row]]


# The record


def _digest(kind: str, number: int) -> str:
    return "sha256:" + hashlib.sha256(f"{kind}{number}".encode()).hexdigest()


def _pending(name: str, priority: int, cpu: int, **spec: Any) -> Row:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-1", "uid": f"uid-{name}"},
        "spec": {"priority": priority, "containers": containers, **spec},
        "status": {"phase": "Pending"},
    }


@cache
def _documents() -> dict[str, str]:
    """What `decision_traces` has of a decision of each outcome, made by the engine."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": _node(number)},
            "status": {"allocatable": {"cpu": 5, "memory": "8Gi", "pods": 9}},
        }
        for number in range(KEPT_CANDIDATES)
    ]
    running = [
        _pending(f"web-{number}-{k}", 1, 1, nodeName=_node(number))
        for number in range(KEPT_CANDIDATES)
        for k in range(5)
    ]
    pending = [
        _pending("preempt", 100, 2),
        _pending("bind", 90, 0),
        _pending("not-eligible", 80, 2, preemptionPolicy="Never"),
        _pending("no-candidate", 1, 2),
    ]
    objects = list(from_dicts([*nodes, *running, *pending]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.db"
        with Store.open(str(path)) as store:
            store.record.import_objects("default", objects, at_ms=START_MS, source="benchmark")
            journal = StoreJournal(store, "default", actor="benchmark", clock=lambda: START_MS)
            clock = itertools.count(START_MS)
            rules = RuleSet.load("kube-1.35")
            for _ in Scheduler(journal, rules, clock=lambda: next(clock), seed=1).run():
                pass
        with closing(sqlite3.connect(path)) as connection:
            query = """
                SELECT d.outcome, t.document
                FROM decisions d JOIN decision_traces t ON t.decision_id = d.id
            """
            return dict(connection.execute(query).fetchall())


def _at_ms(number: int) -> int:
    return START_MS + number * STEP_MS


def _namespace(number: int) -> str:
    return f"team-{number * 31 % NAMESPACES}"


def _preemptor(number: int) -> str:
    identity = number % PREEMPTORS
    return f"{_namespace(identity)}/job-{identity:05d}"


def _node(number: int) -> str:
    return f"node-{number:05d}"


def _outcome(number: int) -> str:
    return OUTCOMES[number % len(OUTCOMES)]


def _pod_version(key: str, node: str, valid_from: int, valid_to: int | None) -> Row:
    namespace, _, name = key.partition("/")
    return {
        "cluster_id": 1,
        "key": key,
        "valid_from": valid_from,
        "valid_to": valid_to,
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{valid_from}-{name}",
        "node": node,
        "priority": 1 if node else 100,
        "priority_class": "low" if node else "high",
        "phase": "Running" if node else "Pending",
        "start_ms": START_MS if node else None,
        "nominated_node": "",
        "terminating": False,
        "owner": "",
        "cpu_milli": 1_000,
        "memory_bytes": 2**30,
        "digest": _digest(key, valid_from)[7:],
        "manifest": MANIFEST,
    }


def _revision(number: int, at_ms: int, cause: str) -> Row:
    return {
        "cluster_id": 1,
        "number": number,
        "at_ms": at_ms,
        "source": "benchmark",
        "cause": cause,
        "put_count": 1,
        "deleted_count": 2,
        "previous": _digest("snapshot", number - 1),
        "digest": _digest("snapshot", number),
    }


def _beginning() -> Tables:
    """Cluster, rule sets, and the first revision with its nodes and running pods."""
    rule_sets = [
        {
            "id": number,
            "digest": _digest("rules", number),
            "name": f"rules-{number}",
            "canonical": RuleSet.load("kube-1.35").canonical,
            "first_used_ms": START_MS,
        }
        for number in (1, 2, 3)
    ]
    nodes = [
        {
            "cluster_id": 1,
            "key": _node(number),
            "valid_from": 1,
            "valid_to": None,
            "name": _node(number),
            "cpu_milli": 64_000,
            "memory_bytes": 2**38,
            "pod_capacity": 110,
            "unschedulable": False,
            "digest": _digest("node", number)[7:],
            "manifest": MANIFEST,
        }
        for number in range(NODES)
    ]
    pods = [
        _pod_version(f"{_namespace(number)}/run-{number:05d}", _node(number % NODES), 1, None)
        for number in range(RUNNING)
    ]
    return {
        "clusters": [{"id": 1, "name": "default"}],
        "rule_sets": rule_sets,
        "revisions": [_revision(1, START_MS, "import")],
        "nodes": nodes,
        "pods": pods,
    }


def _decision(number: int, node: str, victims: int) -> Row:
    outcome = _outcome(number)
    preempts = outcome == "preempt"
    preemptor = _preemptor(number)
    return {
        "id": number,
        "cluster_id": 1,
        "digest": _digest("decision", number),
        "now_ms": _at_ms(number),
        "preemptor": preemptor,
        "preemptor_namespace": preemptor.partition("/")[0],
        "preemptor_uid": f"uid-{number}",
        "preemptor_priority": 100,
        "outcome": outcome,
        "node": node if outcome in {"preempt", "bind"} else None,
        "victim_count": victims,
        "pdb_violations": int(preempts and number % 50 == 0),
        "candidate_count": 100,
        "kept_candidates": KEPT_CANDIDATES if preempts else 0,
        "decided_by": CRITERIA[number % len(CRITERIA)] if preempts else "",
        "nomination": "set" if preempts else "keep",
        "eligible": outcome != "not-eligible",
        "fits": outcome == "bind",
        "message": "0/5000 nodes are available: 5000 Insufficient cpu.",
        "rule_set_id": 1 + (number % 97 == 0) + (number % 89 == 0),
        "snapshot_digest": _digest("snapshot", number),
        "base_revision": number,
        "revision": number + 1,
        "seed": number,
        "evaluate_all": False,
        "hypothetical": False,
        "engine_version": "1",
        "origin": "decided",
    }


def _cycle(decision: Row) -> Row:
    return {
        "id": decision["id"],
        "cluster_id": 1,
        "at_ms": decision["now_ms"],
        "actor": "policy",
        "environment": "prod",
        "pod": decision["preemptor"],
        "attempt": None,
        "queued_ms": None,
        "base_revision": decision["base_revision"],
        "revision": decision["revision"],
        **WRITTEN_BY,
    }


def _filter(decision_id: int, position: int) -> Row:
    return {
        "decision_id": decision_id,
        "position": position,
        "phase": "filter",
        "filter": ("resources", "taints")[position],
        "code": 1,
        "reasons": '["Insufficient cpu"]',
        "node_count": NODES // 2,
    }


def _rule_id(decision_id: int, rule: str) -> str:
    if decision_id % 50_000 == 1:
        return RARE_RULE
    return rule if decision_id % 7 else "protect-gold"


def _rule(decision: Row, position: int) -> Row:
    section, rule = RULES[position]
    return {
        "decision_id": decision["id"],
        "position": position,
        "cluster_id": 1,
        "rule_set_id": decision["rule_set_id"],
        "hypothetical": False,
        "section": section,
        "rule": _rule_id(decision["id"], rule),
        "verdict": "allow",
        "reason": "",
        "inputs": '{"preemptor.preemptionPolicy":"PreemptLowerPriority"}',
    }


def _candidate(decision_id: int, position: int, chance: random.Random) -> Row:
    victims = [f"team-{position}/web-{decision_id}-{k}" for k in range(2)]
    return {
        "decision_id": decision_id,
        "position": position,
        "node": _node(chance.randrange(NODES)),
        "victim_count": 2,
        "pdb_violations": 0,
        "eliminated_by": "fewest-victims" if position else "",
        "criteria_values": f"[0,1,{position},2,1760000000000]",
        "victims": json.dumps(victims, separators=(",", ":")),
    }


def _victim(decision: Row, position: int, chance: random.Random) -> Row:
    namespace = f"team-{chance.randrange(NAMESPACES)}"
    run_seconds = chance.randrange(10_000)
    return {
        "decision_id": decision["id"],
        "position": position,
        "cluster_id": 1,
        "now_ms": decision["now_ms"],
        "evicted": True,
        "preemptor_namespace": decision["preemptor_namespace"],
        "pod": f"{namespace}/web-{decision['id']}-{position}",
        "namespace": namespace,
        "uid": f"uid-{decision['id']}-{position}",
        "node": decision["node"],
        "priority": 1,
        "priority_class": "low",
        "owner": f"ReplicaSet/web-{chance.randrange(300)}",
        "start_ms": decision["now_ms"] - run_seconds * 1_000,
        "run_seconds": run_seconds,
        "cpu_milli": 1_000,
        "memory_bytes": 2**30,
        "pdb_violating": position == 0 and decision["pdb_violations"] == 1,
        "already_terminating": False,
        "filter": "resources",
        "reasons": '["Insufficient cpu"]',
    }


def _nomination(decision: Row) -> Row:
    return {
        "cluster_id": 1,
        "made_revision": decision["revision"],
        "pod": decision["preemptor"],
        "uid": decision["preemptor_uid"],
        "priority": 100,
        "node": decision["node"],
        "made_decision": decision["id"],
        "made_ms": decision["now_ms"],
    }


def _nomination_end(decision: Row) -> Row:
    return {
        "cluster_id": 1,
        "made_revision": decision["revision"],
        "pod": decision["preemptor"],
        "ended_revision": decision["revision"] + WAITS,
        "ended_decision": None,
        "cause": "bound",
        "ended_ms": _at_ms(decision["id"] + WAITS),
    }


def _session(number: int) -> Row:
    """The session beside the decision with that number."""
    return {
        "id": number // SESSION_EVERY,
        "cluster_id": 1,
        "kind": "batch",
        "subject": "",
        "outcome": "",
        "digest": _digest("session", number),
        "at_ms": _at_ms(number),
        "now_ms": _at_ms(number),
        "actor": "policy",
        "environment": "prod",
        "rule_set_id": 1,
        "snapshot_digest": _digest("snapshot", number),
        "base_revision": number,
        "revision": number + 1,
        "seed": number,
        "bound_count": 0,
        "evicted_count": SESSION_EVICTIONS,
        "hypothetical": False,
        "engine_version": "1",
        "document": "{}",
        **WRITTEN_BY,
    }


def _step(number: int, position: int) -> Row:
    victim = (number + position) % RUNNING
    return {
        "session_id": number // SESSION_EVERY,
        "position": position,
        "action": "preempt",
        "operation": "evict",
        "queue": "default",
        "job": f"team-1/group-{number}",
        "task": f"{_namespace(victim)}/run-{victim:05d}",
        "node": _node(victim % NODES),
        # The pending pods that were made just before.
        "for_task": _preemptor(number - 1 - position // 4),
        "reason": "",
        "detail": "{}",
    }


def _add_decision(
    rows: Tables, number: int, last: int, chance: random.Random, *, saved_only: bool
) -> None:
    """The rows of a decision, and of what came with it."""
    preempts = _outcome(number) == "preempt"
    victims = 1 + number % 4 if preempts else 0
    decision = _decision(number, _node(chance.randrange(NODES)), victims)
    rows["cycles"].append(_cycle(decision))
    rows["decisions"].append(decision)
    rows["decision_filters"] += [_filter(number, k) for k in range(2)]
    rows["decision_rules"] += [_rule(decision, k) for k in range(2)]
    rows["victims"] += [_victim(decision, k, chance) for k in range(victims)]
    rows["revisions"].append(_revision(number + 1, decision["now_ms"], "decision"))
    gone = number + WAITS if number + WAITS <= last else None
    pending = _pod_version(decision["preemptor"], "", number, gone)
    pending["nominated_node"] = decision["node"] if preempts else ""
    rows["pods"].append(pending)
    if preempts:
        rows["nominations"].append(_nomination(decision))
        if gone is not None:
            rows["nomination_ends"].append(_nomination_end(decision))
    if number % SESSION_EVERY == 0:
        rows["sessions"].append(_session(number))
        rows["session_steps"] += [_step(number, k) for k in range(SESSION_EVICTIONS)]
    if not saved_only:
        _add_details(rows, decision, chance)


def _add_details(rows: Tables, decision: Row, chance: random.Random) -> None:
    """What no saved query reads."""
    number = decision["id"]
    rows["decision_traces"].append(
        {"decision_id": number, "document": _documents()[decision["outcome"]]}
    )
    kept = range(decision["kept_candidates"])
    rows["candidates"] += [_candidate(number, k, chance) for k in kept]


TABLES = (
    "cycles",
    "decisions",
    "decision_traces",
    "decision_filters",
    "decision_rules",
    "candidates",
    "victims",
    "revisions",
    "pods",
    "nominations",
    "nomination_ends",
    "sessions",
    "session_steps",
)


def _batches(decisions: int, *, saved_only: bool) -> Iterator[Tables]:
    chance = random.Random(1)
    yield _beginning()
    for start in range(1, decisions + 1, BATCH):
        rows: Tables = {name: [] for name in TABLES}
        for number in range(start, min(start + BATCH, decisions + 1)):
            _add_decision(rows, number, decisions, chance, saved_only=saved_only)
        yield rows


def _insert(connection: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    if rows:
        names = list(rows[0])
        values = ", ".join(f":{name}" for name in names)
        statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"
        connection.executemany(statement, rows)


def _drop_indexes(connection: sqlite3.Connection) -> list[str]:
    """The statements that make the indexes again."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    indexes = connection.execute(query).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    return [statement for _, statement in indexes]


def fill(path: Path, decisions: int, *, saved_only: bool = False) -> None:
    """Write the record into a new database file."""
    Store.open(str(path)).close()
    connection = sqlite3.connect(path)
    try:
        # Nobody minds if the file is lost, and references are right by construction.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA cache_size = -2000000")
        indexes = _drop_indexes(connection) if saved_only else []
        for rows in _batches(decisions, saved_only=saved_only):
            with connection:
                for table, of_table in rows.items():
                    _insert(connection, table, of_table)
        for index in indexes:
            connection.execute(index)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    with Store.open(str(path)) as store:
        # The rows were not written by the writer that keeps the totals.
        store.ledger.recount()


def _drop_postgres_indexes(connection: psycopg.Connection) -> list[str]:
    """The statements that make the indexes again, on every partition of their tables."""
    query = """
        SELECT i.oid::regclass::text, pg_get_indexdef(i.oid)
        FROM pg_class i JOIN pg_index x ON x.indexrelid = i.oid
        WHERE i.relnamespace = 'public'::regnamespace AND NOT i.relispartition
            AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.oid)
    """
    indexes = connection.execute(query).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    return [statement.replace(" ON ONLY ", " ON ") for _, statement in indexes]


def fill_postgres(url: str, decisions: int, *, saved_only: bool = False) -> None:
    """Write the record into an empty database, as a superuser of the server."""
    import psycopg

    Store.open(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        # References are right by construction.
        connection.execute("SET session_replication_role = replica")
        indexes = _drop_postgres_indexes(connection) if saved_only else []
        for rows in _batches(decisions, saved_only=saved_only):
            with connection.transaction(), connection.cursor() as cursor:
                for table, of_table in rows.items():
                    if of_table:
                        names = ", ".join(of_table[0])
                        with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
                            for row in of_table:
                                copy.write_row(tuple(row.values()))
        for index in indexes:
            connection.execute(index)
    with Store.open(url) as store:
        store.ledger.recount()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


# The questions


@dataclass(frozen=True)
class Question:
    """Something that is asked, and the number of rows that come back."""

    group: str
    name: str
    ask: Callable[[], int]


def _decisions(store: Store, **wanted: Any) -> int:
    return len(store.read.decisions(limit=50, **wanted))


def _sql(store: Store, query: str, parameters: Mapping[str, Any]) -> int:
    with store.sql(query, parameters, trust_connection=True) as result:
        return sum(1 for _ in result)


def _command(db: str) -> int:
    command = [sys.executable, "-m", "policy", "decisions", "--db", db, "-o", "json"]
    command += ["--limit", "50"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return len(json.loads(done.stdout))


def decision_lists(store: Store, db: str, last: int) -> Iterator[Question]:
    """`policy decisions --limit 50`, plain and with each filter."""
    end = _at_ms(last)
    some = _at_ms(last // 3)
    digest = _digest("rules", 2)[:19]
    filters: dict[str, dict[str, Any]] = {
        "no filter": {},
        "--cluster": {"cluster": "default"},
        "--since, the last hour": {"since_ms": end - 3_600_000},
        "--since --until, an hour long ago": {"since_ms": some, "until_ms": some + 3_600_000},
        "--namespace": {"namespace": "team-7"},
        "--namespace, none such": {"namespace": "nowhere"},
        "--node": {"node": _node(77)},
        "--rules, by name": {"rule_set": "rules-3"},
        "--rules, by digest": {"rule_set": digest},
        "--outcome preempt": {"outcome": "preempt"},
        "--outcome bind": {"outcome": "bind"},
        "--outcome error, none such": {"outcome": "error"},
        "preemptor": {"preemptor": _preemptor(77)},
    }
    yield Question("decisions", "policy decisions --limit 50", partial(_command, db))
    for name, wanted in filters.items():
        yield Question("decisions", name, partial(_decisions, store, **wanted))
        if wanted and "cluster" not in wanted:
            inside = {"cluster": "default", **wanted}
            yield Question("decisions", f"{name} --cluster", partial(_decisions, store, **inside))


VIEW_QUERIES = {
    "v_preemptions, the latest 50": """
        SELECT * FROM v_preemptions ORDER BY now_ms DESC LIMIT 50
    """,
    "v_preemptions, of the last day": """
        SELECT * FROM v_preemptions WHERE cluster = 'default' AND now_ms >= :day ORDER BY now_ms
    """,
    "v_preemptions, how many in the last month": """
        SELECT count(*) FROM v_preemptions WHERE now_ms >= :month
    """,
    "v_preemptions, how many ever": "SELECT count(*) FROM v_preemptions",
    "v_victims, the latest 50": "SELECT * FROM v_victims ORDER BY now_ms DESC LIMIT 50",
    "v_victims, of one workload": """
        SELECT * FROM v_victims
        WHERE cluster = 'default' AND victim_namespace = 'team-7'
              AND victim_owner = 'ReplicaSet/web-7'
        ORDER BY now_ms DESC
        LIMIT 50
    """,
    "v_victims, by namespace in the last week": """
        SELECT victim_namespace, count(*) FROM v_victims
        WHERE cluster = 'default' AND now_ms >= :week
        GROUP BY victim_namespace
    """,
    "v_who_preempts_whom, the worst 20": """
        SELECT * FROM v_who_preempts_whom ORDER BY evictions DESC LIMIT 20
    """,
    "v_who_preempts_whom, of one namespace": """
        SELECT * FROM v_who_preempts_whom
        WHERE cluster = 'default' AND victim_namespace = 'team-7'
        ORDER BY evictions DESC
    """,
    "v_pdb_violations, the latest 50": """
        SELECT * FROM v_pdb_violations ORDER BY now_ms DESC LIMIT 50
    """,
    "v_pdb_violations, by namespace": """
        SELECT victim_namespace, count(*) FROM v_pdb_violations GROUP BY victim_namespace
    """,
    "v_preemptions_hourly, of the last week": """
        SELECT * FROM v_preemptions_hourly WHERE cluster = 'default' AND hour_ms >= :week
    """,
    "v_preemptions_hourly, all": "SELECT * FROM v_preemptions_hourly ORDER BY hour_ms",
    "v_tie_breakers, all": "SELECT * FROM v_tie_breakers",
    "v_rule_usage, all": "SELECT * FROM v_rule_usage",
    "v_nominations, of one pod": """
        SELECT * FROM v_nominations WHERE cluster = 'default' AND pod = :pod
    """,
    "v_nominations, those that stand": """
        SELECT * FROM v_nominations WHERE cluster = 'default' AND ended_by IS NULL
    """,
    "v_cluster_at, pods of the newest revision": """
        SELECT key, node FROM v_cluster_at
        WHERE cluster = 'default' AND kind = 'Pod' AND revision = :newest
    """,
    "v_cluster_at, pods half way back": """
        SELECT key, node FROM v_cluster_at
        WHERE cluster = 'default' AND kind = 'Pod' AND revision = :half
    """,
}


def view_queries(store: Store, last: int) -> Iterator[Question]:
    """Typical queries of each view."""
    parameters = {
        "day": _at_ms(last) - DAY_MS,
        "week": _at_ms(last) - 7 * DAY_MS,
        "month": _at_ms(last) - 30 * DAY_MS,
        "pod": _preemptor(80),
        "newest": last + 1,
        "half": last // 2,
    }
    for name, query in VIEW_QUERIES.items():
        used = {key: value for key, value in parameters.items() if f":{key}" in query}
        yield Question("views", name, partial(_sql, store, query, used))


def saved(store: Store, last: int) -> Iterator[Question]:
    """Each saved query, over the last days and over the whole record."""
    for query in saved_queries().values():
        everything = {name: DEFAULTS[name] for name in query.parameters}
        for days in RECENT_DAYS if "since" in everything else ():
            recent = everything | {"since": _at_ms(last) - days * DAY_MS}
            yield Question(
                "saved", f"{query.name} --since {days}d", partial(_sql, store, query.sql, recent)
            )
        yield Question("saved", query.name, partial(_sql, store, query.sql, everything))


# Measuring


def _cpu_seconds() -> float:
    """Of this process and of those that it ran."""
    return sum(os.times()[:4])


def _median_ms(seconds: list[float]) -> float:
    return round(1_000 * statistics.median(seconds), 1)


def measure(question: Question) -> dict[str, Any]:
    """The median time of an answer, and its rows."""
    seconds: list[float] = []
    busy: list[float] = []
    rows = 0
    for _ in range(RUNS):
        start, cpu_start = time.perf_counter(), _cpu_seconds()
        rows = question.ask()
        seconds.append(time.perf_counter() - start)
        busy.append(_cpu_seconds() - cpu_start)
        if seconds[-1] > LONG_SECONDS:
            break
    return {
        "group": question.group,
        "question": question.name,
        "rows": rows,
        "median_ms": _median_ms(seconds),
        "cpu_ms": _median_ms(busy),
        "runs": len(seconds),
    }


def measure_all(db: str, last: int, *, saved_only: bool) -> list[dict[str, Any]]:
    """The figures of all questions, printed as they come."""
    figures = []
    with Store.open(db, read_only=True) as store:
        others = (*decision_lists(store, db, last), *view_queries(store, last))
        for question in (*(() if saved_only else others), *saved(store, last)):
            figures.append(measure(question))
            print(line(figures[-1]), flush=True)
    return figures


def line(figure: dict[str, Any]) -> str:
    """A line of the table; what misses the mark is marked."""
    missed = "  over the mark" if figure["median_ms"] >= MARK_MS else ""
    return (
        f"{figure['group']:<10} {figure['question']:<52} {figure['rows']:>6} rows"
        f" {figure['median_ms']:>10.1f} ms{missed}"
    )


def _machine() -> dict[str, Any]:
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cpu": model,
        "cores": os.cpu_count(),
    }


def _gigabytes(db: str) -> float:
    if "://" not in db:
        return Path(db).stat().st_size / 1e9
    with Store.open(db, read_only=True) as store, store.sql(_SIZE, trust_connection=True) as result:
        [[size]] = result
    return int(size) / 1e9


def run(db: str, decisions: int, *, saved_only: bool = False) -> dict[str, Any]:
    """Fill the database, a file or a URL of an empty one, unless it is there; ask all questions."""
    start = time.perf_counter()
    if "://" in db:
        fill_postgres(db, decisions, saved_only=saved_only)
    elif not Path(db).exists():
        fill(Path(db), decisions, saved_only=saved_only)
    with Store.open(db) as store:
        newest = store.read.decisions(limit=1)
    if not newest or newest[0].id != decisions:
        raise SystemExit(f"{db} holds another record than one of {decisions} decisions")
    filled = time.perf_counter() - start
    gigabytes = round(_gigabytes(db), 2)
    print(f"{decisions} decisions, {gigabytes} GB, ready after {filled:.0f} s", flush=True)
    figures = measure_all(db, decisions, saved_only=saved_only)
    over = [figure["question"] for figure in figures if figure["median_ms"] >= MARK_MS]
    return {
        "machine": _machine(),
        "decisions": decisions,
        "database_gb": gigabytes,
        "mark_ms": MARK_MS,
        "over_the_mark": over,
        "results": figures,
    }


def saved_seconds(db: str, decisions: int, *, saved_only: bool) -> list[float]:
    """The slowest and the median saved query over the whole record; the slowest of 7 and 90 days.

    In seconds by the clock.
    """
    rows = run(db, decisions, saved_only=saved_only)["results"]
    taken = {row["question"]: row["median_ms"] / 1000 for row in rows if row["group"] == "saved"}
    recent = [[t for name, t in taken.items() if name.endswith(f" {n}d")] for n in RECENT_DAYS]
    whole = [t for name, t in taken.items() if " --since" not in name]
    return [max(whole), statistics.median(whole), *map(max, recent)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=1_000_000, metavar="N")
    parser.add_argument(
        "--database",
        metavar="PATH",
        help="make the database here and keep it, or ask the one that is here; "
        "a temporary file by default",
    )
    parser.add_argument("--output", type=Path, metavar="JSON", help="write the figures here too")
    parser.add_argument(
        "--postgres", action="store_true", help="make the record on a Postgres server instead"
    )
    parser.add_argument(
        "--saved-only",
        action="store_true",
        help="leave out traces and candidates, which no saved query reads, and ask only those",
    )
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.postgres:
            db = stack.enter_context(postgres.database())
        else:
            db = options.database
            db = db or stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"
        document = run(db, options.decisions, saved_only=options.saved_only)
    if options.output:
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
