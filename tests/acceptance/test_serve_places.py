"""The pages of workloads, nodes and SQL, as a viewer, a limited viewer and an admin see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser

from policy.audit.documents import instant
from policy.cli.app import run
from policy.cluster.objects import Pod
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.migrate import VIEWS
from policy.store.read.saved_queries import saved_queries
from tests.acceptance import test_batch_cli, test_group_commands
from tests.acceptance.test_batch_cli import KUBE_BATCH
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_cluster,
    a_decision,
    made_on,
    the_changes,
)
from tests.contract.filled import observe
from tests.support import serving
from tests.support.page_text import table, words
from tests.support.serving import Serving
from tests.support.signing_in import sign_in

START = "2026-09-21T12:00:00Z"
GROUP_NOW = "2026-09-21T15:00:00Z"
JSON = "application/json"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`limited` sees namespace shop only, `lab` where others evicted than decisions.

    `both` sees the pods of two nominations.
    """
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    made["limited"] = file.create("limited", Role.VIEWER, namespaces=["shop"], now_ms=1)
    made["lab"] = file.create("lab", Role.VIEWER, namespaces=["lab", "default"], now_ms=1)
    made["both"] = file.create("both", Role.VIEWER, namespaces=["lab", "team"], now_ms=1)
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, tokens: dict[str, str]
) -> Iterator[Serving]:
    """team/urgent took both pods of shop/web from n1 and waits for it; something was observed.

    A batch session and the cycle of a pod group evicted pods, each of a cluster of its own.
    """
    folder = tmp_path_factory.mktemp("places")
    path = folder / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    with Store.open(str(path)) as store:
        objects = [
            replace(obj, status=replace(obj.status, start_time=START))
            if isinstance(obj, Pod) and obj.spec.node_name
            else obj
            for obj in a_cluster()
        ]
        store.record.import_objects("default", objects, at_ms=NOW - 60_000, source="test")
        store.record.create_environment("prod", "default", at_ms=NOW, actor="test")
        serving.activate(store, "kube-1.36")
        store.record.decision(
            "default",
            made_on(store, a_decision()),
            the_changes(),
            expected_revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
        observe(store, "default")
    (folder / "gangs.json").write_text(
        json.dumps({"kind": "List", "items": test_batch_cli.a_cluster(KUBE_BATCH, "kube-batch")})
    )
    (folder / "group.yaml").write_text(test_group_commands.CLUSTER)
    grouped = ("--rules", "kube-1.36-groups", "--now", GROUP_NOW)
    for command in (
        ("import", "--cluster", "gangs", str(folder / "gangs.json")),
        ("batch", "run", "--cluster", "gangs", "--rules", "kube-batch-sample", "--now", GROUP_NOW),
        ("import", "--cluster", "groups", str(folder / "group.yaml")),
        ("preempt", "--group", "train", "--cluster", "groups", *grouped),
    ):
        assert run([*command, "--db", str(path)]) == 0
    started = serving.serve(str(path), folder, "--tokens", tokens["file"])
    started.ready()
    yield started
    assert started.stop() == 0


def got(service: Serving, token: str, path: str, **query: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"}
    return service.get(path, headers=headers, params=query or None)


# --- workloads -----------------------------------------------------------------------------------


def test_a_workload_has_its_time_line_and_who_took_it(
    service: Serving, tokens: dict[str, str]
) -> None:
    """When each pod ran and was evicted, by whom, how much was lost, and the way to each."""
    page = got(service, tokens["viewer"], "/workloads/shop/web")
    assert "2 times a victim, 2 of them evicted: 2 h of run time lost." in words(page)
    at = "2026-09-21 14:13:20"
    assert [row[:6] for row in table(page, "When its pods ran")] == [
        ["shop/web-2", "n1", "2026-09-21 12:00:00", at, "2 h 13 min", at],
        ["shop/web-1", "n1", "2026-09-21 12:00:00", at, "2 h 13 min", at],
    ]
    assert table(page, "Preemptors") == [["team/Pod/urgent", "2", "2 h"]]
    assert [row[3] for row in table(page, "Evictions")] == ["1 h", "1 h"]
    assert page.text.count('title="3600 s">1 h<') == 2
    strips = re.findall(r'<svg class="strip".*?</svg>', page.text, re.DOTALL)
    assert [strip.count('class="span"') for strip in strips] == [1, 1]
    assert [re.findall(r'<a href="([^"]+)"', strip) for strip in strips] == [["/decisions/1"]] * 2
    assert [row[0] for row in table(page, "Evictions")] == [at, at]


@pytest.mark.parametrize("token", ["viewer", "limited"])
def test_a_workload_is_found_with_its_kind(
    service: Serving, tokens: dict[str, str], token: str
) -> None:
    """As lists and the command line name it: the page of its name is the one there is."""
    found = got(service, tokens[token], "/workloads/shop/ReplicaSet/web", cluster="default")
    assert (found.status_code, found.headers["location"]) == (
        303,
        "/workloads/shop/web?cluster=default",
    )
    # What is no kind is part of a name.
    plain = got(service, tokens[token], "/workloads/shop/replica/web")
    told = {"viewer": "Nothing is recorded of a pod", "limited": "0 times a victim"}[token]
    assert (plain.status_code, told in words(plain)) == (200, True)
    other = got(service, tokens["limited"], "/workloads/lab/Job/hit")
    assert other.status_code == 404


def test_a_workload_says_which_rules_protect_it(service: Serving, tokens: dict[str, str]) -> None:
    """By the active rules, for who took it last; and which shipped rules would keep it."""
    page = got(service, tokens["viewer"], "/workloads/jobs/batch")
    assert "0 times a victim" in words(page)
    (row,) = table(page, "Rules")
    assert row[:5] == ["prod", "kube-1.36", "a supposed pod, priority 100", "1", "yes"]
    assert (row[5], row[7]) == ("lower-priority", "no shipped rule alone")


def test_what_was_observed_counts(service: Serving, tokens: dict[str, str]) -> None:
    page = got(service, tokens["viewer"], "/workloads/lab/hit")
    assert "1 of them was observed of the cluster's own scheduler" in words(page)
    (row,) = table(page, "Evictions")
    assert (row[1:3], row[4:]) == (["lab/hit", "n2"], ["yes", "team/real", "observed 1"])


def test_evictions_of_sessions_count(service: Serving, tokens: dict[str, str]) -> None:
    """Of batch sessions, and of cycles of pod groups, with the way to each."""
    page = got(service, tokens["viewer"], "/workloads/lab/crunch-0")
    assert "1 time a victim, 1 of them evicted: how long it ran is not known." in words(page)
    at = "2026-09-21 15:00:00"
    evicted = ["lab/crunch-0", "n1", "not known", "yes", "ml/train-0", "batch session 1"]
    assert table(page, "Evictions") == [[at, *evicted]]
    assert table(page, "Preemptors") == [["ml/Pod/train-0", "1", "not known"]]
    ran = [(row[2], row[4]) for row in table(page, "When its pods ran")]
    assert ran == [("no start time", "not known")] * 2
    assert got(service, tokens["viewer"], "/sessions/1").status_code == 200
    assert page.text.count('href="/sessions/1"') == 3  # the row, the time line and its mark
    page = got(service, tokens["viewer"], "/workloads/default/low")
    evicted = ["default/low", "n1", "not known", "yes", "default/train-0", "cycle 2"]
    assert table(page, "Evictions") == [[at, *evicted]]
    assert got(service, tokens["viewer"], "/groups/2").status_code == 200
    assert page.text.count('href="/groups/2"') == 3  # the row, the time line and its mark


@pytest.mark.parametrize("token", ["viewer", "lab"])
def test_the_title_of_a_cycle_names_it(
    service: Serving, tokens: dict[str, str], token: str
) -> None:
    """With its number, as the reader knows it, and its time: a group has many."""
    limited = serving.shown(tokens["file"], Numbered.SESSION, 2)
    number = {"viewer": 2, "lab": limited}[token]
    page = got(service, tokens[token], f"/groups/{number}").text
    assert re.findall("<title>(.*?)</title>", page) == [
        f"Pod group default/train, cycle {number}, 2026-09-21 15:00:00 UTC · policy"
    ]


def test_a_limited_viewer_sees_evictions_alone(service: Serving, tokens: dict[str, str]) -> None:
    """No other namespace, no node's page, no rules; the time that its own decisions told."""
    page = got(service, tokens["limited"], "/workloads/shop/web")
    assert [row[:3] for row in table(page, "When its pods ran")] == [
        ["shop/web-2", "n1", "2026-09-21 13:13:20"],
        ["shop/web-1", "n1", "2026-09-21 13:13:20"],
    ]
    assert table(page, "Preemptors") == [["hidden", "2", "2 h"]]
    hidden = ("team", "urgent", "/nodes/", "/environments/", "lower-priority")
    assert [word for word in hidden if word in page.text.partition("<main")[2]] == []
    assert got(service, tokens["limited"], "/workloads/lab/hit").status_code == 404
    refused = [got(service, tokens["limited"], path).status_code for path in ("/nodes/n1",)]
    assert refused == [403]


def test_a_limited_viewer_is_led_to_no_page_that_refuses(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Every link of the pages that they may see, those of the head included."""
    own = f"/decisions/{serving.shown(tokens['file'], Numbered.DECISION, 1)}"
    starts = (
        "/",
        "/decisions",
        own,
        "/observed",
        "/groups",
        "/sessions",
        "/workloads/shop/web",
    )
    links = {
        unescape(link)
        for path in starts
        for link in re.findall(r'href="(/[^"#]*)"', got(service, tokens["limited"], path).text)
    }
    statuses = {link: got(service, tokens["limited"], link).status_code for link in links}
    assert statuses == dict.fromkeys(links, 200)
    paths = ("/workloads/lab/hit", "/workloads/lab/crunch-0", "/workloads/default/low")
    found = [
        re.findall(r'href="(/(?:observed|sessions|groups)/\d+)"', page.text)[:1]
        for page in (got(service, tokens["lab"], path) for path in paths)
    ]
    shown = [
        ("observed", Numbered.OBSERVATION, 1),
        ("sessions", Numbered.SESSION, 1),
        ("groups", Numbered.SESSION, 2),
    ]
    assert found == [
        [f"/{name}/{serving.shown(tokens['file'], of, number)}"] for name, of, number in shown
    ]
    assert [got(service, tokens["lab"], address).status_code for (address,) in found] == [200] * 3
    assert {"/sql", "/groups", "/observed", own} <= links


# --- nodes ---------------------------------------------------------------------------------------


def test_a_node_says_what_would_go_first(service: Serving, tokens: dict[str, str]) -> None:
    """Its pods by importance, what they hold, who waits for it, and its past."""
    page = got(service, tokens["viewer"], "/nodes/n2")
    assert "lab/hit would go first." in words(page)
    assert table(page, "Pods in default") == [
        ["1", "jobs/batch", "0", "p0", "2026-09-21 12:00:00", "8", "1 GiB", "Running"],
        [
            "2",
            "lab/hit (would go first)",
            "0",
            "p0",
            "2026-11-20 00:00:00",
            "1",
            "1 GiB",
            "Running",
        ],
    ]
    other = got(service, tokens["viewer"], "/nodes/n1")
    assert [row[:2] + row[3:4] for row in table(other, "Nominated in default")] == [
        ["team/urgent", "100", "1"],
        ["lab/waiting", "10", "none of this record"],
    ]
    assert "Preemptions: 1" in words(other)
    assert '<a href="/decisions/1" aria-label="' in other.text
    none = words(got(service, tokens["viewer"], "/nodes/n9"))
    assert "has no node of this name" in none
    assert "No decision for it is recorded, and no eviction from it." in none


@pytest.mark.parametrize("path", ["/nodes/n1", "/nodes/n2", "/workloads/shop/web"])
@pytest.mark.parametrize("cluster", [None, "default", "gangs", "groups"])
def test_no_pod_leads_to_an_empty_list(
    service: Serving, tokens: dict[str, str], path: str, cluster: str | None
) -> None:
    """Those of which the record has no decision: others nominated them, or evicted for them."""
    query = {} if cluster is None else {"cluster": cluster}
    page = got(service, tokens["viewer"], path, **query).text
    lists = re.findall(r'href="(/decisions\?preemptor=[^"]*)"', page)
    empty = [
        one for one in lists if "<table" not in got(service, tokens["viewer"], unescape(one)).text
    ]
    assert empty == []


def test_a_node_says_what_others_evicted(service: Serving, tokens: dict[str, str]) -> None:
    """Its own scheduler, batch sessions and cycles of pod groups, with the way to each."""
    page = got(service, tokens["viewer"], "/nodes/n2")
    assert "No decision for it is recorded." in words(page)
    assert "Evictions by the cluster's own scheduler: 1" in words(page)
    (row,) = table(page, "Evicted by others")
    assert row[1:] == ["default", "lab/hit", "yes", "team/real", "observed 1"]
    assert page.text.count('href="/observed/1"') == 2  # the row and its mark
    other = got(service, tokens["viewer"], "/nodes/n1")
    at = "2026-09-21 15:00:00"
    assert table(other, "Evicted by others")[:2] == [
        [at, "groups", "default/low", "yes", "default/train-0", "cycle 2"],
        [at, "gangs", "lab/crunch-0", "yes", "ml/train-0", "batch session 1"],
    ]
    assert other.text.count('href="/groups/2"') == 2
    alone = got(service, tokens["viewer"], "/nodes/n1", cluster="groups")
    assert [row[-1] for row in table(alone, "Evicted by others")] == ["cycle 2"]


# --- nominations -------------------------------------------------------------------------------


def test_nominations_have_what_the_view_has(service: Serving, tokens: dict[str, str]) -> None:
    """Of one cluster, page by page; chosen by pod, node and whether they stand."""
    path = "/api/v1/clusters/default/nominations"
    whole = got(service, tokens["viewer"], path).json()["nominations"]
    query = {"sql": "SELECT * FROM v_nominations WHERE cluster = 'default'"}
    headers = {"Authorization": f"Bearer {tokens['viewer']}"}
    view = service.post("/api/v1/sql", query, headers={**headers, "Content-Type": JSON}).json()
    rows = [dict(zip(view["columns"], row, strict=True)) for row in view["rows"]]
    shared = rows[0].keys() - {"made_at", "made_ms"}
    told = {one["pod"]: ({name: one[name] for name in shared}, one["made_at"]) for one in whole}
    assert told == {
        row["pod"]: ({name: row[name] for name in shared}, instant(row["made_ms"])) for row in rows
    }
    assert [one["pod"] for one in whole] == ["team/urgent", "lab/waiting"]
    first = got(service, tokens["viewer"], path, limit=1)
    second = service.get(first.links["next"]["url"], headers=headers)
    pages = [page.json()["nominations"] for page in (first, second)]
    assert (pages, "next" in second.links) == ([whole[:1], whole[1:]], False)
    asked = ({"pod": "lab/waiting"}, {"node": "n9"}, {"standing": "true"}, {"standing": "false"})
    found = [got(service, tokens["viewer"], path, **one).json()["nominations"] for one in asked]
    assert found == [whole[1:], [], whole, []]
    assert got(service, tokens["viewer"], path, standing="yes").status_code == 400
    nowhere = "/api/v1/clusters/nowhere/nominations"
    assert got(service, tokens["viewer"], nowhere).status_code == 404


def test_nominations_of_a_limited_viewer(service: Serving, tokens: dict[str, str]) -> None:
    """Of pods of its namespaces, without revisions, and from no place that no list ended with."""
    path = "/api/v1/clusters/default/nominations"
    whole = got(service, tokens["viewer"], path).json()["nominations"]
    (own,) = got(service, tokens["lab"], path).json()["nominations"]
    hidden = ("made_revision", "ended_revision")
    assert own == {name: value for name, value in whole[1].items() if name not in hidden}
    answers = [
        got(service, tokens[who], where, **query).json().get("nominations")
        for who, where, query in (
            ("limited", path, {}),
            ("lab", path, {"pod": "team/urgent"}),
            ("lab", "/api/v1/clusters/nowhere/nominations", {}),
            ("lab", path, {"after": "2/lab/waiting"}),
            ("lab", path, {"after": "x"}),
        )
    ]
    assert answers == [[], [], [], None, None]
    first = got(service, tokens["both"], path, limit=1)
    further = first.links["next"]["url"]
    headers = {"Authorization": f"Bearer {tokens['both']}"}
    second = service.get(further, headers=headers).json()["nominations"]
    pods = [one["pod"] for one in (*first.json()["nominations"], *second)]
    assert pods == ["team/urgent", "lab/waiting"]
    elsewhere = service.get(further.replace("/default/", "/gangs/"), headers=headers)
    assert elsewhere.status_code == 400


# --- SQL -----------------------------------------------------------------------------------------


def test_the_page_keeps_the_lines_of_a_query(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """However often it is run; what is not shown as it is, is shown otherwise."""
    page = browser.new_context(java_script_enabled=False).new_page()
    sign_in(page, service, tokens["viewer"], "/sql")
    query = "SELECT victim\n\tFROM v_victims -- <b>\nWHERE victim LIKE :like"
    page.fill("textarea[name=q]", query)
    page.click("main form button")
    assert "no value for like" in page.locator("[role=alert]").inner_text()
    for _ in range(2):
        page.locator("input[name='p.like']").fill("shop/%")
        page.click("main form button")
        assert page.locator("textarea").input_value() == query
        assert page.locator("section[aria-labelledby=result] tbody td").all_inner_texts() == [
            "shop/web-2",
            "shop/web-1",
        ]
    assert dict(parse_qsl(urlsplit(page.url).query))["p.like"] == "shop/%"


@pytest.mark.parametrize("name", sorted(saved_queries()))
def test_a_saved_query_runs_again(service: Serving, tokens: dict[str, str], name: str) -> None:
    """Opened, and sent by its form: with its parameters, for whoever may read views alone, too."""
    first = got(service, tokens["viewer"], "/sql", saved=name)
    text = unescape(first.text.partition("<textarea")[2].partition(">\n")[2])
    text = text.partition("</textarea>")[0]
    fields = dict(re.findall(r'<input name="(p\.\w+)" value="([^"]*)"', first.text))
    assert sorted(fields) == sorted(f"p.{p}" for p in saved_queries()[name].parameters)
    again = got(service, tokens["viewer"], "/sql", q=text.replace("\n", "\r\n"), **fields)
    assert [page.text.count('role="alert"') for page in (first, again)] == [0, 0]
    assert table(first, "Result") == table(again, "Result")


def test_parameters_of_a_saved_query_count(service: Serving, tokens: dict[str, str]) -> None:
    """`limit` says that there are more; what is none is refused in words."""
    query = {"saved": "who-preempts-whom", "p.limit": "1"}
    assert "1 row; there are more." in words(got(service, tokens["viewer"], "/sql", **query))
    wrong = {"saved": "outcomes", "p.since": "someday"}
    assert "`since`: " in words(got(service, tokens["viewer"], "/sql", **wrong))
    none = {"saved": "outcomes", "p.limit": "0"}
    assert "`limit` is a number from 1 on" in words(got(service, tokens["viewer"], "/sql", **none))
    assert got(service, tokens["viewer"], "/sql", saved="nothing").status_code == 404


@pytest.mark.parametrize(
    ("since", "found"), [("9000d", "4 rows"), ("1d", "0 rows"), ("now", "0 rows")]
)
def test_times_are_typed_as_everywhere(
    service: Serving, tokens: dict[str, str], since: str, found: str
) -> None:
    """Before now, by the service's clock, as on the command line and on other pages."""
    query = {"saved": "who-preempts-whom", "p.since": since}
    page = got(service, tokens["viewer"], "/sql", **query)
    assert f"{found}. Download" in words(page)
    assert f'name="p.since" value="{since}"' in page.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"foo": "1"}, "`foo`: there is no such parameter"),
        (
            {"limit": "abc"},
            "`limit`: there is no such parameter `p.limit` is the parameter of the query",
        ),
        ({"p.foo": "1"}, "the query has no parameter `foo`"),
    ],
)
def test_what_has_no_effect_on_a_query_is_refused(
    service: Serving, tokens: dict[str, str], more: dict[str, str], said: str
) -> None:
    """In its page, with the query and its fields as they were; a download is refused whole."""
    query = {"saved": "most-preempted-workloads", "p.namespace": "shop"}
    page = got(service, tokens["viewer"], "/sql", **query, **more)
    asked = got(service, tokens["viewer"], "/sql", **query)
    assert said in words(page)
    kept = r"<textarea.*?</textarea>|<input name=\"p[^>]*>"
    assert re.findall(kept, page.text, re.DOTALL) == re.findall(kept, asked.text, re.DOTALL)
    refused = got(service, tokens["viewer"], "/sql", **query, **more, format="csv")
    assert (refused.status_code, 'aria-label="Result"' in page.text) == (400, False)
    empty = got(service, tokens["viewer"], "/sql", **query, **dict.fromkeys(more, ""))
    assert 'aria-label="Result"' in empty.text


