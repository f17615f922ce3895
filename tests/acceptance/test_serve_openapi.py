"""The OpenAPI document against the service: every answer is what the document says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.acceptance.test_serve_group_viewers import fill
from tests.acceptance.test_serve_sessions import hold
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.groups import a_group, of_group
from tests.support.live import LIVE
from tests.support.page_text import table
from tests.support.serving import Serving, preempts

METHODS = {"get", "post"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    made["limited"] = file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1)
    return {**made, "file": str(file._path)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]) -> Iterator[Serving]:
    """Decisions of all origins, cycles of pod groups, batch sessions and observed preemptions."""
    folder = tmp_path_factory.mktemp("described")
    db = str(folder / "policy.db")
    fill(db)
    with Store.open(db) as store:
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36")
        scheduler = Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0)
        for pod in ("team-a/own-0", "team-b/few-0"):
            scheduler.decide(pod)
        store.record.create_environment("gangs", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36-groups", environment="gangs")
        fits = objects(
            a_node("n1").cpu(4),
            a_group("fits", priority=1, least=2),
            *(of_group(a_pod(f"fits-{i}").cpu(1), "fits") for i in (0, 1)),
        )
        store.record.import_objects("room", fits, at_ms=serving.NOW_MS, source="test")
        # Its nomination is of the cluster's own scheduler.
        waits = objects(a_node("n1").cpu(4), a_pod("waits").cpu(8).nominated_to("n1"))
        store.record.import_objects("waits", waits, at_ms=serving.NOW_MS, source="test")
        journal = StoreJournal(store, "room", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36-groups")
        Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0).decide_group("default/fits")
    hold(db, folder, lab="team-a")
    recorded = [str(LIVE / f"wave-kubelet.{end}.gz") for end in ("initial.json", "jsonl")]
    command = [sys.executable, "-m", "policy", "import", "--db", db, "--cluster", "real"]
    subprocess.run([*command, *recorded], check=True, capture_output=True)
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.ready()
    headers = {"Authorization": f"Bearer {tokens['extender']}"}
    answer = started.post("/extender/preempt", preempts("b")[0]["request"], headers=headers)
    assert answer.status_code == 200, answer.text
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module")
def described(service: Serving, tokens: dict[str, str]) -> dict[str, Any]:
    answer = service.get("/api/v1/openapi.json", headers=bearer(tokens["viewer"]))
    found: dict[str, Any] = answer.json()
    return found


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def closed(schema: Any) -> Any:
    """The schema, by which nothing may be in an object that is not described."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


class Checked:
    """Calls operations, and compares the answers with the document."""

    def __init__(self, service: Serving, described: dict[str, Any]) -> None:
        self.service = service
        self.described = closed(deepcopy(described))
        self.seen: set[str] = set()

    def __call__(
        self,
        token: str,
        path: str,
        wanted: int = 200,
        body: Any = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        **parts: str,
    ) -> httpx.Response:
        """path: as the document has it, a query behind `?`; parts: of the path."""
        plain, _, query = path.partition("?")
        method = "GET" if body is None else "POST"
        url = self.service.url + "/api/v1" + plain.format(**parts) + (f"?{query}" if query else "")
        sent = {**bearer(token), **headers}
        answer = self.service.client.request(method, url, json=body, headers=sent)
        told = self.described["paths"][f"/api/v1{plain}"][method.lower()]
        assert answer.status_code == wanted, answer.text
        response = told["responses"][str(wanted)]
        kind = answer.headers["content-type"].partition(";")[0]
        schema = {**response["content"][kind]["schema"], "components": self.described["components"]}
        lines = answer.text.splitlines() if kind == "application/x-ndjson" else []
        if lines:
            value: Any = [json.loads(line) for line in lines]
        else:
            value = answer.json() if kind.endswith("json") else answer.text
        if lines:
            names = response["content"][kind]["schema"]["description"].split("`")[1::2]
            schema = {
                "type": "array",
                "items": {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]},
                "components": self.described["components"],
            }
        Draft202012Validator.check_schema(schema)
        errors = [
            f"{plain}: {error.json_path}: {error.message[:300]}"
            for found in Draft202012Validator(schema).iter_errors(value)
            for error in (found, *(found.context or ()))
        ]
        assert errors == []
        promised = {name.lower() for name in response.get("headers", ())} - {"link"}
        assert promised - set(answer.headers) == set()
        if wanted < 300:
            self.seen.add(told["operationId"])
        return answer


