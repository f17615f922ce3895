"""What the service refuses: the list of attacks, each over a real socket."""

from __future__ import annotations

import hmac
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest

from policy.server.http import POLICY, part_of
from policy.server.own_sql import TABLES
from policy.server.security.tokens import Role, TokenFile, find
from policy.store import Store
from tests.support import serving
from tests.support.builders import a_pod, objects
from tests.support.serving import Serving, preempts

if TYPE_CHECKING:
    from playwright.sync_api import Browser


FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1"},
    # Where the address is not https, and where the browser is old.
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
)
"""What browsers say of a form that another site sends."""


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    made["limited"] = file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1)
    made["revoked"] = file.create("revoked", Role.ADMIN, namespaces=None, now_ms=1)
    file.revoke("revoked", now_ms=2)
    return {**made, "file": str(file._path)}


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, secrets: dict[str, str]
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("attacked")
    db = str(folder / "policy.db")
    shutil.copy(sqlite_template, db)
    started = serving.serve(serving.filled(db), folder, "--tokens", secrets["file"])
    started.ready()
    # The second is by a pod of another namespace than team-a, with victims of both.
    for call in (preempts("b")[0]["request"], preempts("b")[4]["request"]):
        answer = started.post("/extender/preempt", call, headers=bearer(secrets["extender"]))
        assert answer.status_code == 200
    yield started
    log = started.log.read_text()
    assert started.stop() == 0
    assert [s for name, s in secrets.items() if name != "file" and s in log] == []
    assert log.partition("Traceback")[1:] == ("", "")


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def raw(service: Serving, data: bytes, *, seconds: float = 10) -> bytes:
    """What the socket gives to these bytes, until it is closed, reset or silent."""
    host, _, port = service.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as sock:
        found = b""
        try:
            sock.sendall(data)
            while part := sock.recv(65536):
                found += part
        except (TimeoutError, ConnectionError):
            pass
        return found


def is_closed(client: socket.socket) -> bool:
    """Has the service closed the connection, by what has come over it by now?"""
    client.setblocking(False)
    try:
        while client.recv(65536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


READS = (
    "decisions",
    "decisions/1",
    "export/decisions.csv",
    "overview",
    "environments",
    "rule-sets",
    "ledger",
    "openapi.json",
    "events",
)


@pytest.mark.parametrize("path", READS)
def test_nothing_is_read_without_a_valid_token(
    service: Serving, secrets: dict[str, str], path: str
) -> None:
    """No token, a wrong one, a revoked one, half of one: 401; the extender's: 403."""
    right = secrets["viewer"]
    wrong = ["x", secrets["revoked"], right[:-1], right + "x", right.upper(), "é"]
    found = {
        service.get(
            f"/api/v1/{path}", headers={"Authorization": f"Bearer {w}".encode()}
        ).status_code
        for w in wrong
    } | {service.get(f"/api/v1/{path}").status_code}
    refused = service.get(f"/api/v1/{path}", headers=bearer(secrets["extender"])).status_code
    assert (found, refused) == ({401}, 403)


def test_the_extender_takes_no_other_role(service: Serving, secrets: dict[str, str]) -> None:
    """Only an extender's token calls it, as bearer or as the password of the URL."""
    call = preempts("b")[0]["request"]
    found = {
        role: service.post("/extender/preempt", call, headers=bearer(secrets[role])).status_code
        for role in ("viewer", "operator", "limited", "revoked")
    }
    assert found == {"viewer": 403, "operator": 403, "limited": 403, "revoked": 401}
    assert service.post("/extender/preempt", call).status_code == 401
    answer = service.post("/extender/preempt", call, auth=("any", secrets["extender"]))
    assert answer.status_code == 200


def test_writes_need_an_operator(service: Serving, secrets: dict[str, str]) -> None:
    body = {"rules": "kube-1.20", "reason": "test"}
    found = {
        role: service.client.post(
            f"{service.url}/api/v1/environments/prod/activations",
            json=body,
            headers=bearer(secrets[role]),
        ).status_code
        for role in ("viewer", "extender", "limited", "revoked")
    }
    assert found == {"viewer": 403, "extender": 403, "limited": 403, "revoked": 401}


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../etc/passwd",
        "/static/%2e%2e%2f%2e%2e%2fapp.py",
        "/rules/..%2f..%2f..%2fetc%2fpasswd",
        "/rules/%2Fetc%2Fpasswd",
        "/api/v1/rule-sets/%2Fetc%2Fpasswd",
        "/api/v1/rule-sets/tests%2Fcases%2Fbad_rules",
    ],
)
def test_paths_do_not_leave_their_place(
    service: Serving, secrets: dict[str, str], path: str
) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secrets['viewer']}\r\n"
    answer = raw(service, (head + "Connection: close\r\n\r\n").encode())
    assert answer.split(b" ", 2)[1] == b"404"
    assert b"root:" not in answer


def test_rules_of_an_activation_are_no_file(service: Serving, secrets: dict[str, str]) -> None:
    """A path of the service's host is not read."""
    answer = service.client.post(
        f"{service.url}/api/v1/environments/prod/activations",
        json={"rules": "rules/kube-1.36.yaml", "reason": "x"},
        headers=bearer(secrets["admin"]),
    )
    assert answer.status_code == 404


INJECTIONS = ("' OR 1=1 --", '"; DROP TABLE decisions; --', "1) UNION SELECT 1 --", "\\", "%00")