def test_what_has_no_effect_on_a_decision_is_refused(
    service: Serving, tokens: dict[str, str]
) -> None:
    """In the same words to everybody, whether there is such a decision or not."""
    for role in ("viewer", "limited"):
        for number in (1, 999):
            page = got(service, tokens[role], f"/decisions/{number}", foo="1")
            said = "query: `foo`: there is no such parameter"
            assert (page.status_code, said in words(page)) == (400, True)


SHEET = "SELECT '=1+1' AS \"a,b\", -2 AS n, NULL AS n, 'x' AS t UNION ALL SELECT 'b', 3, 1, 'ä'"


def test_a_result_is_downloaded(service: Serving, tokens: dict[str, str]) -> None:
    """As CSV in which no cell is a formula, as JSON, as lines of JSON."""
    answers = {
        form: got(service, tokens["viewer"], "/sql", q=SHEET, format=form)
        for form in ("csv", "json", "ndjson")
    }
    assert answers["csv"].text == '"a,b",n,n_2,t\n\'=1+1,-2,,x\nb,3,1,ä\n'
    lines = [
        {"a,b": "=1+1", "n": -2, "n_2": None, "t": "x"},
        {"a,b": "b", "n": 3, "n_2": 1, "t": "ä"},
    ]
    assert answers["json"].json()["rows"] == lines
    assert [json.loads(line) for line in answers["ndjson"].text.splitlines()] == lines
    names = [a.headers["content-disposition"].partition("=")[2] for a in answers.values()]
    assert names == ['"result.csv"', '"result.json"', '"result.ndjson"']
    wrong = [{"q": "SELECT x", "format": "csv"}, {"q": SHEET, "format": "xls"}, {"format": "csv"}]
    found = [got(service, tokens["viewer"], "/sql", **query).status_code for query in wrong]
    assert found == [400, 400, 400]


