"""Batch sessions in the service: API and pages, for viewers of everything and of namespaces."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from policy.cli.app import run
from policy.server import own_sql
from policy.server.app import build
from policy.server.config import Config
from policy.server.security.access import Access
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.server.service import PolicyService
from tests.acceptance import test_batch_cli
from tests.acceptance.test_batch_cli import KUBE_BATCH
from tests.contract.test_ledger import tampering
from tests.support import serving
from tests.support.page_text import table, words
from tests.support.serving import Serving

RULES = "kube-batch-sample"
HELD = "2026-09-21T15:00:00Z"


def hold(db: str, folder: Path, *, cluster: str = "gangs", lab: str = "lab") -> None:
    """Three sessions: pods of namespace `lab` go for those of `ml`, which are bound then.

    lab: under this name.
    """
    items = json.dumps(
        {"kind": "List", "items": test_batch_cli.a_cluster(KUBE_BATCH, "kube-batch")}
    )
    dump = folder / f"{cluster}.json"
    dump.write_text(items.replace('"lab"', f'"{lab}"'))
    environment = f"{cluster}-batch"
    for command in (
        ("import", "--cluster", cluster, str(dump)),
        ("env", "create", environment, "--cluster", cluster),
        ("env", "activate", environment, RULES, "--reason", "test"),
        ("batch", "run", "--env", environment, "--until-settled", "--now", HELD),
    ):
        assert run([*command, "--db", db]) == 0


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`all` sees everything, the others the namespace of their name; `file`."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    seen = {"all": None, "lab": ["lab"], "ml": ["ml"], "empty": ["empty"]}
    made = {
        name: file.create(name, Role.VIEWER, namespaces=spaces, now_ms=1)
        for name, spaces in seen.items()
    }
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """The sessions of `hold`."""
    folder = tmp_path_factory.mktemp("sessions")
    path = folder / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    hold(str(path), folder)
    return str(path)


@pytest.fixture(scope="module")
def service(
    db: str, tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[Serving]:
    started = serving.serve(
        db, tmp_path_factory.mktemp("served"), "--tokens", tokens["file"], environment=""
    )
    started.ready()
    yield started
    assert started.stop() == 0


def own_number(tokens: dict[str, str], number: int) -> int:
    """The number of a session, as tokens see it that are limited to namespaces."""
    return serving.shown(tokens["file"], Numbered.SESSION, number)


def got(service: Serving, token: str, path: str) -> httpx.Response:
    return service.get(path, headers={"Authorization": f"Bearer {token}"})


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """What a command prints as JSON."""
    capsys.readouterr()
    assert run([*command, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- whoever sees everything ---------------------------------------------------------------------


def test_the_api_has_what_the_command_prints(
    service: Serving, tokens: dict[str, str], db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines and documents, value for value."""
    listed = got(service, tokens["all"], "/api/v1/sessions").json()
    assert listed == {"sessions": printed(capsys, "batch", "sessions", "--db", db)}
    assert [(one["id"], one["bound"], one["evicted"]) for one in listed["sessions"]] == [
        (3, 0, 0),
        (2, 2, 0),
        (1, 0, 2),
    ]
    for number in ("1", "2", "3"):
        whole = got(service, tokens["all"], f"/api/v1/sessions/{number}").json()
        assert whole == printed(capsys, "batch", "explain", number, "--db", db)


def test_lists_are_read_page_by_page(service: Serving, tokens: dict[str, str]) -> None:
    """Newest first; a full page names the next one; a cluster has its own list."""
    first = got(service, tokens["all"], "/api/v1/sessions?limit=2&cluster=gangs")
    target = "/api/v1/sessions?limit=2&cluster=gangs&after=2"
    assert first.headers["Link"] == f'<{target}>; rel="next"'
    last = got(service, tokens["all"], target)
    assert ("Link" in last.headers, [one["id"] for one in last.json()["sessions"]]) == (False, [1])
    assert got(service, tokens["all"], "/api/v1/sessions?limit=501").status_code == 400
    for path in ("/api/v1/sessions", "/sessions"):
        assert got(service, tokens["all"], f"{path}?cluster=nowhere").status_code == 404


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        *((number, f"there is no batch session {number}") for number in ("9", "0")),
        *((text, f"`{text}` is not a number") for text in ("x", "-1", "9" * 20, "1e0", "²")),
    ],
)
def test_what_is_no_session_is_not_found(
    service: Serving, tokens: dict[str, str], wanted: str, told: str
) -> None:
    answer = got(service, tokens["all"], f"/api/v1/sessions/{wanted}")
    assert (answer.status_code, answer.json()["detail"]) == (404, told)
    page = got(service, tokens["all"], f"/sessions/{wanted}")
    assert (page.status_code, told in words(page)) == (404, True)
    assert got(service, tokens["all"], "/api/v1/groups/1").status_code == 404