@pytest.mark.parametrize("name", ["cluster", "namespace", "node", "rules", "preemptor", "pod"])
def test_parameters_are_no_sql(service: Serving, secrets: dict[str, str], name: str) -> None:
    """What is no name of anything finds nothing, and changes nothing."""
    for value in INJECTIONS:
        answer = service.get(
            "/api/v1/decisions", params={name: value}, headers=bearer(secrets["viewer"])
        )
        found = answer.json().get("decisions", [])
        assert (answer.status_code in (200, 404), found) == (True, []), (value, answer.text)
    whole = service.get("/api/v1/decisions", headers=bearer(secrets["viewer"])).json()
    assert whole["decisions"] != []


def test_sql_only_reads(service: Serving, secrets: dict[str, str]) -> None:
    for statement in ("DELETE FROM decisions", "ATTACH 'x' AS y", "PRAGMA query_only = OFF"):
        answer = service.client.post(
            f"{service.url}/api/v1/sql",
            json={"sql": statement},
            headers=bearer(secrets["admin"]),
        )
        assert answer.status_code >= 400, statement


def sql(service: Serving, secret: str, statement: str) -> httpx.Response:
    return service.client.post(
        f"{service.url}/api/v1/sql", json={"sql": statement}, headers=bearer(secret)
    )


def test_sql_of_a_limited_token_is_on_a_copy_of_its_own(
    service: Serving, secrets: dict[str, str]
) -> None:
    """It finds what the lists show to the token, and nothing else to read."""
    listed = service.get("/api/v1/decisions", headers=bearer(secrets["limited"])).json()
    found = sql(
        service,
        secrets["limited"],
        "SELECT id, cluster, at AS now, outcome, node, rule_set, origin, preemptor, priority,"
        " victims FROM decisions ORDER BY at DESC",
    ).json()
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert rows == [{k: line[k] for k in found["columns"]} for line in listed["decisions"]]
    assert (found["copied"]["decisions"], found["older_left_out"]) == (len(rows), [])
    assert rows != []
    there = sql(service, secrets["limited"], "SELECT name FROM sqlite_master").json()["rows"]
    assert sorted(there) == [[name] for name in sorted(TABLES)]


def test_sql_of_a_limited_token_names_no_other_namespace(
    service: Serving, secrets: dict[str, str]
) -> None:
    """Victims of others are in the record, and not in what the token's SQL finds."""
    whole = sql(service, secrets["admin"], "SELECT DISTINCT namespace FROM victims").json()["rows"]
    own = sql(service, secrets["limited"], "SELECT DISTINCT namespace FROM victims").json()["rows"]
    others = [name for (name,) in whole if name != "team-a"]
    assert others != []
    assert own == [["team-a"]]
    texts = [
        sql(service, secrets["limited"], f"SELECT * FROM {table}").text
        for table in ("decisions", "victims")
    ]
    assert [name for name in others for text in texts if name in text] == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM extender_calls",
        "SELECT * FROM main.decision_traces",
        "SELECT * FROM v_decisions",
        "ATTACH 'policy.db' AS x",
        "VACUUM INTO 'copy.db'",
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "INSERT INTO decisions (id) VALUES (1)",
        "UPDATE decisions SET node = 'x'",
        "CREATE TEMP TABLE x (y)",
        "BEGIN",
        "SELECT 1; DROP TABLE decisions",
        "SELECT :missing",
        "SELECT zeroblob(2000000000)",
        # One function that nothing stops: texts are short, and so are patterns.
        "SELECT replace(hex(zeroblob(230000)), '0', 'a')"
        " LIKE '%' || replace(hex(zeroblob(20000)), '0', 'a') || 'b'",
        "SELECT instr(hex(zeroblob(5000000)), hex(zeroblob(2000000)) || 'b')",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        ";",
    ],
)
def test_sql_of_a_limited_token_leads_nowhere(
    service: Serving, secrets: dict[str, str], statement: str
) -> None:
    """Other tables, other files, changes, and what never ends: an error in words."""
    answer = sql(service, secrets["limited"], statement)
    assert (answer.status_code, answer.json()["type"]) == (400, "/api/v1/problems/invalid")


@pytest.mark.parametrize("role", ["limited", "viewer", "admin"])
def test_an_answer_of_sql_has_a_size(service: Serving, secrets: dict[str, str], role: str) -> None:
    """All of it is held by the process that answers schedulers."""
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {})"
    many += " SELECT hex(zeroblob(500000 + i)) FROM n"
    large = sql(service, secrets[role], many.format(40))
    assert (large.status_code, "larger than 32 MiB" in large.text) == (400, True)
    # In JSON, which is made in one piece, each of these has six bytes.
    controls = many.replace(
        "hex(zeroblob(500000 + i))", "replace(hex(zeroblob(450000)), '0', char(1))"
    )
    large = sql(service, secrets[role], controls.format(7))
    assert (large.status_code, "larger than 32 MiB" in large.text) == (400, True)
    small = sql(service, secrets[role], many.format(4))
    assert (small.status_code, len(small.json()["rows"])) == (200, 4)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name FROM sqlite_master",
        "SELECT name FROM sqlite_schema",
        "PRAGMA table_list",
        "PRAGMA table_info(decisions)",
        "PRAGMA index_list(decisions)",
        "SELECT * FROM pragma_table_info('decisions')",
    ],
)
def test_sql_of_views_describes_no_table(
    service: Serving, secrets: dict[str, str], statement: str
) -> None:
    """Neither rows nor columns; an admin may look at both."""
    for role in ("viewer", "operator"):
        assert sql(service, secrets[role], statement).status_code == 400
    if "pragma_" not in statement:
        assert sql(service, secrets["admin"], statement).status_code == 200


def test_sql_of_views_has_functions_of_tables(service: Serving, secrets: dict[str, str]) -> None:
    found = sql(service, secrets["viewer"], "SELECT value FROM json_each('[1, 2]')").json()
    assert found["rows"] == [[1], [2]]