def test_a_result_is_drawn(service: Serving, tokens: dict[str, str]) -> None:
    """As bars or a line by the fields of the form; what is no number is said."""
    query = "SELECT victim, run_seconds FROM v_victims WHERE victim_namespace = 'shop'"
    bar = got(service, tokens["viewer"], "/sql", q=query, chart="bar", x="victim", y="run_seconds")
    chart = bar.text.partition('<svg class="chart"')[2].partition("</svg>")[0]
    assert re.findall("<title>(.*?)</title>", chart) == ["shop/web-2: 3600", "shop/web-1: 3600"]
    line = got(service, tokens["viewer"], "/sql", q=query, chart="line")
    assert '<polyline points="90.0,12.0 270.0,12.0"/>' in line.text
    wrong = got(service, tokens["viewer"], "/sql", q=query, chart="line", y="victim")
    assert "which is no number; choose another column." in words(wrong)
    nothing = got(service, tokens["viewer"], "/sql", q="-- a comment alone", chart="bar")
    assert (nothing.status_code, "the query has no columns" in words(nothing)) == (200, True)


def test_who_is_no_admin_reads_views(service: Serving, tokens: dict[str, str]) -> None:
    """The page and the API alike; an admin reads the tables as ever."""
    found = {}
    for role in ("viewer", "operator", "admin"):
        answer = service.client.post(
            f"{service.url}/api/v1/sql",
            json={"sql": "SELECT count(*) AS n FROM victims"},
            headers={"Authorization": f"Bearer {tokens[role]}"},
        )
        page = words(got(service, tokens[role], "/sql", q="SELECT count(*) AS n FROM victims"))
        refused = "`victims` is a table, not a view that may be read"
        found[role] = (answer.status_code, answer.json().get("detail") == refused, refused in page)
    refusal = (400, True, True)
    assert found == {"viewer": refusal, "operator": refusal, "admin": (200, False, False)}