def test_the_list_leads_to_each_session(service: Serving, tokens: dict[str, str]) -> None:
    page = got(service, tokens["all"], "/sessions")
    at = "2026-09-21 15:00:00"
    rows = [(row[0], *row[2:5], row[6]) for row in table(page, "Sessions")]
    assert rows == [
        ("3", "0", "0", "gangs", RULES),
        ("2", "2", "0", "gangs", RULES),
        ("1", "0", "2", "gangs", RULES),
    ]
    assert table(page, "Sessions")[2][1] == at
    assert "No batch session" not in words(page)
    behind = got(service, tokens["all"], "/sessions?cluster=gangs&after=1")
    assert "No older session matches. Newest" in words(behind)


@pytest.mark.parametrize(("asked", "found"), [("since", [3, 2, 1]), ("until", [])])
def test_sessions_of_a_time_are_listed(
    service: Serving, tokens: dict[str, str], asked: str, found: list[int]
) -> None:
    """In the API, its export and the page; to whoever is limited of its own ones."""
    query = f"?{asked}=2026-09-21T15:00:00Z&cluster=gangs"
    listed = got(service, tokens["all"], f"/api/v1/sessions{query}").json()["sessions"]
    assert [one["id"] for one in listed] == found
    exported = got(service, tokens["all"], f"/api/v1/export/sessions{query}").text
    assert [json.loads(line) for line in exported.splitlines()] == listed
    page = got(service, tokens["all"], f"/sessions{query}")
    assert [link in page.text for link in ('href="/sessions/1"', "No session matches")] == [
        bool(found),
        not found,
    ]
    own = got(service, tokens["lab"], f"/api/v1/sessions{query}").json()["sessions"]
    assert [one["id"] for one in own] == [own_number(tokens, 1)] * bool(found)
    assert got(service, tokens["all"], f"/sessions{query}&group=a/b").status_code == 400


def test_the_page_of_a_session_says_what_it_did_and_why(
    service: Serving, tokens: dict[str, str]
) -> None:
    """One sentence, the queues before and after, why gangs wait, and each step."""
    page = got(service, tokens["all"], "/sessions/1")
    ended = "The session bound no pod and evicted 2 pods; 2 jobs still wait."
    assert f'<p class="sentence">{ended}</p>' in page.text
    assert "0 bound, 2 promised room that is being released, 2 evicted" in words(page)
    assert table(page, "Queues") == [
        ["bronze", "1", "cpu 2, memory 4Gi", "2.0000", "0.0000", "0", "2"],
        ["gold", "3", "cpu 6, memory 12Gi", "0.0000", "1.3333", "0", "0"],
    ]
    waits = (
        "ml/wide (queue gold): not enough of its pods found a node to start together;"
        " minimum 3, ready 1, promised 1, pending 1"
        " preempt found no node for ml/wide-2: 2 nodes: there is no pod to evict"
    )
    assert waits in words(page)
    evicted = [
        ["1", "reclaim", "evict", "lab/crunch", "lab/crunch-0", "n1", "ml/train-0"],
        ["3", "reclaim", "evict", "lab/crunch", "lab/crunch-1", "n1", "ml/wide-0"],
    ]
    only = "the only node that could be used"
    assert table(page, "Steps") == [
        [*evicted[0], "", "done", ""],
        ["2", "reclaim", "pipeline", "ml/train", "ml/train-0", "n1", "", "", "done", only],
        [*evicted[1], "", "done", ""],
        ["4", "reclaim", "pipeline", "ml/wide", "ml/wide-0", "n1", "", "", "done", only],
        ["5", "allocate", "allocate", "ml/train", "ml/train-1", "n2", "", "", "done", only],
        ["6", "allocate", "allocate", "ml/wide", "ml/wide-1", "n2", "", "", "done", only],
        [
            "7",
            "allocate",
            "reject",
            "ml/wide",
            "ml/wide-2",
            "",
            "",
            "",
            "failed",
            "2 nodes: too little room",
        ],
        [
            *("8", "preempt", "reject", "ml/wide", "ml/wide-2", "", "", "1", "failed"),
            "2 nodes: there is no pod to evict",
        ],
    ]
    effects = got(service, tokens["all"], "/sessions/1?show=effects")
    assert "Pods that were bound or evicted: 2 All 8 steps" in words(effects)
    assert table(effects, "Steps") == [[*row, "", "done", ""] for row in evicted]