@pytest.fixture(scope="module")
def checked(service: Serving, described: dict[str, Any]) -> Checked:
    return Checked(service, described)


def reads(call: Callable[..., httpx.Response], token: str) -> None:
    """What every viewer may read."""
    for path in ("decisions", "observations", "groups", "sessions"):
        for query in ("", "?limit=1"):
            call(token, f"/{path}{query}")
        listed = call(token, f"/{path}").json()[path]
        assert listed
        for one in listed:
            call(token, f"/{path}/{{id}}", id=str(one["id"]))
    call(token, "/export/decisions")
    call(token, "/export/decisions.csv")
    for path in ("groups", "sessions", "observations"):
        for query in ("", "?limit=1"):
            assert call(token, f"/export/{path}{query}").text
    call(token, "/sql", body={"sql": "SELECT 1 AS one, NULL AS none"})
    call(token, "/problems/{kind}", kind="invalid")


def test_every_answer_is_described(checked: Checked, tokens: dict[str, str]) -> None:
    """Of every operation, to an operator and to a viewer that is limited to namespaces.

    Nothing is in an answer that the document does not describe. Events are read elsewhere.
    """
    token = tokens["operator"]
    reads(checked, token)
    reads(checked, tokens["limited"])
    for number in ("1", "2"):
        for node, wanted in (("n1", 200), ("n2", 200), ("nowhere", 404)):
            checked(token, f"/decisions/{{id}}/why-not?node={node}", wanted, id=number)
        for part in ("rules", "spared", "replay"):
            checked(token, f"/decisions/{{id}}/{part}", id=number)
    checked(token, "/decisions/{id}/node", id="1")
    checked(token, "/overview")
    supposed = {
        "metadata": {"name": "new", "namespace": "team-a"},
        "spec": {"priority": 9, "containers": [{"name": "c"}]},
    }
    pod = {"environment": "prod", "pod": "team-b/few-0"}
    checked(token, "/decide", body=pod)
    checked(token, "/decide", body={"environment": "prod", "manifest": supposed})
    member = {**supposed["spec"], "schedulingGroup": {"podGroupName": "some"}}
    supposed_member = {**supposed, "spec": member}
    checked(token, "/decide", body={"environment": "gangs", "manifest": supposed_member})
    checked(token, "/decide", 409, body={**pod, "pod": "team-b/none"})
    checked(token, "/what-if", body={"environment": "prod", "removed_nodes": ["n1"]})
    checked(token, "/compare", body={"rules": "kube-1.20", "ids": [1, 2, 3], "groups": [1, 2]})
    checked(token, "/compare", body={"rules": "kube-1.20", "newest": 10})
    started = checked(token, "/groups?outcome=scheduled").json()["groups"]
    numbers = [1, *(one["id"] for one in started)]
    cycles = {"rules": "kube-1.36-groups", "groups": numbers}
    compared = checked(token, "/compare", body=cycles).json()["decisions"]
    assert [(one["change"], one["after"]["bound"]) for one in compared] == [
        ("same", []),
        ("same", [["default/fits-0", "n1"], ["default/fits-1", "n1"]]),
    ]
    for path in ("/environments", "/rule-sets", "/ledger", "/queries"):
        checked(token, path)
    change = {"rules": "kube-1.20", "reason": "for a test"}
    checked(token, "/environments/{name}/activations", 201, change, name="prod")
    checked(token, "/environments/{name}/activations", 409, change, name="prod")
    checked(token, "/environments/{name}/rollback", 201, {"reason": "back"}, name="prod")
    old = {"If-Match": '"of another answer"'}
    checked(token, "/environments/{name}/activations", 412, change, old, name="prod")
    checked(token, "/environments/{name}/rollback", 412, {"reason": "x"}, old, name="prod")
    checked(token, "/environments/{name}", name="prod")
    checked(token, "/rule-sets/{name}", name="kube-1.36")
    checked(token, "/rule-sets/{name}/uses", name="kube-1.36")
    checked(token, "/rule-sets/{name}/diff/{other}", name="kube-1.36", other="kube-1.20")
    for cluster in ("default", "real"):
        for kind in ("pods", "nodes"):
            checked(token, f"/clusters/{{cluster}}/state?kind={kind}", cluster=cluster)
        checked(token, "/clusters/{cluster}/revisions?limit=2", cluster=cluster)
        checked(token, "/clusters/{cluster}/nominations?standing=true", cluster=cluster)
        checked(token, "/clusters/{cluster}/verify", cluster=cluster)
    checked(tokens["viewer"], "/environments/{name}/rollback", 403, {"reason": "x"}, name="prod")
    checked("none", "/decisions", 401)
    checked(token, "/decisions?limit=0", 400)
    every = {
        told["operationId"]
        for methods in checked.described["paths"].values()
        for told in methods.values()
    }
    assert every - checked.seen == {"streamEvents"}