def test_what_sql_may_read_is_listed(service: Serving, tokens: dict[str, str]) -> None:
    """The views for everybody, and whether it reads the tables, too."""
    named = "".join(f"`{view}` " for view in sorted(VIEWS))
    of = {}
    for role in ("viewer", "operator", "admin"):
        page = words(got(service, tokens[role], "/sql")).partition(" One statement that reads")[0]
        of[role] = page.removeprefix("SQL On the views of the record, ")
    rest = f": `docs/sql.md` describes them. Saved queries read both. The 11 views {named}".strip()
    none = f"and on none of its tables{rest}"
    assert of == {"viewer": none, "operator": none, "admin": f"and on its tables{rest}"}


def test_limits_of_sql_are_said(service: Serving, tokens: dict[str, str]) -> None:
    """The longest query, the most rows, and the time; and no option of a command line."""
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n {}) SELECT i FROM n"
    page = words(got(service, tokens["viewer"], "/sql", q=numbers.format("LIMIT 501")))
    assert "It ends after 10 seconds, and 500 rows at most are shown" in page
    assert "500 rows; there are more." in page
    long = words(got(service, tokens["viewer"], "/sql", q="SELECT 1 --" + "x" * 10_000))
    assert "the query has 10011 characters, and 10000 are allowed" in long
    endless = numbers.format("").replace("SELECT i FROM", "SELECT max(i) FROM")
    late = words(got(service, tokens["viewer"], "/sql", q=endless))
    assert "the query was stopped after 10 seconds ask for less" in late
    assert "--" not in late.partition("ask for less")[2][:80]
