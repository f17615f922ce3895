"""What is wrong with a request is said as such, and what is wrong with the service is not shown."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from policy import RuleSet
from policy.audit.replay import Replayer
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.server.http import ADVICE, TITLES
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store, Unavailable
from tests.contract.builders import BY_HAND
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.serving import Serving

RULES = RuleSet.load("kube-1.36")
COUNT = 12  # decisions


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Environment `prod` with rules, `empty` without any, two revisions, and decisions."""
    path = str(tmp_path_factory.mktemp("problems") / "policy.db")
    shutil.copy(sqlite_template, path)
    with Store.open(path) as store:
        parts = objects(a_node("n1").cpu(4), a_pod("web").priority(1).cpu(1))
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
        later_parts = objects(a_pod("zoo").priority(1).cpu(1))
        store.record.import_objects("default", later_parts, at_ms=serving.NOW_MS, source="test")
        for name in ("prod", "empty"):
            store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36")
        state = store.state.load("default")
        for later in range(COUNT):
            now_ms = serving.NOW_MS + later
            snapshot = Snapshot.from_objects(
                state.objects, now_ms=now_ms, state_digest=state.state_digest
            )
            store.record.decision(
                "default",
                decide(snapshot, RULES, "default/web"),
                [],
                expected_revision=state.revision,
                rules=RULES,
                actor="test",
                at_ms=now_ms,
            )
    return path


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    return {**made, "file": str(file._path)}