def test_every_link_of_the_pages_leads_somewhere(service: Serving, tokens: dict[str, str]) -> None:
    """To pods, nodes, rules, the cluster and the JSON; and from where sessions are looked for."""
    starts = (
        "/sessions",
        "/sessions/1",
        "/decisions",
        "/groups",
        "/workloads/lab/crunch-0",
        "/environments/gangs-batch",
    )
    links = {
        path: {
            unescape(link)
            for link in re.findall(r'href="(/[^"#]*)', got(service, tokens["all"], path).text)
        }
        for path in starts
    }
    digest = got(service, tokens["all"], "/api/v1/sessions/1").json()["rule_set_digest"]
    assert links["/sessions/1"] >= {
        *("/workloads/lab/crunch-0", "/workloads/ml/train-0", "/nodes/n1"),
        *(f"/rules/{digest}".replace(":", "%3A"), "/sessions?cluster=gangs"),
        *("/api/v1/sessions/1", "/sessions/1?show=effects", "/environments/gangs-batch"),
    }
    assert "/sessions" in links["/decisions"] & links["/groups"]
    assert "/sessions/1" in links["/workloads/lab/crunch-0"]
    assert "/sessions?cluster=gangs" in links["/environments/gangs-batch"]
    every = set().union(*links.values())
    statuses = {link: got(service, tokens["all"], link).status_code for link in every}
    assert statuses == dict.fromkeys(every, 200)


def test_a_session_that_tried_nothing_says_which_pods_take_part(
    tmp_path: Path, sqlite_template: Path, tokens: dict[str, str]
) -> None:
    """Pods of another scheduler wait, and are left out."""
    path = tmp_path / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    waiting = [
        test_batch_cli.a_node("n1"),
        test_batch_cli.a_queue(KUBE_BATCH, "gold", 1),
        test_batch_cli.a_group(KUBE_BATCH, "ml/train", 1, "gold"),
        test_batch_cli.a_task("ml/train-0", "train", scheduler="default-scheduler"),
    ]
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps({"kind": "List", "items": waiting}))
    for command in (("import", str(dump)), ("batch", "run", "--rules", RULES, "--now", HELD)):
        assert run([*command, "--db", str(path)]) == 0
    started = serving.serve(str(path), tmp_path, "--tokens", tokens["file"], environment="")
    started.ready()
    try:
        page = words(got(started, tokens["all"], "/sessions/1"))
    finally:
        started.stop()
    assert page.partition("taken back together. ")[2].partition(" Document as JSON")[0] == (
        "It tried nothing: no pod that takes part waited. Those take part that have"
        " `schedulerName: kube-batch` and `status.phase: Pending`; other pods that wait are left"
        " out."
    )


# --- long sessions -------------------------------------------------------------------------------


MORE_STEPS = """
INSERT INTO session_steps
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 441)
SELECT s.session_id, 7 + n.i, s.action, s.operation, s.queue, s.job, s.task || '-' || n.i, s.node,
  s.for_task, s.reason, s.detail
FROM n JOIN session_steps s
  ON s.session_id = 1 AND s.position = CASE n.i % 2 WHEN 1 THEN 0 ELSE 4 END
"""
"""Evictions of namespace lab and placements of ml in turn, behind the eight steps of session 1."""


def test_long_sessions_are_read_page_by_page(
    db: str, tmp_path: Path, tokens: dict[str, str]
) -> None:
    """Every step is on one page; a limited viewer's pages count its own steps alone."""
    longer = tmp_path / "longer.db"
    longer.write_bytes(Path(db).read_bytes())
    with tampering(str(longer)) as connection:
        connection.execute(text(MORE_STEPS))
        connection.commit()
    started = serving.serve(str(longer), tmp_path, "--tokens", tokens["file"], environment="")
    started.ready()
    mine = f"/sessions/{own_number(tokens, 1)}"
    try:
        first = words(got(started, tokens["all"], "/sessions/1"))
        pages = followed(started, tokens["all"], "/sessions/1")
        own = followed(started, tokens["lab"], mine)
        effects = followed(started, tokens["all"], "/sessions/1?show=effects")
        last = followed(started, tokens["all"], "/sessions/1?after=248")
    finally:
        assert started.stop() == 0
    assert "Steps: 449, 200 to a page" in first
    assert [len(rows) for rows, _ in pages] == [200, 200, 49]
    assert [row[0] for rows, _ in pages for row in rows] == [str(i) for i in range(1, 450)]
    assert [address for _, address in pages[:-1]] == [
        "/sessions/1?after=199",
        "/sessions/1?after=399",
    ]
    assert [(len(rows), address) for rows, address in last] == [(200, "")]
    assert [len(rows) for rows, _ in effects] == [200, 23]
    assert [len(rows) for rows, _ in own] == [200, 23]
    assert [row[0] for rows, _ in own for row in rows] == [str(i) for i in range(1, 224)]
    assert [address for _, address in own] == [f"{mine}?after=200", ""]


