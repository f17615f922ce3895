"""Two records that differ in what is hidden from a limited viewer are the same to them."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from policy.server.app import build
from policy.server.config import Config
from policy.server.security.access import Access
from policy.server.security.tokens import Role, TokenFile
from policy.server.service import PolicyService
from policy.store import Store
from tests.acceptance.test_serve_sessions import hold
from tests.contract.builders import NOW
from tests.contract.filled import fill, fill_more

VIEWERS = (("shop",), ("jobs",), ("team",), ("lab", "ml"), ("nothing",))
"""The namespaces that each may see, of shop, jobs, team, lab and ml."""

OTHERWISE = (
    "UPDATE victims SET owner = 'Job/other', priority = priority + 1, priority_class = 'other',"
    " start_ms = start_ms - 1, run_seconds = run_seconds + 1, uid = 'other'"
    " WHERE namespace NOT IN ({own})",
    "UPDATE decisions SET preemptor_uid = 'other', preemptor_priority = preemptor_priority + 1"
    " WHERE preemptor_namespace NOT IN ({own})",
    "UPDATE decisions SET decided_by = 'other', message = 'other', victim_count = victim_count + 1,"
    " candidate_count = candidate_count + 5, pdb_violations = pdb_violations + 3",
    "UPDATE candidates SET node = 'other' || position, victims = '[]', victim_count = 9",
    "UPDATE decision_rules SET rule = 'other', reason = 'other', inputs = '{{}}'",
    "DELETE FROM candidate_violations",
    "DELETE FROM decision_filters",
    "UPDATE nominations SET priority = priority + 1, node = 'other'"
    " WHERE substr(pod, 1, instr(pod, '/') - 1) NOT IN ({own})",
    "UPDATE observations SET preemptor_uid = 'other', preemptor_priority = 3"
    " WHERE preemptor_namespace NOT IN ({own})",
    "UPDATE observations SET scheduler = 'other', reason = 'other', evidence = '{{}}',"
    " victim_count = victim_count + 1",
    "UPDATE observed_victims SET owner = 'Job/other', priority = 9, node = 'other', uid = 'other'"
    " WHERE namespace NOT IN ({own})",
    "UPDATE hour_totals SET preemptions = preemptions + 5, victims = victims + 5",
    "UPDATE decision_totals SET decisions = decisions + 5",
    "UPDATE eviction_totals SET evictions = evictions + 5 WHERE workload_id IN"
    " (SELECT id FROM evicted_workloads WHERE namespace NOT IN ({own}))",
    "UPDATE environments SET name = name || '-other'",
    "UPDATE activations SET reason = 'other', actor = 'other'",
    "UPDATE cycles SET actor = 'other', environment = 'other', attempt = 9",
    "UPDATE extender_calls SET caller = 'other', request_bytes = 1, duration_us = 1, failure = 'x'",
    "UPDATE gaps SET reason = 'other'",
    "UPDATE sessions SET actor = 'other', bound_count = bound_count + 1,"
    " evicted_count = evicted_count + 1, document = '{{}}'",
    "UPDATE session_steps SET queue = 'other', detail = '{{}}'",
    "UPDATE session_steps SET node = 'other' WHERE"
    " substr(task, 1, instr(task, '/') - 1) NOT IN ({own})",
)
"""What may be otherwise in the record without a viewer of `own` seeing it."""

ADDED = {
    "victims": {"pod": "hidden/more", "namespace": "hidden", "node": "other"},
    "observed_victims": {"victim": "hidden/more", "namespace": "hidden", "node": "other"},
    "session_steps": {"operation": "evict", "task": "hidden/more", "job": "hidden/job"},
}
"""One more of each decision, observation and session, of another namespace."""

_LISTS = ("decisions", "observations", "groups", "sessions")
_NAMES = ("shop/web-2", "jobs/batch", "team/urgent", "lab/hit", "lab/waiting", "ml/train-0")


def addresses() -> Iterator[str]:
    """Where to begin; what they lead to follows."""
    yield from ("/", "/?days=7", "/decisions", "/observed", "/groups", "/sessions", "/sql", "/api")
    yield from ("/environments", "/rules", "/compare", "/simulations", "/nodes/n1", "/metrics")
    for one in _LISTS:
        yield from (f"/api/v1/{one}?limit=1", f"/api/v1/{one}?cluster=gangs")
        yield from (f"/api/v1/export/{one}", f"/api/v1/export/{one}?since=365d")
        yield from (f"/api/v1/{one}/{number}" for number in range(1, 5))
    for cluster in ("default", "gangs", "nope"):
        path = f"/api/v1/clusters/{cluster}/nominations"
        yield from (f"{path}?limit=1", f"{path}?standing=true", f"{path}?node=n1", f"{path}?pod=x")
        yield from (f"/?cluster={cluster}", f"/decisions?cluster={cluster}")
    for pod in _NAMES:
        namespace, _, name = pod.partition("/")
        yield from (f"/workloads/{pod}", f"/workloads/{namespace}/web?cluster=default")
        for filtered in ("pod", "preemptor", "victim"):
            wanted = f"{filtered}={quote(pod, safe='')}"
            yield from (f"/api/v1/decisions?{wanted}", f"/api/v1/observations?{wanted}")
        yield from (f"/decisions?namespace={namespace}", f"/observed?namespace={namespace}")
        yield f"/api/v1/groups?group={namespace}/{name}"
    yield from (f"/decisions?{one}" for one in ("outcome=not-carried-out", "node=n1", "rules=by"))
    tables = ("decisions", "victims", "batch_sessions", "batch_steps", "observations")
    yield from (f"/sql?q=SELECT+*+FROM+{table}&format=csv" for table in (*tables, "pods"))
    yield "/sql?q=SELECT+*+FROM+observed_victims"


def changed(db: Path, own: Sequence[str]) -> None:
    """Make everything otherwise that a viewer of these namespaces may not see."""
    given = ", ".join(f"'{name}'" for name in own)
    with closing(sqlite3.connect(db)) as record, record:
        for statement in OTHERWISE:
            record.execute(statement.format(own=given))
        for table, values in ADDED.items():
            parts = list(record.execute(f"PRAGMA table_info({table})"))
            columns = [part[1] for part in parts]
            for row in list(record.execute(f"SELECT * FROM {table} GROUP BY {columns[0]}")):
                more = {**dict(zip(columns, row, strict=True)), **values, "position": 90}
                marks = ", ".join("?" * len(columns))
                record.execute(f"INSERT INTO {table} VALUES ({marks})", list(more.values()))
        hidden = {"shop", "jobs", "team", "lab", "ml"} - {*own}
        texts = list(
            record.execute(
                "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
                " WHERE m.type = 'table' AND m.name <> 'clusters' AND c.type = 'TEXT'"
            )
        )
        for table, column in texts:
            _renamed(record, table, column, hidden)


def _renamed(record: sqlite3.Connection, table: str, column: str, hidden: set[str]) -> None:
    for name in hidden:
        path = {"old": f"{name}/", "new": f"other-{name}/", "name": name, "other": f"other-{name}"}
        place = f"UPDATE {table} SET {column} ="
        record.execute(f"{place} replace({column}, :old, :new)", path)
        record.execute(f"{place} :other WHERE {column} = :name", path)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """Decisions, observations and sessions, most of which concern several namespaces."""
    folder = tmp_path_factory.mktemp("indistinct")
    path = folder / "policy.db"
    shutil.copy(sqlite_template, path)
    with Store.open(str(path)) as store:
        fill(store)
        fill_more(store)
    hold(str(path), folder)
    return path


def seen(db: Path, tokens: Path, secret: str) -> dict[str, tuple[int, dict[str, str], str]]:
    """All that a viewer is answered, by address: status, head and body."""
    config = Config(db=str(db), tokens=tokens, spool=db.parent / "spool")

    async def got() -> dict[str, tuple[int, dict[str, str], str]]:
        service = PolicyService(config, clock=lambda: NOW + 3_600_000)
        service.open()
        app = build(service, Access(config, clock=service.clock))
        found: dict[str, tuple[int, dict[str, str], str]] = {}
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer {secret}", "Accept": "text/html"},
        ) as client:
            wanted = list(addresses())
            while wanted:
                address = wanted.pop()
                if address not in found:
                    answer = await client.get(address)
                    found[address] = (answer.status_code, dict(answer.headers), answer.text)
                    wanted += _links(answer)
        await service.close()
        return found

    return asyncio.run(got())


def _links(answer: httpx.Response) -> list[str]:
    """The addresses of the service that an answer leads to."""
    listed = answer.headers.get("content-type") == "application/json"
    document: Any = answer.json() if listed else {}
    named = [
        f"/api/v1/{name}/{one['id']}"
        for name in _LISTS
        if isinstance(document, dict)
        for one in document.get(name) or ()
    ]
    follows = re.findall(r"<(/[^>]*)>", answer.headers.get("link", ""))
    shown = re.findall(r'(?:href|action|hx-get)="(/[^"]*)"', answer.text)
    others = ("/static", "/login", "/logout", "/api/v1/openapi", "/api/v1/events")
    return [
        address
        for address in (*named, *follows, *map(unescape, shown))
        if not address.startswith(others)
    ]


@pytest.mark.parametrize("own", VIEWERS, ids="-".join)
def test_what_is_hidden_changes_no_answer(record: Path, tmp_path: Path, own: Sequence[str]) -> None:
    """To the byte, on all pages, in the API, in exports and SQL, and wherever they lead."""
    tokens = tmp_path / "tokens.json"
    secret = TokenFile(tokens).create("own", Role.VIEWER, namespaces=own, now_ms=1)
    other = tmp_path / "policy.db"
    shutil.copy(record, other)
    changed(other, own)
    assert seen(other, tokens, secret) == seen(record, tokens, secret)