def test_sql_of_a_limited_token_is_told_its_tables(
    service: Serving, secrets: dict[str, str]
) -> None:
    """Where it names another one, whether that is in the record or nowhere."""
    advice = "SQL of this token reads the tables " + ", ".join(f"`{name}`" for name in TABLES)
    for name in ("v_victims", "nowhere"):
        said = sql(service, secrets["limited"], f"SELECT * FROM {name}").json()
        expected = (f"the query is not valid: no such table: {name}", advice)
        assert (said["detail"], said["help"]) == expected


def test_the_sql_page_of_a_limited_token_has_its_tables(
    service: Serving, secrets: dict[str, str]
) -> None:
    """No saved query, which would read the whole record; a query runs on the copy."""
    with httpx.Client(base_url=service.url) as client:
        client.post("/login", data={"token": secrets["limited"], "next": "/"})
        page = client.get("/sql", params={"q": "SELECT count(*) AS mine FROM decisions"})
        saved = client.get("/sql", params={"saved": "victims"})
    assert (page.status_code, ">mine</th>" in page.text) == (200, True)
    assert "Saved queries" not in page.text
    assert "<table>" not in saved.text


def test_a_limited_token_finds_out_no_preemptor_by_guessing(
    service: Serving, secrets: dict[str, str]
) -> None:
    """A pod of another namespace that took a victim of the token's own is hidden; so is the guess.

    A filter by the right name and one by a wrong name get equal answers, wherever they are given.
    """
    listed = service.get("/api/v1/decisions", headers=bearer(secrets["viewer"])).json()
    names = {one["preemptor"] for one in listed["decisions"]}
    other = next(name for name in names if not name.startswith("team-a/"))
    own = next(name for name in names if name.startswith("team-a/"))

    def found(name: str) -> list[int]:
        given: dict[str, Any] = {
            "params": {"preemptor": name},
            "headers": bearer(secrets["limited"]),
        }
        return [
            len(service.get("/api/v1/decisions", **given).json()["decisions"]),
            len(service.get("/api/v1/export/decisions", **given).text.splitlines()),
            service.get("/decisions", **given).text.count('href="/decisions/'),
        ]

    assert (found(other), found(other + "x")) == ([0, 0, 0], [0, 0, 0])
    assert min(found(own)) > 0


def test_odd_values_are_errors_of_the_client(service: Serving, secrets: dict[str, str]) -> None:
    """Numbers that no database holds, digits without end, and a password that is no ASCII."""
    big = 10**24
    posts: list[tuple[str, dict[str, Any]]] = [
        ("sql", {"sql": "SELECT :a", "parameters": {"a": big}}),
        ("sql", {"sql": "SELECT :a", "parameters": {"a": -big}}),
        ("compare", {"rules": "kube-1.20", "ids": [1, big]}),
        ("compare", {"rules": "kube-1.20", "groups": [big]}),
    ]
    headers = {**bearer(secrets["admin"]), "Content-Type": "application/json"}
    found = [service.post(f"/api/v1/{p}", body, headers=headers).status_code for p, body in posts]
    assert found == [400] * 4
    for number in ("1" * 5000, str(big), "x", "-1"):
        answer = service.get(f"/simulations/{number}", headers=bearer(secrets["viewer"]))
        assert answer.status_code == 404, number
    head = b"GET /api/v1/decisions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: "
    assert b" 401 " in raw(service, head + b"Basic \xe9\r\n\r\n").partition(b"\r\n")[0]


def test_a_nul_is_an_error_of_the_client(database_url: str, tmp_path: Path) -> None:
    """Postgres takes none in a text: the answer is not that the database is away."""
    started = serving.serve(serving.filled(database_url), tmp_path)
    try:
        reads = ("api/v1/decisions?node=%00", "decisions?node=a%00", "api/v1/rule-sets/%00")
        found = [started.get(f"/{path}") for path in reads]
        form = started.post("/environments/prod/activate", "rules=%00&reason=x")
        body = {"rules": "kube-1.36", "reason": "a\0b"}
        api = started.client.post(f"{started.url}/api/v1/environments/prod/activations", json=body)
    finally:
        assert started.stop() == 0
    assert [answer.status_code for answer in (*found, form, api)] == [400] * 5
    said = {answer.json()["detail"] for answer in (*found, api)}
    text = "the character NUL, which no text may hold"
    assert said == {f"the address holds {text}", f"the body holds {text}"}


def test_a_form_of_another_site_is_refused(service: Serving, secrets: dict[str, str]) -> None:
    """With the session's cookie and without the page's own token, or from another site: 403."""
    with httpx.Client(base_url=service.url) as client:
        done = client.post("/login", data={"token": secrets["operator"], "next": "/"})
        assert done.status_code == 303
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        form = {"rules": "kube-1.20", "reason": "x", "active": "1"}
        plain = client.post("/environments/prod/activate", data=form)
        page = client.get("/environments/prod").text
        token = page.partition('name="form_token" value="')[2].partition('"')[0]
        foreign = [
            client.post(
                "/environments/prod/activate", data={**form, "form_token": token}, headers=headers
            )
            for headers in FOREIGN
        ]
        api = client.post("/api/v1/environments/prod/activations", json=form)
        assert [r.status_code for r in (plain, *foreign, api)] == [403] * (2 + len(FOREIGN))
        own = client.post(
            "/environments/prod/activate",
            data={**form, "rules": "nope", "form_token": token},
            headers={"Origin": service.url},
        )
        assert (own.status_code, "no shipped rule set" in own.text) == (404, True)