def followed(service: Serving, token: str, path: str) -> list[tuple[list[list[str]], str]]:
    """The steps of each page with the address of the next one."""
    found = []
    while path:
        page = got(service, token, path)
        assert page.status_code == 200, page.text
        link = re.search(r'rel="next" href="([^"#]+)#steps"', page.text)
        path = unescape(link[1]) if link else ""
        found.append((table(page, "Steps"), path))
    return found


# --- viewers who are limited to namespaces -------------------------------------------------------

LINE = {"cluster": "gangs", "now": HELD, "rule_set": RULES, "bound": 0, "evicted": 2}


def test_a_limited_viewer_sees_its_own_pods_alone(service: Serving, tokens: dict[str, str]) -> None:
    """Of sessions that bound or evicted one; nothing of others, neither names nor counts."""
    first, second = own_number(tokens, 1), own_number(tokens, 2)
    line = {"id": first, **LINE}
    assert got(service, tokens["lab"], "/api/v1/sessions").json() == {"sessions": [line]}
    step = {
        "action": "reclaim",
        "operation": "evict",
        "job": "lab/crunch",
        "task": "lab/crunch-0",
        "node": "n1",
        "claimant": None,
        "carried_out": True,
    }
    assert got(service, tokens["lab"], f"/api/v1/sessions/{first}").json() == {
        **line,
        "steps": [step, {**step, "task": "lab/crunch-1"}],
    }
    bound = {**LINE, "id": second, "bound": 2, "evicted": 0}
    assert got(service, tokens["ml"], "/api/v1/sessions").json() == {"sessions": [bound]}
    step = {**step, "action": "allocate", "operation": "bind", "job": "ml/train", "claimant": ""}
    whole = got(service, tokens["ml"], f"/api/v1/sessions/{second}").json()
    nodes = [one.pop("node") for one in whole["steps"]]
    del step["node"]
    assert set(nodes) <= {"n1", "n2"}
    assert whole == {
        **bound,
        "steps": [{**step, "task": "ml/train-0"}, {**step, "task": "ml/train-1"}],
    }
    assert got(service, tokens["empty"], "/api/v1/sessions").json() == {"sessions": []}
    page = words(got(service, tokens["empty"], "/sessions"))
    assert "No session bound or evicted a pod of your namespaces." in page


def test_a_limited_viewers_pages_name_nobody_else(service: Serving, tokens: dict[str, str]) -> None:
    """And another session is as one that does not exist."""
    number, other = own_number(tokens, 1), own_number(tokens, 2)
    page = got(service, tokens["lab"], f"/sessions/{number}")
    assert table(page, "Steps") == [
        ["1", "reclaim", "evict", "lab/crunch", "lab/crunch-0", "n1", "hidden", "yes"],
        ["2", "reclaim", "evict", "lab/crunch", "lab/crunch-1", "n1", "hidden", "yes"],
    ]
    assert "Of your namespaces, 0 pods were bound and 2 evicted." in words(page)
    others = ("ml/", "train", "wide-", "gold", "bronze", "root", "gangs-batch")
    lists = ("/sessions", "/api/v1/sessions")
    paths = (*lists, *(f"{path}/{number}" for path in lists))
    texts = [got(service, tokens["lab"], path).text.partition("<main")[::2] for path in paths]
    told = [main or head for head, main in texts]
    assert [word for text in told for word in others if word in text] == []
    for path in lists:
        absent = got(service, tokens["lab"], f"{path}/9")
        for n in (2, other, other + 1):
            hidden = got(service, tokens["lab"], f"{path}/{n}")
            assert (hidden.status_code, hidden.text) == (404, absent.text.replace("n 9", f"n {n}"))
    links = re.findall(r'href="(/[^"#]*)', page.text)
    statuses = {link: got(service, tokens["lab"], link).status_code for link in links}
    assert statuses == dict.fromkeys(links, 200)