def test_lists_name_their_next_page_until_the_last(
    checked: Checked, described: dict[str, Any], tokens: dict[str, str]
) -> None:
    """Those of which the document says so; the pages together are the list."""
    named = {
        path.removeprefix("/api/v1")
        for path, methods in described["paths"].items()
        if "Link" in methods.get("get", {}).get("responses", {}).get("200", {}).get("headers", {})
    }
    lists = {
        "/decisions": "decisions",
        "/observations": "observations",
        "/groups": "groups",
        "/sessions": "sessions",
        "/clusters/{cluster}/state": "pods",
        "/clusters/{cluster}/revisions": "revisions",
        "/clusters/{cluster}/nominations": "nominations",
    }
    assert named == set(lists)
    token = tokens["operator"]
    for path, key in lists.items():
        whole = checked(token, path, cluster="default").json()[key]
        full = checked(token, f"{path}?limit={len(whole)}", cluster="default")
        assert (full.json()[key], "next" in full.links) == (whole, False)
        found: list[Any] = []
        answer = checked(token, f"{path}?limit=1", cluster="default")
        while answer.json()[key]:
            found += answer.json()[key]
            if "next" not in answer.links:
                break
            url = checked.service.url + answer.links["next"]["url"]
            answer = checked.service.client.get(url, headers=bearer(token))
        assert found == whole
        assert len(found) > 1 or key == "revisions"


@pytest.mark.parametrize("page", ["decisions", "observed", "groups", "sessions"])
def test_a_page_that_is_full_may_be_the_last(
    checked: Checked, tokens: dict[str, str], page: str
) -> None:
    """It leads to an older one only where something is on that."""
    token, name = tokens["operator"], {"observed": "observations"}.get(page, page)
    count = len(checked(token, f"/{name}").json()[name])
    texts = [
        checked.service.get(f"/{page}?limit={limit}", headers=bearer(token)).text
        for limit in (count, count - 1)
    ]
    assert ['<a rel="next"' in text for text in texts] == [False, True]


def test_what_was_read_before_is_not_sent_again(
    checked: Checked, described: dict[str, Any], tokens: dict[str, str]
) -> None:
    """Every GET has an ETag; what is wholly named by digests of rule sets stays for ever.

    Not so a decision: the same may be decided again, and a later state may contradict it.
    """
    token = tokens["operator"]
    digest = checked(token, "/decisions/{id}", id="1").json()["digest"]
    rules = checked(token, "/rule-sets/{name}", name="kube-1.36").json()["digest"]
    forever = [f"/rule-sets/{rules}", f"/rule-sets/{rules}/diff/{rules}"]
    others = [f"/decisions/{digest}", "/rule-sets/kube-1.36", "/decisions", "/openapi.json"]
    found = {}
    for path in (*forever, *others):
        url = f"{checked.service.url}/api/v1{path}"
        answer = checked.service.client.get(url, headers=bearer(token))
        again = checked.service.client.get(
            url, headers={**bearer(token), "If-None-Match": answer.headers["etag"]}
        )
        kept = answer.headers["cache-control"]
        assert (again.status_code, again.content, again.headers["cache-control"]) == (
            304,
            b"",
            kept,
        )
        found[path] = "immutable" in kept
    assert found == {**dict.fromkeys(forever, True), **dict.fromkeys(others, False)}


def test_what_is_kept_is_for_whom_it_was_given(service: Serving, tokens: dict[str, str]) -> None:
    """A browser shows a rule set no more, that stays for ever, after the session in which it came.

    Nor to a session of a token that may not see it.
    """
    headers = bearer(tokens["viewer"])
    digest = service.get("/api/v1/rule-sets/kube-1.36", headers=headers).json()["digest"]
    forever = f"/api/v1/rule-sets/{digest}"
    given = service.get(forever, headers=headers)
    known = {**headers, "If-None-Match": given.headers["etag"]}
    answers = [given, service.get(forever, headers=known)]
    found = [(one.status_code, one.headers.get("vary")) for one in answers]
    assert found == [(200, "Authorization, Cookie"), (304, "Authorization, Cookie")]