def test_a_form_of_another_token_is_refused(service: Serving, secrets: dict[str, str]) -> None:
    """Browsers send a password again by themselves: what a form carries is of one token."""
    page = service.get("/environments/prod", headers=bearer(secrets["viewer"])).text
    others = service.get("/sql", headers=bearer(secrets["operator"])).text
    tokens = [
        text.partition('name="form_token" value="')[2].partition('"')[0] for text in (page, others)
    ]
    assert len(set(tokens)) == 2
    form = {"rules": "kube-1.20", "reason": "x", "form_token": tokens[0]}
    headers = {"Authorization": "Basic " + b64encode(f"x:{secrets['operator']}".encode()).decode()}
    answer = httpx.post(f"{service.url}/environments/prod/activate", data=form, headers=headers)
    assert answer.status_code == 403


def test_a_link_is_one_address(tmp_path: Path, sqlite_template: Path) -> None:
    """Also where a cluster has a name that no head may hold as it is."""
    db, name = str(tmp_path / "policy.db"), "日本 <b>/../\r\nSet-Cookie: a=b"
    shutil.copy(sqlite_template, db)
    with Store.open(serving.filled(db)) as store:
        for pods in (("a",), ("a", "b")):
            parts = objects(*[a_pod(pod).priority(1) for pod in pods])
            store.record.import_objects(name, parts, at_ms=serving.NOW_MS, source="test")
    service = serving.serve(db, tmp_path)
    service.ready()
    path = f"/api/v1/clusters/{quote(name, safe='')}/revisions"
    assert "%2F" in path
    first = service.get(f"{path}?limit=1")
    target = first.headers["Link"].removesuffix('>; rel="next"').removeprefix("<")
    second = service.get(target)
    assert ("set-cookie" in first.headers, target.partition("?")[0]) == (False, path)
    numbers = [one["revision"] for page in (first, second) for one in page.json()["revisions"]]
    assert (numbers, service.stop()) == ([2, 1], 0)


def test_without_tokens_no_form_can_be_guessed(tmp_path: Path, sqlite_template: Path) -> None:
    """What it carries is of the process."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    service = serving.serve(serving.filled(db), tmp_path)
    service.ready()
    known = hmac.new(b"", b"form ", sha256).hexdigest()
    form = {"rules": "kube-1.20", "reason": "x", "form_token": known}
    answer = httpx.post(f"{service.url}/environments/prod/activate", data=form)
    assert (answer.status_code, service.stop()) == (403, 0)


@pytest.mark.parametrize(
    ("role", "path", "body"),
    [
        (
            Role.OPERATOR,
            "/api/v1/environments/prod/activations",
            json.dumps({"rules": "kube-1.30", "reason": "too late"}),
        ),
        (Role.OPERATOR, "/environments/prod/activate", "rules=kube-1.30&reason=too+late&active=1"),
        (Role.VIEWER, "/api/v1/sql", json.dumps({"sql": "SELECT 1"})),
        (Role.EXTENDER, "/extender/preempt", preempts("b")[1]["request"]),
    ],
)
def test_a_body_that_comes_after_its_token_is_revoked_does_nothing(
    service: Serving, secrets: dict[str, str], role: Role, path: str, body: str
) -> None:
    """Its head was in time; nothing that is revoked waits behind it for half a minute."""
    file, name = TokenFile(Path(secrets["file"])), f"leaving-{role}-{len(path)}"
    token = file.create(name, role, namespaces=None, now_ms=1)
    time.sleep(1.1)  # as long as the file is not looked at again
    page = httpx.get(f"{service.url}/environments/prod", headers=bearer(token))
    form = re.search(r'name="form_token" value="([^"]+)"', page.text)
    if path.startswith("/environments"):
        assert form is not None
        body += f"&form_token={form[1]}"
    kind = "json" if body.startswith("{") else "x-www-form-urlencoded"
    host, _, port = service.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/{kind}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        )
        time.sleep(0.5)  # until it is let in
        file.revoke(name, now_ms=2)
        time.sleep(1.5)
        client.sendall(body.encode())
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")
    active = service.get("/api/v1/environments/prod", headers=bearer(secrets["viewer"])).json()
    assert active["active"]["rule_set"] == "kube-1.35"


def test_a_stream_ends_with_its_token(service: Serving, secrets: dict[str, str]) -> None:
    """Within a second or two; what is recorded then is not sent."""
    file = TokenFile(Path(secrets["file"]))
    token = file.create("leaving", Role.VIEWER, namespaces=None, now_ms=1)
    time.sleep(1.1)  # as long as the file is not looked at again
    with service.client.stream(
        "GET", f"{service.url}/api/v1/events", headers=bearer(token), timeout=20
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        file.revoke("leaving", now_ms=2)
        time.sleep(1.1)  # as long as the file is not looked at again
        call = preempts("b")[1]["request"]
        done = service.post("/extender/preempt", call, headers=bearer(secrets["extender"]))
        assert done.status_code == 200
        assert [line for line in lines if line] == []


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", "/\n/x"]
)
def test_a_login_leads_nowhere_else(service: Serving, secrets: dict[str, str], target: str) -> None:
    done = httpx.post(service.url + "/login", data={"token": secrets["viewer"], "next": target})
    assert (done.status_code, done.headers["location"]) == (303, "/")


ELSEWHERE = (
    *("//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example"),
    *("/%2fevil.example", "/%2F%2Fevil.example", "/%5cevil.example", "/%5C%5Cevil.example"),
    *("/%09/evil.example", "/\t/evil.example", "/\r\n/evil.example", "\n//evil.example"),
    *("/%0d%0aLocation:%20https://evil.example", "/\r\nLocation: https://evil.example"),
    *("/.//evil.example", "/..//evil.example", "/%2e%2e//evil.example", "/@evil.example"),
    *("/\u2028/evil.example", "/\uff0fevil.example", "/\u3000/evil.example", "@evil.example"),
    *("javascript:alert(1)", "https:evil.example"),
)


def test_browsers_are_led_nowhere_else(
    service: Serving, secrets: dict[str, str], browser: Browser
) -> None:
    """As a browser reads the address, which is none of RFC 3986; and it is one line of the head."""
    page = browser.new_page()
    found = {}
    for target in ELSEWHERE:
        form = {"token": secrets["viewer"], "next": target}
        answers = [
            httpx.post(service.url + "/login", data=form, timeout=60),
            # Back to where somebody came from without a session.
            httpx.get(service.url + "/decisions/x", params={"next": target}, timeout=60),
        ]
        for answer in answers:
            address = answer.headers["location"]
            assert (answer.status_code, "\r" in address, "\n" in address) == (303, False, False)
            parsed = "to => new URL(to, 'https://policy.example/login').origin"
            found[target, address] = page.evaluate(parsed, address)
    page.close()
    assert {k: v for k, v in found.items() if v != "https://policy.example"} == {}


def test_an_address_does_not_break_the_head(service: Serving, secrets: dict[str, str]) -> None:
    """Whatever of a request comes back in the head of its answer is one value there."""
    broken = "%0d%0aSet-Cookie:%20stolen=1%0d%0a%0d%0a<script>"
    authorized = f"Authorization: Bearer {secrets['viewer']}\r\n"
    for path, head in (
        (f"/decisions/{broken}", ""),
        (f"/decisions?node={broken}", ""),
        (f"/api/v1/decisions?limit=1&until=2100-01-01T00:00:00Z&x{broken}=1", authorized),
        (f"/api/v1/decisions?limit=1&origin=extender&after=9{broken}", authorized),
        ("/api/v1/decisions?limit=1&origin=extender", authorized + "Last-Event-ID: 1%0d%0ax\r\n"),
        (f"/static/page.css?{broken}", ""),
    ):
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n"
        answer = raw(service, request.encode())
        lines = answer.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
        assert [line for line in lines if line.startswith(b"set-cookie")] == [], path


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_login_from_another_site_is_refused(
    service: Serving, secrets: dict[str, str], headers: dict[str, str]
) -> None:
    """It would make somebody's browser work under a token that is not theirs."""
    done = httpx.post(
        service.url + "/login",
        data={"token": secrets["viewer"], "next": "/"},
        headers=headers,
    )
    assert (done.status_code, "set-cookie" in done.headers) == (403, False)