def selected(service: Serving, token: str, statement: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{service.url}/api/v1/sql"
    found: dict[str, Any] = service.client.post(
        url, json={"sql": statement}, headers=headers
    ).json()
    return found


def test_sql_of_a_limited_viewer_has_its_sessions(service: Serving, tokens: dict[str, str]) -> None:
    """What the documents have, and of that as much as the statement names."""
    first, second = own_number(tokens, 1), own_number(tokens, 2)
    found = selected(service, tokens["lab"], "SELECT * FROM batch_sessions")
    assert found == {
        "columns": ["id", "cluster", "at", "rule_set", "bound", "evicted"],
        "rows": [[first, "gangs", HELD, RULES, 0, 2]],
        "more": False,
        "copied": {"batch_sessions": 1},
        "older_left_out": [],
    }
    steps = [
        [first, "lab", pod, "evict", "reclaim", "n1", "lab/crunch", None, 1]
        for pod in ("lab/crunch-0", "lab/crunch-1")
    ]
    assert selected(service, tokens["lab"], "SELECT * FROM Batch_Steps")["rows"] == steps
    bound = "SELECT batch_session, operation, pod, claimant FROM batch_steps ORDER BY pod"
    assert selected(service, tokens["ml"], bound)["rows"] == [
        [second, "bind", pod, ""] for pod in ("ml/train-0", "ml/train-1")
    ]
    joined = (
        "SELECT s.cluster, count(*) FROM batch_steps t JOIN batch_sessions s"
        " ON s.id = t.batch_session GROUP BY 1"
    )
    found = selected(service, tokens["lab"], joined)
    copied = {"batch_sessions": 1, "batch_steps": 2}
    assert (found["rows"], found["copied"]) == ([["gangs", 2]], copied)
    assert selected(service, tokens["empty"], joined)["rows"] == []


ONE_POD_EACH = """
UPDATE session_steps SET task = 'x/y'
WHERE reason = '' AND operation IN ('evict', 'bind') AND task LIKE '%-0' AND job <> 'ml/wide'
"""
"""One of the two that each of the sessions 1 and 2 evicted, or bound."""


@pytest.mark.parametrize(
    ("newest", "steps", "copied", "left_out"),
    [
        (2, 2, {"batch_sessions": 2, "batch_steps": 2}, []),
        (1, 2, {"batch_sessions": 1, "batch_steps": 1}, ["batch_sessions", "batch_steps"]),
        (2, 1, {"batch_sessions": 1, "batch_steps": 1}, ["batch_sessions", "batch_steps"]),
        (2, 0, {"batch_sessions": 1, "batch_steps": 1}, ["batch_sessions", "batch_steps"]),
    ],
)
def test_sql_on_the_newest_sessions_says_so(
    db: str,
    tmp_path: Path,
    tokens: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    newest: int,
    steps: int,
    copied: dict[str, int],
    left_out: list[str],
) -> None:
    """Two sessions, each of which did something to one pod of the viewer's."""
    path = tmp_path / "policy.db"
    path.write_bytes(Path(db).read_bytes())
    with tampering(str(path)) as connection:
        connection.execute(text(ONE_POD_EACH))
        connection.commit()
    monkeypatch.setattr(own_sql, "NEWEST", newest)
    monkeypatch.setattr(own_sql, "_STEPS", steps)
    made = TokenFile(tmp_path / "tokens.json")
    secret = made.create("x", Role.VIEWER, namespaces=["x"], now_ms=1)
    config = Config(db=str(path), tokens=tmp_path / "tokens.json", spool=tmp_path / "spool")
    query = "SELECT 1 FROM batch_sessions, batch_steps"

    async def asked() -> tuple[httpx.Response, httpx.Response]:
        service = PolicyService(config)
        service.open()
        app = build(service, Access(config, clock=service.clock))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer {secret}"},
        ) as client:
            told = await client.post("/api/v1/sql", json={"sql": query})
            page = await client.get("/sql", params={"q": query}, headers={"Accept": "text/html"})
        await service.close()
        return told, page

    told, page = asyncio.run(asked())
    found = told.json()
    assert (found["copied"], found["older_left_out"]) == (copied, left_out)
    said = "Older ones are left out of batch_sessions, batch_steps."
    assert (said in words(page)) is bool(left_out)