@pytest.fixture(scope="module")
def service(
    db: str, tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.client.headers["Authorization"] = f"Bearer {tokens['operator']}"
    yield started
    assert started.stop() == 0


def asked(service: Serving, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    url = f"{service.url}/api/v1{path}"
    return service.client.get(url) if body is None else service.client.post(url, json=body)


def problem(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, kind and words of a problem; nothing is said about when to come back."""
    assert "retry-after" not in answer.headers
    told = answer.json()
    return answer.status_code, told["type"].rpartition("/")[2], told["detail"]


def test_what_the_state_of_an_environment_does_not_allow(service: Serving) -> None:
    """A conflict, in the words of the command: the database is well."""
    found = [
        problem(asked(service, "/environments/prod/rollback", {"reason": "x"})),
        problem(asked(service, "/decide", {"environment": "empty", "pod": "default/web"})),
        problem(asked(service, "/what-if", {"environment": "empty"})),
    ]
    assert found == [
        (409, "conflict", "environment `prod` has no earlier rule set to go back to"),
        (409, "conflict", "environment `empty` has no active rule set"),
        (409, "conflict", "environment `empty` has no active rule set"),
    ]


@pytest.mark.parametrize("body", [b'{"sql": "SELECT \'\xe9\'"}', b'{"\xe9": 1}'])
def test_a_body_in_another_encoding_is_refused(service: Serving, body: bytes) -> None:
    """In the words of calls of schedulers, whether it is a key or a value."""
    answer = service.post("/api/v1/sql", body, headers={"Content-Type": "application/json"})
    said = "the body is not JSON: one of its texts is not UTF-8"
    assert problem(answer) == (400, "bad-request", said)


def test_a_compressed_body_is_refused(service: Serving) -> None:
    """By what its head says, and not for what its bytes would be as JSON."""
    found = []
    for coding, body in (("gzip", gzip.compress(b"{}")), ("identity", b'{"sql": "SELECT 1"}')):
        headers = {"Content-Type": "application/json", "Content-Encoding": coding}
        found.append(service.post("/api/v1/sql", body, headers=headers))
    said = "the body has to come as it is, and `Content-Encoding` is `gzip`"
    assert (problem(found[0]), found[1].status_code) == ((415, "bad-request", said), 200)


def test_the_help_of_an_address_names_one_that_there_is(service: Serving) -> None:
    """One without the slash where that is the mistake, else where those of the API are listed."""
    listed = "the page /api lists the addresses of the API, and /api/v1/openapi.json describes them"
    paths = {
        "/api/v1": listed,
        "/api/v1/": listed,
        "/api/v1/nothing/": listed,
        "/api/v1/problems": listed,
        "/api/v2/decisions": listed,
        "/api/v1/decisions/": "addresses have no slash at their end: /api/v1/decisions",
        "/api/v1/openapi.json/": "addresses have no slash at their end: /api/v1/openapi.json",
        "/healthz/": "addresses have no slash at their end: /healthz",
        "/nothing/": None,
    }
    found = {}
    for path in paths:
        answer = service.get(path)
        found[path] = answer.json().get("help") if answer.status_code == 404 else answer
    assert found == paths
    named = ("/api", "/api/v1/openapi.json", "/api/v1/decisions", "/healthz")
    assert {path: service.get(path).status_code for path in named} == dict.fromkeys(named, 200)


def test_what_is_not_there_is_not_found(service: Serving) -> None:
    """An unknown number is no sign of a record that was changed."""
    found = [
        problem(asked(service, "/compare", {"rules": "kube-1.20", "ids": [1, 99999]})),
        problem(asked(service, "/clusters/default/state?at=2020-01-01T00:00:00Z")),
        problem(asked(service, "/clusters/default/state?revision=99")),
        problem(asked(service, "/clusters/nowhere/revisions")),
    ]
    assert [one[:2] for one in found] == [(404, "not-found")] * 4
    assert found[0][2] == "there is no decision `99999`"


def test_a_beginning_of_more_than_one_digest(service: Serving, db: str) -> None:
    """More of it would do: the request is what is wrong. Digests are made to begin alike here."""
    change = "UPDATE decisions SET digest = 'sha256:abcdef0' || id WHERE id IN (1, 2)"
    with Store.open(db) as store:
        kept = {row.id: row.digest for row in store.read.decisions_by_id([1, 2])}
    with closing(sqlite3.connect(db)) as raw:
        raw.execute(change)
        raw.commit()
        try:
            found = problem(asked(service, "/decisions/abcdef"))
            page = service.get("/decisions/abcdef")
        finally:
            for number, digest in kept.items():
                raw.execute("UPDATE decisions SET digest = ? WHERE id = ?", (digest, number))
            raw.commit()
    told = "`abcdef` is the beginning of more than one decision digest"
    assert (found, page.status_code) == ((400, "invalid", told), 400)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/clusters/default/state?revision=1&at=2030-01-01T00:00:00Z", None, "not both"),
        ("/decide", {"environment": "prod", "pod": "default/web", "manifest": {}}, "either"),
        ("/decide", {"environment": "prod"}, "either"),
        ("/sql", {"sql": "SELECT :a", "parameters": {"a": 1, "b": 2}}, "`b`"),
        ("/events?after=5", None, "after"),
        ("/openapi.json?x=1", None, "x"),
        ("/ledger?limit=1", None, "limit"),
        ("/export/decisions?format=x", None, "format"),
        ("/compare?x=1", {"rules": "kube-1.20", "ids": [1]}, "x"),
    ],
)
def test_what_has_no_effect_is_refused(
    service: Serving, path: str, body: dict[str, Any] | None, field: str
) -> None:
    status, kind, detail = problem(asked(service, path, body))
    assert (status, kind, field in detail) == (400, "invalid", True)


NO_TIME = (
    "`x` is not a time such as `2026-11-21T08:00:00Z`, `yesterday 14:02`, `14:05` or `2 hours ago`"
)


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/decisions?since=x", None, f"query: `since`: {NO_TIME}"),
        ("/observations?until=x", None, f"query: `until`: {NO_TIME}"),
        ("/clusters/default/state?at=x", None, "query: `at`: `x` is not an RFC 3339 time"),
        ("/clusters/default/state?at=", None, "query: `at`: it is empty"),
        ("/decide", {"environment": "prod"}, "body: give either `pod` or `manifest`"),
        (
            "/clusters/default/state?revision=1&at=2030-01-01T00:00:00Z",
            None,
            "query: give `revision` or `at`, not both",
        ),
    ],
)
def test_what_is_wrong_is_said_in_words(
    service: Serving, path: str, body: dict[str, Any] | None, detail: str
) -> None:
    """An empty time is none, and what is wrong with two fields together names both."""
    assert problem(asked(service, path, body)) == (400, "invalid", detail)


TWICE = "the key stands more than once"
NO_VALUE = "neither a text, nor a whole number of 64 bits, nor null"
NO_NUMBER = "not a whole number"
PROD = '{"environment": "prod", '


@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        (
            "/environments/prod/activations",
            '{"rules": "kube-1.14", "rules": "kube-1.20", "reason": "x"}',
            "rules",
            TWICE,
        ),
        (
            "/environments/prod/activations",
            r'{"rules": "kube-1.14", "r\u0075les": "kube-1.20", "rules": "x", "reason": "x"}',
            "rules",
            TWICE,
        ),
        (
            "/decide",
            PROD + '"manifest": {"metadata": {"name": "a", "name": "b"}}}',
            "manifest.metadata.name",
            TWICE,
        ),
        (
            "/what-if",
            PROD + '"manifests": [{}, {"a b": 1, "a b": 1}]}',
            'manifests[1]["a b"]',
            TWICE,
        ),
        ("/sql", '{"sql": "SELECT :a", "parameters": {"a": 1.5}}', "parameters.a", NO_VALUE),
        ("/sql", '{"sql": "SELECT :a", "parameters": {"a": true}}', "parameters.a", NO_VALUE),
        ("/sql", f'{{"sql": "x", "parameters": {{"a": {2**63}}}}}', "parameters.a", NO_VALUE),
        (
            "/sql",
            f'{{"sql": "x", "parameters": {{"a": "{"x" * 10_001}"}}}}',
            "parameters.a",
            "longer than 10000 characters",
        ),
        ("/sql", '{"sql": "SELECT 1", "limit": true}', "limit", NO_NUMBER),
        ("/sql", '{"sql": "SELECT 1", "limit": "5"}', "limit", NO_NUMBER),
        ("/sql", '{"sql": 1}', "sql", "not a text"),
        ("/sql", "[]", "", "not an object"),
        ("/compare", '{"rules": "kube-1.20", "newest": "5"}', "newest", NO_NUMBER),
        ("/compare", '{"rules": "kube-1.20", "ids": [1, "1"]}', "ids[1]", NO_NUMBER),
        ("/decide", PROD + '"manifest": "web"}', "manifest", "not an object"),
        (
            "/what-if",
            PROD + '"priority_classes": {"gold": 3000000000}}',
            "priority_classes.gold",
            "not less than 2147483648",
        ),
        ("/decisions?limit=1_0", "", "limit", NO_NUMBER),
        ("/decisions?limit=5.0", "", "limit", NO_NUMBER),
        ("/decisions?limit=%205", "", "limit", NO_NUMBER),
        ("/decisions?limit=%2B5", "", "limit", NO_NUMBER),
        ("/decisions?limit=-5", "", "limit", "less than 1"),
        ("/decisions?node=a&node=b", "", "node", "it is given twice"),
        ("/decisions?after=" + "1" * 5000, "", "after", "a number of too many digits"),
        ("/clusters/default/state?revision=1_0", "", "revision", NO_NUMBER),
        ("/decisions?workload=a", "", "workload", "`a` is not namespace/Kind/name"),
        ("/clusters/default/state?at=x", "", "at", "`x` is not an RFC 3339 time"),
        (
            "/sql",
            '{"sql": "SELECT 1", "parameters": {"a": 1}}',
            "parameters",
            "the query has no parameter `a`",
        ),
        (
            "/decide",
            PROD + '"manifest": {"kind": "Node", "metadata": {"name": "n"}}}',
            "manifest",
            "not that of a pod: it holds an object of kind `Node`",
        ),
    ],
)
def test_one_error_is_said_of_one_field(
    service: Serving, path: str, body: str, field: str, message: str
) -> None:
    """Where it is, and what it has to be; nothing is made of a value that the schema forbids."""
    url = f"{service.url}/api/v1{path}"
    headers = {"Content-Type": "application/json"}
    answer = service.client.request(
        "POST" if body else "GET", url, content=body or None, headers=headers if body else {}
    )
    place = "body" if body else "query"
    told = answer.json()
    assert (answer.status_code, told["errors"], told["detail"]) == (
        400,
        [{"in": place, "field": field, "message": message}],
        f"{place}: `{field}`: {message}" if field else f"{place}: {message}",
    )


def numbers(answer: httpx.Response) -> list[int]:
    return [json.loads(line)["id"] for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", range(COUNT, 0, -1)),
        ("?limit=2", (COUNT, COUNT - 1)),
        ("?after=3", (2, 1)),
        ("?after=10&limit=3", (9, 8, 7)),
        ("?limit=5000", range(COUNT, 0, -1)),
    ],
)
def test_an_export_has_a_limit_and_a_beginning(
    service: Serving, query: str, wanted: list[int]
) -> None:
    assert numbers(asked(service, f"/export/decisions{query}")) == list(wanted)


def test_revisions_have_pages(service: Serving) -> None:
    """Each names the next one, down to the first revision."""
    with_one = asked(service, "/clusters/default/revisions?limit=1")
    behind = asked(service, "/clusters/default/revisions?after=1")
    assert [one["revision"] for one in with_one.json()["revisions"]] == [2]
    assert with_one.links["next"]["url"] == "/api/v1/clusters/default/revisions?limit=1&after=2"
    assert (behind.json(), "link" in behind.headers) == ({"revisions": []}, False)


def test_the_next_page_of_an_instant_is_of_its_revision(service: Serving) -> None:
    """Of a state, the next page is of the same revision, whatever was asked for first."""
    first = asked(service, "/clusters/default/state?at=2030-01-01T00:00:00Z&limit=1")
    url = first.links["next"]["url"]
    assert url == "/api/v1/clusters/default/state?limit=1&after=default%2Fweb&revision=2"
    second = service.get(url)
    told = second.json()
    assert (told["revision"], [pod["metadata"]["name"] for pod in told["pods"]]) == (2, ["zoo"])
    assert "link" not in second.headers


@pytest.mark.parametrize("role", ["", "extender", "viewer"])
def test_what_a_problem_means_is_for_everybody(
    service: Serving, tokens: dict[str, str], role: str
) -> None:
    """The page that a 401 or a 403 names can be read by whoever got it; nothing else can."""
    headers = {"Authorization": f"Bearer {tokens[role]}"} if role else {}
    with httpx.Client(headers=headers) as client:
        refused = client.get(f"{service.url}/api/v1/queries")
        if role != "viewer":
            kind = refused.json()["type"]
            meaning = client.get(service.url + kind).json()
            shared = {"type": kind, "title": refused.json()["title"]}
            assert meaning == {**shared, "help": ADVICE[kind.rpartition("/")[2]]}
        answers = [
            client.get(f"{service.url}/api/v1/problems/{kind}").status_code
            for kind in ("unavailable", "nothing", "invalid?x=1")
        ]
    assert answers == [200, 404, 400]


def test_every_problem_has_its_advice() -> None:
    assert list(ADVICE) == list(TITLES)


def test_where_the_database_is_stays_in_the_log(service: Serving, db: str) -> None:
    """Neither the API nor a page names the file that is missing; the log does."""
    away = Path(db).rename(f"{db}.away")
    try:
        by_api = asked(service, "/sql", {"sql": "SELECT 1"})
        by_page = service.get("/sql", params={"q": "SELECT 1"})
    finally:
        away.rename(db)
    told = by_api.json()
    assert (by_api.status_code, told["type"], told["detail"], by_api.headers["retry-after"]) == (
        503,
        "/api/v1/problems/unavailable",
        "the database cannot answer now",
        "1",
    )
    assert "the database cannot answer now" in by_page.text
    assert [db in text for text in (by_api.text, by_page.text)] == [False, False]
    assert service.log.read_text().count(f"there is no database at `{db}`") == 2


def test_a_database_that_fails_is_no_sign_of_a_changed_record(db: str, tmp_path: Path) -> None:
    """Where the state cannot be read at all, that is the error, and no replay is incomplete."""
    broken = tmp_path / "broken.db"
    shutil.copy(db, broken)
    with Store.open(str(broken)) as store:
        (row,) = store.read.decisions(limit=1)
    size = broken.stat().st_size
    with Store.open(str(broken)) as store, broken.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
        file.flush()
        with pytest.raises(Unavailable):
            Replayer(store).snapshot(row)


def test_rules_that_another_version_made_active(db: str, tmp_path: Path) -> None:
    """Where this one cannot read them, that is said in place of what they would decide."""
    with Store.open(db) as store:
        parts = objects(a_pod("here").priority(1).cpu(1).on("n1"))
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
        written: dict[str, Any] = {"at_ms": serving.NOW_MS, "actor": "test"}
        store.record.create_environment("odd", "default", **written)
        store.record.activate("odd", rules=BY_HAND, reason="test", source="test", **written)
    service = serving.serve(db, tmp_path)
    told = (409, "this version cannot read the active rules of environment `odd`: missing key")
    for path, body in (("decide", {"pod": "web"}), ("what-if", {})):
        asked = {"environment": "odd", **body}
        answer = service.client.post(f"{service.url}/api/v1/{path}", json=asked)
        assert (answer.status_code, answer.json()["detail"][: len(told[1])]) == told
    page = service.get("/workloads/default/here")
    said = "This version cannot read these rules: missing key <code>apiVersion</code>."
    assert (page.status_code, said in page.text) == (200, True)
    assert service.stop() == 0