def test_no_answer_leads_to_the_host_of_the_request(service: Serving) -> None:
    """A path with a stroke too many is not found; it is not sent on, least of all elsewhere."""
    for path in ("/decisions/", "/login/", "/api/v1/decisions/"):
        head = f"GET {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        answer = raw(service, head.encode())
        assert (b"evil.example" in answer, answer.split(b" ", 2)[1][:1]) == (False, b"4"), path


def test_a_forged_session_is_none(service: Serving, secrets: dict[str, str]) -> None:
    with httpx.Client(base_url=service.url) as client:
        value = client.post("/login", data={"token": secrets["viewer"], "next": "/"}).cookies[
            "policy"
        ]
    beginning, expires, signature = value.split(".")
    forged = [
        f"{beginning}.{int(expires) + 9999}.{signature}",
        f"{beginning}.{expires}.{'0' * 64}",
        f"..{signature}",
        "x",
        "",
    ]
    found = [
        httpx.get(service.url + "/", headers={"Cookie": f"policy={one}"}).status_code
        for one in forged
    ]
    assert found == [303] * len(forged)


def test_bodies_have_a_limit(service: Serving, secrets: dict[str, str]) -> None:
    """By the length that is announced, and by what comes where none is."""
    headers = bearer(secrets["admin"])
    head = (
        f"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {secrets['admin']}\r\nContent-Length: 104857600\r\n\r\n"
    )
    assert b" 413 " in raw(service, head.encode(), seconds=5).partition(b"\r\n")[0]

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * (1 << 16)

    answer = service.client.post(
        f"{service.url}/api/v1/sql",
        content=endless(),
        headers={**headers, "Content-Type": "application/json"},
    )
    assert answer.status_code == 413