def test_exports_and_events_have_what_the_lists_have(
    service: Serving, tokens: dict[str, str]
) -> None:
    for name in ("all", "lab", "empty"):
        listed = got(service, tokens[name], "/api/v1/sessions").json()["sessions"]
        whole = got(service, tokens[name], "/api/v1/export/sessions?cluster=gangs")
        assert [json.loads(line) for line in whole.text.splitlines()] == (
            listed if name != "empty" else []
        )
    newest = got(service, tokens["all"], "/api/v1/export/sessions?limit=1").text
    assert json.loads(newest)["id"] == 3
    assert got(service, tokens["all"], "/api/v1/export/sessions?cluster=no").status_code == 404
    sent = {name: events(service, tokens[name], count) for name, count in (("all", 3), ("lab", 1))}
    lines = got(service, tokens["all"], "/api/v1/sessions").json()["sessions"]
    assert sent["all"] == [("session", line) for line in reversed(lines)]
    assert sent["lab"] == [("session", {"id": own_number(tokens, 1), **LINE})]


def events(service: Serving, token: str, count: int) -> list[tuple[str, Any]]:
    """The first events of a stream from the beginning."""
    headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": "0-0"}
    found: list[tuple[str, Any]] = []
    url = f"{service.url}/api/v1/events"
    with service.client.stream("GET", url, headers=headers) as answer:
        kind = ""
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            kind = value if name == "event" else kind
            if name == "data":
                found.append((kind, json.loads(value)))
            if len(found) == count:
                break
    return found


def test_what_was_not_carried_out_is_said(tmp_path: Path, tokens: dict[str, str]) -> None:
    """To who sees everything with the revision that shows it, to a limited viewer of its pods."""
    path = str(tmp_path / "policy.db")
    hold(path, tmp_path)
    shown = tmp_path / "again.json"
    pod = test_batch_cli.a_task("lab/crunch-0", "crunch", scheduler="kube-batch", node="n1")
    shown.write_text(json.dumps(pod))
    assert run(["import", "--cluster", "again", str(tmp_path / "gangs.json"), "--db", path]) == 0
    held = ("batch", "run", "--cluster", "again", "--rules", RULES, "--now", HELD)
    assert run([*held, "--db", path]) == 0
    assert run(["import", "--cluster", "again", str(shown), "--db", path]) == 0
    started = serving.serve(path, tmp_path, "--tokens", tokens["file"], environment="")
    started.ready()
    try:
        page = got(started, tokens["all"], "/sessions/4")
        own = got(started, tokens["lab"], f"/api/v1/sessions/{own_number(tokens, 4)}").json()
    finally:
        assert started.stop() == 0
    assert "not carried out: lab/crunch-0 still ran at revision 3" in words(page)
    assert [row[8] for row in table(page, "Steps")][:3] == ["not carried out", "done", "done"]
    assert [(s["task"], s["carried_out"]) for s in own["steps"]] == [
        ("lab/crunch-0", False),
        ("lab/crunch-1", True),
    ]


# --- a record that somebody changed --------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("sessions", "document", "{}"),
        ("sessions", "document", "no JSON"),
        ("sessions", "document", "[]"),
        ("session_steps", "detail", "{}"),
    ],
)
def test_changed_rows_of_a_session_are_said_to_be_damaged(
    db: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    table: str,
    column: str,
    value: str,
) -> None:
    """By the command, the API and the page alike; other sessions are shown."""
    path = tmp_path / "policy.db"
    path.write_bytes(Path(db).read_bytes())
    key = "id" if table == "sessions" else "session_id"
    with tampering(str(path)) as connection:
        changed = text(f"UPDATE {table} SET {column} = :value WHERE {key} = 1")
        assert connection.execute(changed, {"value": value}).rowcount
        connection.commit()
    said = "the rows of session 1 are not those of a session"
    capsys.readouterr()
    assert run(["batch", "explain", "1", "--db", str(path)]) == 1
    assert said in capsys.readouterr().err
    started = serving.serve(str(path), tmp_path, environment="")
    try:
        started.ready()
        document = started.get("/api/v1/sessions/1")
        page = started.get("/sessions/1")
        other = started.get("/sessions/2")
    finally:
        started.stop()
    assert (document.status_code, said in document.json()["detail"]) == (500, True)
    assert page.status_code == 500
    assert said in unescape(page.text)
    assert other.status_code == 200