def test_every_array_says_what_is_in_it(described: dict[str, Any]) -> None:
    """By a schema, also where it may be anything: generators of clients take nothing else."""
    wanting = []

    def look(part: Any, at: str) -> None:
        if isinstance(part, list):
            for number, one in enumerate(part):
                look(one, f"{at}/{number}")
        elif isinstance(part, dict):
            if part.get("type") == "array" and not isinstance(part.get("items"), dict):
                wanting.append(at)
            for name, one in part.items():
                look(one, f"{at}/{name}")

    look(described, "")
    assert wanting == []


def test_everything_that_may_be_given_has_a_meaning(described: dict[str, Any]) -> None:
    """Every parameter, and every field of a body."""
    without = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            given = {one["name"]: one["schema"] for one in operation["parameters"]}
            body = operation.get("requestBody")
            if body is not None:
                given |= body["content"]["application/json"]["schema"]["properties"]
            names = [name for name, one in given.items() if not one.get("description")]
            without += [(method, path, name) for name in names]
    assert without == []


def test_tags_may_stand_on_several_lines(service: Serving, tokens: dict[str, str]) -> None:
    """As of every header that is a list (RFC 9110, 5.3), also as proxies weaken them."""
    url = f"{service.url}/api/v1/environments/prod"
    headers = bearer(tokens["operator"])
    tag = service.client.get(url, headers=headers).headers["etag"]
    found = []
    for known in (tag, f"W/{tag}", '"other"'):
        lines = [*headers.items(), ("If-None-Match", '"one", "two"'), ("If-None-Match", known)]
        found.append(service.client.get(url, headers=lines).status_code)
    assert found == [304, 304, 200]


def test_another_method_is_refused_with_those_that_there_are(
    service: Serving, described: dict[str, Any], tokens: dict[str, str]
) -> None:
    """Of every path, also below a name that may hold slashes."""
    names = {"id": "1", "name": "prod", "other": "b", "cluster": "default", "kind": "invalid"}
    found, wanted = {}, {}
    for path, told in described["paths"].items():
        allowed = {method.upper() for method in told}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - allowed:
            url = service.url + path.format(**names)
            answer = service.client.request(method, url, headers=bearer(tokens["operator"]))
            given = answer.headers.get("allow", "").split(", ")
            found[method, path] = (answer.status_code, sorted(given))
            wanted[method, path] = (405, sorted(allowed))
    assert found == wanted


def test_the_type_of_a_body_has_no_case(service: Serving, tokens: dict[str, str]) -> None:
    """And may have parameters."""
    headers = bearer(tokens["viewer"])
    statuses = [
        service.post("/api/v1/sql", {"sql": "SELECT 1"}, headers={**headers, "Content-Type": kind})
        for kind in ("Application/JSON; charset=utf-8", "text/json")
    ]
    assert [answer.status_code for answer in statuses] == [200, 415]


def test_writes_take_a_key(described: dict[str, Any]) -> None:
    """Those that change something, and no other operation; the same ones take a condition."""
    found = {
        header: {
            told["operationId"]
            for methods in described["paths"].values()
            for told in methods.values()
            if any(p["name"] == header for p in told["parameters"])
        }
        for header in ("Idempotency-Key", "If-Match")
    }
    assert found == {header: {"activate", "rollBack"} for header in found}


def test_the_page_shows_what_answers_are(service: Serving, tokens: dict[str, str]) -> None:
    """Each schema has a section that its operations lead to."""
    page = service.get("/api", headers=bearer(tokens["viewer"])).text
    assert '<a href="#schema-Decision">Decision</a>' in page
    assert 'id="schema-Decision"' in page
    assert "Everything that is known of a decision" in page


def test_the_page_shows_what_may_be_given(service: Serving, tokens: dict[str, str]) -> None:
    """Bounds, values and defaults of parameters, and of fields of a body."""
    page = service.get("/api", headers=bearer(tokens["viewer"]))
    state = table(page, "Parameters of getState")
    rows = {row[0].strip("`"): row[3:5] for row in state}
    assert (rows["limit"], rows["kind"]) == (
        ["1 to 5000", "`500`"],
        ["one of `pods`, `nodes`", "`pods`"],
    )
    depth = next(row for row in table(page, "Body of whatIf") if row[0] == "`depth`")
    assert depth[2:4] == ["1 to 100", "`3`"]