def test_bodies_that_are_refused_are_not_kept(service: Serving, secrets: dict[str, str]) -> None:
    """Not in memory either: twenty of 20 MiB leave less behind than five of them.

    Some of it stays, however many come: glibc gives back memory at the end of its heap once that
    is twice as large as the largest block that was freed, and each thread has a heap.
    """

    def resident() -> int:
        status = Path(f"/proc/{service.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    before = resident()
    for _ in range(20):
        answer = service.client.post(
            f"{service.url}/extender/preempt",
            content=b" " * (20 << 20),
            headers=bearer(secrets["extender"]),
        )
        assert answer.status_code == 400
    assert resident() - before < 100 << 20


def test_depth_of_json_has_a_limit(service: Serving, secrets: dict[str, str]) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    headers = {**bearer(secrets["admin"]), "Content-Type": "application/json"}
    bodies = [deep, '{"Pod":' + deep + "}", '{"sql":' + deep + "}", "\x00", "{", '"', "null", "[]"]
    found = {
        service.post(path, body, headers=headers).status_code
        for path in ("/extender/preempt", "/extender/filter", "/api/v1/sql")
        for body in bodies
    }
    assert found == {400}


MANY = [f"k{number}" for number in range(70_000)]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("sql", dict.fromkeys(MANY, 1), "more than 100 keys"),
        (
            "sql",
            {"sql": "SELECT 1", "parameters": dict.fromkeys(MANY, 1.5)},
            "`parameters`: more than 1000 keys",
        ),
        (
            "what-if",
            {"environment": "prod", "priority_classes": dict.fromkeys(MANY, "a")},
            "`priority_classes`: more than 1000 keys",
        ),
    ],
)
def test_a_body_of_many_errors_is_one_error(
    service: Serving, secrets: dict[str, str], path: str, body: dict[str, Any], told: str
) -> None:
    """Each would be a line of the answer, and to find them holds up all other requests."""
    headers = {**bearer(secrets["viewer"]), "Content-Type": "application/json"}
    answer = service.post(f"/api/v1/{path}", body, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (400, f"body: {told}")
    assert len(answer.json()["errors"]) == 1


@pytest.mark.parametrize(
    "head",
    [
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
        b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"e" * 200_000,
        b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        # About no address.
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_requests_of_two_meanings_are_refused(service: Serving, head: bytes) -> None:
    """One answer at most, of status 4xx, and the connection is closed."""
    answer = raw(service, head, seconds=5)
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4",))


def test_what_is_no_request_fills_no_log(tmp_path: Path, sqlite_template: Path) -> None:
    """Nor what asks for another protocol, nor a call with a name as long as it likes."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    service = serving.serve(serving.filled(db), tmp_path)
    service.ready()
    before = service.log.stat().st_size
    upgrade = (
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    )
    for _ in range(20):
        assert raw(service, b"\x16\x03\x01\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert raw(service, upgrade, seconds=0.2).startswith(b"HTTP/1.1 200 ")
    call = json.loads(preempts("b")[0]["request"])
    for name in ("a", "b"):
        call["Pod"]["metadata"]["name"] = name * 1_000_000
        call["Pod"]["spec"]["priority"] = "none"
        assert service.post("/extender/preempt", call).status_code == 200
    said = service.log.read_text()[before:]
    assert service.stop() == 0
    assert said.count("Invalid HTTP request received.") == 1
    assert len(said) < 5000


def test_a_hundred_megabytes_of_a_stranger_are_not_read(service: Serving) -> None:
    """Who has no token is refused by the head alone, before any of the body is there."""
    for path in ("/extender/preempt", "/extender/prod/filter", "/api/v1/sql"):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Content-Length: 104857600\r\n\r\n"
        )
        assert raw(service, head.encode(), seconds=2).startswith(b"HTTP/1.1 401 "), path


def test_a_hundred_megabytes_hold_up_nobody(service: Serving, secrets: dict[str, str]) -> None:
    """A call of that size is judged or refused; others are answered while it comes."""
    call = json.loads(preempts("b")[0]["request"])
    body = json.dumps({**call, "Unknown": "x" * (100 << 20)}).encode()
    too_large = body + b" " * (30 << 20)
    headers = bearer(secrets["extender"])
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(
            httpx.post, f"{service.url}/extender/preempt", content=body, headers=headers, timeout=60
        )
        waited = []
        while not under_way.done():
            began = time.monotonic()
            assert service.get("/healthz").status_code == 200
            waited.append(time.monotonic() - began)
        assert under_way.result().status_code == 200
    assert len(waited) > 0
    answer = service.post("/extender/preempt", too_large, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (413, "/api/v1/problems/too-large")


def test_cookies_of_a_stranger_hold_up_nobody(service: Serving) -> None:
    """To unquote one takes a Python before 3.11.10 two seconds; some of these are being read."""
    cookies = {"Cookie": 'policy="' + "\\" * 30_000 + '"'}
    with ThreadPoolExecutor(12) as pool:
        sent = [
            pool.submit(httpx.get, f"{service.url}/decisions", headers=cookies, timeout=60)
            for _ in range(12)
        ]
        time.sleep(1)
        assert httpx.get(f"{service.url}/healthz", timeout=10).status_code == 200
        assert {one.result().status_code for one in sent} == {303}


def large(service: Serving, secret: str, *, rows: int) -> httpx.Response:
    """The page of a result that takes a second for some hundred rows to be shown."""
    counted = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows})"
    cell = "SELECT replace(hex(zeroblob(5)), '0', char(1)) AS t"
    asked = f"{counted} SELECT {'t, ' * 800} i FROM n, ({cell})"
    headers = bearer(secret)
    return httpx.get(f"{service.url}/sql", params={"q": asked}, headers=headers, timeout=120)


def test_a_large_page_holds_up_nobody(service: Serving, secrets: dict[str, str]) -> None:
    """Some seconds it takes; others are answered meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(large, service, secrets["limited"], rows=500)
        time.sleep(1)  # until the statement has run
        assert httpx.get(f"{service.url}/healthz", timeout=2).status_code == 200
        assert page.result().status_code == 200


def test_many_large_pages_hold_up_their_reader_alone(
    service: Serving, secrets: dict[str, str]
) -> None:
    """However many are asked for at once, two of one token are made at a time."""
    headers = bearer(secrets["viewer"])
    with ThreadPoolExecutor(9) as pool:
        pages = [pool.submit(large, service, secrets["limited"], rows=250) for _ in range(9)]
        time.sleep(3)
        answer = httpx.get(f"{service.url}/decisions", headers=headers, timeout=4)
        assert answer.status_code == 200
        assert {page.result().status_code for page in pages} == {200}


def test_a_head_that_drips_is_cut_off(service: Serving) -> None:
    """The time is that of the whole head: no byte makes it longer."""
    host, _, port = service.url.partition("//")[2].partition(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        try:
            while time.monotonic() - began < 40:
                sock.sendall(b"a")
                time.sleep(0.5)
        except ConnectionError:
            pass
        assert time.monotonic() - began < 40


def test_a_slow_client_is_disconnected(service: Serving) -> None:
    """One that sends no head; others are answered meanwhile."""
    assert raw(service, b"GET / HT", seconds=30) == b""
    assert service.get("/healthz").status_code == 200


def test_the_head_of_every_request_has_its_time(service: Serving) -> None:
    """Not only the first one of a connection: the second here does not end."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    host, _, port = service.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(whole)
        found = b""
        while not found.endswith(b"ok\n"):
            found += sock.recv(65536)
        sock.sendall(b"GET / HT")
        assert sock.recv(65536) == b""


def test_a_body_that_does_not_come_is_given_up(service: Serving) -> None:
    """It is answered in words, and the connection is closed; others are answered meanwhile."""
    head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\ntoken="
    host, _, port = service.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as sock:
        sock.sendall(head)
        assert service.get("/healthz").status_code == 200
        found = b""
        while part := sock.recv(65536):
            found += part
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 30 seconds" in found


@pytest.mark.parametrize("who", ["stranger", "limited"])
def test_whoever_opens_many_connections_keeps_nobody_out(
    service: Serving, secrets: dict[str, str], who: str
) -> None:
    """Over each an answer is due: of a form whose rest does not come, or a stream of events."""
    asked = "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    if who != "stranger":
        asked = "GET /api/v1/events HTTP/1.1\r\nHost: x\r\n"
        asked += f"Authorization: Bearer {secrets[who]}\r\n\r\n"
    host, port = "127.0.0.1", int(service.url.rpartition(":")[2])
    call, headers = preempts("b")[0]["request"], bearer(secrets["extender"])
    with ExitStack() as stack:
        events = stack.enter_context(
            httpx.stream(
                "GET", f"{service.url}/api/v1/events", headers=bearer(secrets["viewer"]), timeout=60
            )
        )
        read = events.iter_bytes()
        assert next(read).startswith(b": ")

        def opened(many: int) -> list[socket.socket]:
            made = []
            for _ in range(many):
                client = stack.enter_context(socket.create_connection((host, port), timeout=60))
                client.sendall(asked.encode())
                made.append(client)
            return made

        clients = opened(520)
        for _ in range(300):
            clients = [client for client in clients if not is_closed(client)]
            if len(clients) < 500:  # the one of the viewer is the 500th
                break
            time.sleep(0.1)
        opened(10)  # where one was closed before its request was there
        time.sleep(1)
        for _ in range(3):
            assert httpx.get(f"{service.url}/healthz", timeout=20).status_code == 200
        answer = httpx.post(
            f"{service.url}/extender/preempt", content=call, headers=headers, timeout=20
        )
        assert answer.status_code == 200
        assert next(read)  # the decision: this stream is not one of theirs


def test_fields_behind_a_body_are_not_of_its_head(
    service: Serving, secrets: dict[str, str]
) -> None:
    """A token that comes as a trailer lets nothing in."""
    answer = raw(
        service,
        b"POST /api/v1/sql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\nTrailer: Authorization\r\nConnection: close\r\n\r\n"
        b"0\r\nAuthorization: Bearer " + secrets["admin"].encode() + b"\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "path", ["/login", "/environments/prod/activate", "/api/v1/sql", "/extender/preempt"]
)
def test_a_client_that_goes_away_is_no_error(
    service: Serving, secrets: dict[str, str], path: str
) -> None:
    """The connection is closed in the middle of a body: it is counted, and the log is silent."""
    role = "extender" if path.startswith("/extender") else "admin"
    counted = f'policy_http_requests_total{{part="{part_of(path)}",status="499"}}'

    def gone() -> float:
        lines = service.get("/metrics", headers=bearer(secrets["admin"])).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(counted))

    before, logged = gone(), service.log.read_text()
    host, _, port = service.url.partition("//")[2].partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {secrets[role]}\r\nContent-Length: 1000\r\n\r\n{{".encode()
        )
    for _ in range(100):
        if gone() > before:
            break
        time.sleep(0.1)
    assert (gone() - before, service.log.read_text()) == (1, logged)


def test_names_do_not_break_headers(service: Serving, secrets: dict[str, str]) -> None:
    answer = service.get(
        "/api/v1/decisions",
        params={"preemptor": "a\r\nSet-Cookie: x=1", "limit": 1},
        headers=bearer(secrets["viewer"]),
    )
    assert "set-cookie" not in answer.headers


def test_neither_log_nor_page_tells_a_secret(service: Serving, secrets: dict[str, str]) -> None:
    """A wrong token, a cookie, a form's token, a token in the address or as a password."""
    wrong = "policy_" + "wrong" * 8
    with httpx.Client(base_url=service.url) as client:
        refused = client.post("/login", data={"token": wrong, "next": "/"})
        client.post("/login", data={"token": secrets["operator"], "next": "/"})
        cookie = client.cookies["policy"]
        shown = client.get("/environments/prod").text
        form_token = shown.partition('name="form_token" value="')[2].partition('"')[0]
        failed = client.get("/decisions/99999").text
    asked = {"token": secrets["viewer"], "authorization": wrong}
    pages = [
        *(refused.text, failed, service.get("/decisions", params=asked).text),
        service.get("/api/v1/decisions", auth=("any", wrong)).text,
        service.post("/extender/preempt", "{", auth=("any", secrets["extender"])).text,
        service.get("/metrics", headers=bearer(secrets["viewer"])).text,
    ]
    kept = json.loads(Path(secrets["file"]).read_text())
    hashes = [token["sha256"] for token in kept["tokens"]]
    known = [s for name, s in secrets.items() if name != "file"]
    told = [wrong, cookie, kept["session_key"], *hashes, *known]
    log = service.log.read_text()
    assert (len(form_token), form_token in log) == (64, False)
    assert [s for s in told for text in (*pages, log) if s in text] == []


def test_the_password_of_a_database_is_nowhere(tmp_path: Path) -> None:
    """Not in the error, nor in what other users of the machine see of the processes."""
    url = "postgresql://policy:hunter2secret@127.0.0.1:1/none"
    done = subprocess.run(
        [sys.executable, "-m", "policy", "serve", "--environment", "prod", "--port", "0"],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "POLICY_DB": url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "hunter2" in done.stdout + done.stderr) == (1, False)
    assert "127.0.0.1:1" in done.stderr


def test_errors_tell_no_secret(service: Serving, secrets: dict[str, str]) -> None:
    """No path of the host, no class of Python, no text of a token."""
    texts = [
        service.get(path, headers=bearer(secrets["admin"])).text
        for path in ("/api/v1/decisions/zzz", "/api/v1/rule-sets/zzz", "/nowhere", "/decisions/zz")
    ]
    for text in texts:
        for secret in (secrets["admin"], "Traceback", "site-packages", secrets["file"]):
            assert secret not in text


def test_every_answer_protects(service: Serving) -> None:
    for path in ("/login", "/healthz", "/nowhere", "/api/v1/decisions", "/static/page.css"):
        headers = service.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_an_error_that_was_not_foreseen_is_an_answer_as_well(tmp_path: Path) -> None:
    """A time that no calendar has: the log says once what failed, and the connection stays."""
    db = serving.filled(str(tmp_path / "policy.db"))
    started = serving.serve(db, tmp_path)
    started.ready()
    assert started.post("/extender/preempt", serving.preempts("b")[0]["request"]).status_code == 200
    with closing(sqlite3.connect(db)) as tampered, tampered:
        tampered.execute("UPDATE cycles SET at_ms = 9000000000000000000")
    failed = [started.get(path) for path in ("/decisions/1", "/api/v1/decisions/1")]
    for answer in failed:
        assert answer.status_code == 500
        assert answer.headers["content-security-policy"] == POLICY
        assert "connection" not in answer.headers
    assert failed[0].headers["content-type"] == "text/html; charset=utf-8"
    assert 'role="alert">the service failed; its log says how</p>' in failed[0].text
    assert failed[1].headers["content-type"] == "application/problem+json"
    assert failed[1].json() == {
        "type": "/api/v1/problems/internal",
        "title": "The service failed",
        "status": 500,
        "detail": "the service failed; its log says how",
    }
    assert 'policy_http_requests_total{part="api",status="500"} 1.0' in started.get("/metrics").text
    assert started.stop() == 0
    assert started.log.read_text().count("Traceback") == 2


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nowhere", 404, "application/problem+json"),
        ("DELETE", "/login", 405, "application/problem+json"),
        ("GET", "/extender/preempt", 405, "application/problem+json"),
        ("HEAD", "/login", 200, "text/html; charset=utf-8"),
        ("GET", "/api/v1/openapi.json", 401, "application/problem+json"),
    ],
)
def test_the_first_request_to_people_is_as_any_other(
    tmp_path: Path, secrets: dict[str, str], method: str, path: str, status: int, kind: str
) -> None:
    """It has the API and the pages made; several may come together."""
    db = str(tmp_path / "policy.db")
    with Store.open(db):
        pass
    started = serving.serve(db, tmp_path, "--tokens", secrets["file"], environment="")
    with ThreadPoolExecutor(12) as pool:
        asked = [
            pool.submit(httpx.request, method, started.url + path, timeout=60) for _ in "x" * 12
        ]
        answers = {
            (a.status_code, a.headers["content-type"], a.headers["content-security-policy"])
            for a in (one.result() for one in asked)
        }
    assert answers == {(status, kind, POLICY)}
    assert started.stop() == 0
    assert "Traceback" not in started.log.read_text()


def test_tokens_are_kept_as_hashes(secrets: dict[str, str]) -> None:
    text = Path(secrets["file"]).read_text()
    assert [s for name, s in secrets.items() if name != "file" and s in text] == []
    assert Path(secrets["file"]).stat().st_mode & 0o077 == 0


def test_every_token_is_compared_whole_whichever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right token, first or last, a nearly right one and a wrong one take the same comparisons.

    What is compared is a hash, by a function whose time does not depend on where it differs.
    """
    file = TokenFile(tmp_path / "tokens.json")
    held = [file.create(f"t{i}", Role.VIEWER, namespaces=None, now_ms=1) for i in range(5)]
    compared: list[tuple[int, int]] = []

    def counting(left: str, right: str) -> bool:
        compared.append((len(left), len(right)))
        return compare_digest(left, right)

    monkeypatch.setattr("policy.server.security.tokens.hmac.compare_digest", counting)
    found = {}
    for secret in (held[0], held[4], held[0][:-1] + "~", "x", "", "é" * 1000):
        compared.clear()
        token = find(file.tokens(), secret)
        found[secret] = (token.name if token else None, list(compared))
    assert [name for name, _ in found.values()] == ["t0", "t4", None, None, None, None]
    assert all(made == [(64, 64)] * 5 for _, made in found.values())


def test_without_tokens_it_listens_to_nobody_else(tmp_path: Path, sqlite_template: Path) -> None:
    """Neither on another address, nor to another name for the loopback address."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    done = subprocess.run(
        [sys.executable, "-m", "policy", "serve", "--db", db, "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "without `--tokens`" in done.stderr) == (2, True)
    started = serving.serve(db, tmp_path, environment="")
    try:
        assert started.get("/api/v1/decisions").status_code == 200
        rebound = started.get("/api/v1/decisions", headers={"Host": "evil.example"})
        assert rebound.status_code == 421
    finally:
        assert started.stop() == 0
