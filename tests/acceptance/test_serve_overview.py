"""The first page and the list of decisions: figures, filters, bars, exports, errors."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from policy.audit.documents import instant
from policy.cluster import times
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.read.figures import HOUR_MS
from tests.acceptance.commands import Policy
from tests.contract.builders import (
    BY_HAND,
    a_cluster,
    a_decision,
    a_pod,
    a_victim,
    made_on,
    the_changes,
)
from tests.support import builders, serving
from tests.support.page_text import words
from tests.support.serving import Serving
from tests.support.signing_in import sign_in

NOW = time.time_ns() // 1_000_000
RECENT = NOW - 3 * HOUR_MS
BEFORE = NOW - 50 * HOUR_MS
FORMULA = "=1+1/urgent"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`viewer`, `limited` to namespace shop, and the `file`."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    viewer = file.create("viewer", Role.VIEWER, namespaces=None, now_ms=1)
    limited = file.create("limited", Role.VIEWER, namespaces=["shop"], now_ms=1)
    return {"viewer": viewer, "limited": limited, "file": str(path)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """A migrated database, which `service` fills."""
    path = str(tmp_path_factory.mktemp("overview") / "policy.db")
    shutil.copy(sqlite_template, path)
    return path


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, db: str, tokens: dict[str, str]
) -> Iterator[Serving]:
    """Decision 1 of two days ago; 2 and 3 of this day, the last of which is carried out.

    1: jobs/b. 2: four pods of shop and one of jobs. 3: shop/web-2, and shop/web-1 against its
    budget. A pod of lab waits since today in cluster `default`; `other` has hardly anything.
    """
    with Store.open(db) as store:
        store.record.import_objects("default", a_cluster(), at_ms=RECENT, source="test")
        store.record.import_objects("other", [a_pod("lab/x")], at_ms=NOW, source="test")
        store.record.create_environment("prod", "default", at_ms=NOW, actor="ann")
        serving.activate(store, "kube-1.36")
        many = [a_victim(f"shop/m-{i}", owner="ReplicaSet/many") for i in range(4)]
        made = (
            (a_decision(a_victim("jobs/b", owner="Job/b"), now_ms=BEFORE, seed=1), []),
            (
                a_decision(
                    *many,
                    a_victim("jobs/hid", owner="Job/hid"),
                    preemptor=FORMULA,
                    now_ms=RECENT,
                    seed=2,
                ),
                [],
            ),
            (a_decision(now_ms=RECENT, seed=3), the_changes()),
        )
        for decision, changes in made:
            store.record.decision(
                "default",
                made_on(store, decision),
                changes,
                expected_revision=1,
                rules=BY_HAND,
                actor="ann",
                at_ms=NOW,
            )
    folder = tmp_path_factory.mktemp("served")
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.ready()
    yield started
    assert started.stop() == 0


def got(service: Serving, token: str, path: str, **headers: str) -> Any:
    return service.get(path, headers={"Authorization": f"Bearer {token}", **headers})


def table(page: str, section: str) -> list[list[str]]:
    """The cells of a section's rows as text."""
    part = page.partition(f'aria-labelledby="{section}"')[2].partition("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part.partition("<tbody>")[2], re.DOTALL)
    return [
        [
            unescape(re.sub("<[^>]*>", "", cell)).strip()
            for cell in re.findall("<td[^>]*>(.*?)</td>", row, re.DOTALL)
        ]
        for row in rows
    ]


def listed(page: str) -> list[int]:
    return [int(n) for n in re.findall(r'<td class="number"><a href="/decisions/(\d+)"', page)]


def test_the_overview_says_how_each_cluster_is(service: Serving, tokens: dict[str, str]) -> None:
    """Preemptions, evictions and violated budgets of a day or a week; who waits since when."""
    day = got(service, tokens["viewer"], "/").text
    week = got(service, tokens["viewer"], "/?days=7").text
    heads = [re.search(r'<h2 id="hours">(.*?)</h2>', page)[1] for page in (day, week)]
    assert heads == [
        "Preemptions in the last 24 hours: 2",
        "Preemptions in the last 7 days: 3",
    ]
    here = table(day, "clusters")[0]
    assert (here[:4], here[5]) == (["default", "2", "7", "1"], "not observed")
    assert [row[0] for row in table(day, "clusters")] == ["default", "other"]
    assert table(day, "hit") == [
        ["shop/ReplicaSet/many", "4"],
        ["shop/ReplicaSet/web", "2"],
        ["jobs/Job/hid", "1"],
    ]
    assert table(day, "namespaces") == [["shop", "6"], ["jobs", "1"]]
    assert table(week, "namespaces") == [["shop", "6"], ["jobs", "2"]]
    waits = table(day, "nominated")
    assert [[row[2], row[4]] for row in waits] == [["lab/waiting", "n1"], ["team/urgent", "n1"]]
    assert re.fullmatch("3 h( [0-9]+ min)?", waits[0][0])  # the test may have taken minutes
    assert [row[:4] for row in table(day, "budgets")] == [["shop/web", "shop", "default", "1"]]
    assert table(day, "environments")[0][:3] == ["prod", "default", "kube-1.36"]


def test_nominated_pods_lead_to_what_the_record_has_of_them(
    service: Serving, tokens: dict[str, str]
) -> None:
    """To decisions about it where one of them nominated the pod, else to the pod's own page."""
    page = got(service, tokens["viewer"], "/").text
    part = page.partition('aria-labelledby="nominated"')[2].partition("</section>")[0]
    links = re.findall(r'<a href="(/(?:decisions\?|workloads)[^"]*)"', part)
    assert links == ["/workloads/lab/waiting?cluster=default", "/decisions?preemptor=team/urgent"]
    assert got(service, tokens["viewer"], links[0]).status_code == 200
    assert listed(got(service, tokens["viewer"], links[1]).text) == [3, 1]


def test_the_api_and_the_command_have_the_same_figures(
    service: Serving, tokens: dict[str, str], policy: Policy, db: str
) -> None:
    """Not for who is limited to namespaces."""
    api = got(service, tokens["viewer"], "/api/v1/overview?days=7&cluster=default").json()
    named = ("--db", db, "--days", "7", "--cluster", "default", "--output", "json")
    told = json.loads(policy("report", "health", *named).out)
    for one in (api, told):
        del one["clusters"][0]["state_age_seconds"]  # it grows meanwhile
    assert api == told
    hours = [RECENT // HOUR_MS * HOUR_MS, BEFORE // HOUR_MS * HOUR_MS]
    assert [one["hour"] for one in api["by_hour"]] == [instant(at) for at in sorted(hours)]
    assert got(service, tokens["limited"], "/api/v1/overview").status_code == 403


def test_the_overview_of_one_cluster(service: Serving, tokens: dict[str, str]) -> None:
    page = got(service, tokens["viewer"], "/?cluster=other").text
    assert [row[0] for row in table(page, "clusters")] == ["other"]
    assert "Preemptions in the last 24 hours: 0" in page
    statuses = [
        got(service, tokens["viewer"], path).status_code
        for path in ("/?cluster=none", "/?days=2", "/?hours=3")
    ]
    assert statuses == [404, 400, 400]


def test_a_limited_viewer_has_figures_of_its_own(service: Serving, tokens: dict[str, str]) -> None:
    """Evictions of its namespaces, and victims of these by name: nothing of others."""
    day = got(service, tokens["limited"], "/?days=7").text
    lines = got(service, tokens["limited"], "/decisions?since=7d").text
    assert table(day, "namespaces") == [["shop", "6"]]
    assert "Preemptions in the last 7 days: 2" in day
    third, second = (serving.shown(tokens["file"], Numbered.DECISION, n) for n in (3, 2))
    assert listed(lines) == [third, second]
    assert "shop/m-2</a> and" in lines
    assert ">1 more</a>" in lines
    hidden = ("jobs", "lab/", "team/", "=1+1", "fewest-pdb", "Preemptions per hour:")
    assert [word for word in hidden if word in lines] == []
    assert [word for word in hidden[:5] if word in day] == []
    guesses = ("victim=jobs/hid", "pod=jobs/hid", "pod=team/urgent", "workload=jobs/Job/hid")
    guessed = [got(service, tokens["limited"], f"/decisions?{one}").text for one in guesses]
    assert [listed(one) for one in guessed] == [[], [], [], []]
    assert listed(got(service, tokens["limited"], "/decisions?pod=shop/m-1").text) == [second]
    own = got(service, tokens["limited"], "/api/v1/export/decisions.csv").text
    rows = list(csv.DictReader(io.StringIO(own)))
    assert [(row["preemptor"], row["victims"]) for row in rows] == [("", "2"), ("", "4")]
    assert "jobs" not in own


def test_the_page_the_api_and_the_export_filter_alike(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Also by pods and workloads as the command does, and by times before now."""
    wanted = {
        "pod=shop/web-2": [3],
        "pod=team/urgent": [3, 1],
        "victim=jobs/hid": [2],
        "workload=shop/ReplicaSet/many": [2],
        "since=7d": [3, 2, 1],
        "since=1d": [3, 2],
        "since=7d&until=1 day ago": [1],
        "outcome=preempt&node=n1&rules=by-hand&origin=decided&cluster=default": [3, 2, 1],
        "namespace=jobs&limit=1": [2],
    }
    found = {}
    for query in wanted:
        page = got(service, tokens["viewer"], f"/decisions?{query}").text
        api = got(service, tokens["viewer"], f"/api/v1/decisions?{query}").json()["decisions"]
        assert [line["id"] for line in api] == listed(page)
        found[query] = listed(page)
    assert found == wanted


def test_what_is_wrong_with_a_filter_is_said_beside_it(
    service: Serving, tokens: dict[str, str]
) -> None:
    """The form keeps what was typed; `observed` is the origin of no decision."""
    said = {
        "since=7x": (400, "`since`: `7x` is not a time such as"),
        "since=7d&until=8d": (400, "is later than `until`"),
        "since=2026-11-28T20:00:00+05:30": (400, "write `+` as `%2B`"),
        "workload=shop/web": (400, "`workload`: `shop/web` is not namespace/Kind/name"),
        "origin=observed": (400, "`origin`: not one of `decided`, `extender` or `simulated`"),
        "color=red": (400, "`color`: there is no such parameter"),
        "node=a&node=b": (400, "`node`: it is given twice"),
        "cluster=none": (404, "there is no cluster"),
    }
    for query, (status, message) in said.items():
        answer = got(service, tokens["viewer"], f"/decisions?{query}")
        shown = message in words(answer), "<form" in answer.text
        assert (answer.status_code, *shown) == (status, True, True), query
    assert 'value="7x"' in got(service, tokens["viewer"], "/decisions?since=7x").text


def test_a_bar_leads_to_the_decisions_that_it_counts(
    service: Serving, tokens: dict[str, str]
) -> None:
    """By the hour and, where that is long, by the day."""
    for query, counted in (("since=1d", [[3, 2]]), ("since=7d", [[1], [3, 2]])):
        page = got(service, tokens["viewer"], f"/decisions?{query}").text
        bars = re.findall(r'<li><a href="([^"]*)"', page)
        lists = [got(service, tokens["viewer"], unescape(bar)).text for bar in bars]
        assert [listed(one) for one in lists] == counted
        ends = re.findall(r"<span>(.*?)</span>", page.partition('<p class="ends faint">')[2])[:2]
        # Hours begin at an instant, which a reader's zone can show; days are those of UTC.
        assert ["<time " in end for end in ends] == [query == "since=1d"] * 2


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("since=1d", "Preemptions per hour: 2"),
        ("since=7d", "Decisions per day: 3"),
        ("since=7d&outcome=preempt", "Preemptions per day: 3"),
        ("since=7d&outcome=bind", "Decisions per day: 0"),
        ("since=1d&outcome=bind", "totals by the hour are not kept by outcome"),
        ("since=1d&rules=by-hand", "totals by the hour are not kept by rules"),
        ("since=7d&namespace=shop&node=n1", "There are no bars for decisions by namespace, node."),
        ("since=1990-01-01&until=1990-12-31", "There is none in this time."),
        ("until=0001-01-01T00:00:00Z", "Preemptions per hour: 0"),
        ("until=9999-12-31T23:59:59Z", "Preemptions per hour: 0"),
        ("since=9999-12-20T00:00:00Z&until=9999-12-31T23:59:59Z", "Decisions per day: 0"),
    ],
)
def test_bars_say_what_they_count(
    service: Serving, tokens: dict[str, str], query: str, note: str
) -> None:
    assert note in got(service, tokens["viewer"], f"/decisions?{query}").text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "until=9999-12-31T23:59:59Z",
            "None from 9999-12-30 23:00:00 UTC to 9999-12-31 23:59:59 UTC .",
        ),
        (
            "since=2026-01-05T10:30:00Z&until=2026-01-05T12:15:00Z",
            "None from 2026-01-05 10:00:00 UTC to 2026-01-05 12:15:00 UTC .",
        ),
        (
            "since=2026-01-05T10:30:00Z&until=2026-01-12T00:00:00Z",
            "None from 2026-01-05 to 2026-01-11 UTC.",
        ),
    ],
)
def test_a_time_without_any_ends_where_it_was_asked_to(
    service: Serving, tokens: dict[str, str], query: str, said: str
) -> None:
    """Bars are of whole hours and days; what was asked for may end within one."""
    page = words(got(service, tokens["viewer"], f"/decisions?{query}"))
    assert re.findall(r"None from .*?UTC ?\.", page) == [said]


def test_a_time_that_the_clock_decides_is_shown(service: Serving, tokens: dict[str, str]) -> None:
    page = got(service, tokens["viewer"], "/decisions?since=7d&until=2126-01-02&node=x").text
    shown = re.findall(r'<time datetime="([^"]*)"', page.partition("shown:")[2])
    assert (shown[1], len(shown)) == ("2126-01-02T00:00:00Z", 2)
    assert 0 <= time.time() * 1000 - 7 * 24 * HOUR_MS - times.parse(shown[0]) < HOUR_MS


def test_csv_is_the_list_as_a_spreadsheet_takes_it(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Every line whole, in the order of the list; no text is a formula; all pages are in it."""
    page = got(service, tokens["viewer"], "/decisions?since=7d&limit=2&after=4").text
    links = [unescape(one) for one in re.findall(r'href="(/api/v1/export/[^"]*)"', page)]
    assert links == [
        "/api/v1/export/decisions.csv?since=7d",
        "/api/v1/export/decisions?since=7d",
    ]
    answer = got(service, tokens["viewer"], links[0])
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == ["3", "2", "1"]
    assert rows[1] == {
        "id": "2",
        "now": instant(RECENT),
        "cluster": "default",
        "preemptor": f"'{FORMULA}",
        "priority": "100",
        "outcome": "preempt",
        "node": "n1",
        "victims": "5",
        "victim_pods": '["shop/m-0", "shop/m-1", "shop/m-2", "shop/m-3", "jobs/hid"]',
        "decided_by": "fewest-pdb-violations",
        "pdb_violations": "0",
        "rule_set": "by-hand",
        "origin": "decided",
        "answer": "",
    }


def test_an_address_that_does_not_exist_is_a_page_for_people(
    service: Serving, tokens: dict[str, str]
) -> None:
    """And problem+json for programs, and everywhere in the API."""
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    found = {}
    for path in ("/nonexistent", "/decisions/", "/workloads/team-a", "/api/v1/nonexistent"):
        for accept in (browser, {}):
            answer = service.get(path, headers=accept)
            kind = answer.headers["content-type"].partition(";")[0]
            found.setdefault(path, []).append((answer.status_code, kind))
    people, programs = (404, "text/html"), (404, "application/problem+json")
    assert found == {
        "/nonexistent": [people, programs],
        "/decisions/": [people, programs],
        "/workloads/team-a": [people, programs],
        "/api/v1/nonexistent": [programs, programs],
    }
    shown = got(service, tokens["viewer"], "/decisions/", **browser).text
    assert "addresses have no slash at their end: /decisions<" in shown
    assert 'href="/decisions"' in shown


@pytest.fixture
def page(browser: Browser, service: Serving, tokens: dict[str, str]) -> Iterator[Page]:
    """The list of decisions, logged in."""
    opened = browser.new_context().new_page()
    yield sign_in(opened, service, tokens["viewer"], "/decisions")
    opened.context.close()


def test_with_javascript_an_error_is_shown_by_one_request(page: Page, service: Serving) -> None:
    """And the next filter replaces it; the address has only what was given."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(service.url)))
    page.fill("input[name=since]", "7x")
    page.press("input[name=since]", "Enter")
    page.wait_for_selector("#list [role=alert]")
    assert "7x is not a time" in page.inner_text("#list")
    assert (len(asked), page.url) == (1, f"{service.url}/decisions?since=7x")
    page.fill("input[name=since]", "7d")
    page.press("input[name=since]", "Enter")
    page.wait_for_selector("#list table")
    assert (len(asked), page.url) == (2, f"{service.url}/decisions?since=7d")
    page.select_option("select[name=outcome]", "bind")
    page.press("input[name=since]", "Enter")
    page.wait_for_url("**outcome=bind")
    assert len(asked) == 3
    assert "No decision matches" in page.inner_text("#list")


def test_an_expired_session_leads_to_the_login_page(page: Page, service: Serving) -> None:
    """With JavaScript, too, and back to what was asked for."""
    page.context.clear_cookies()
    page.fill("input[name=since]", "7d")
    page.press("input[name=since]", "Enter")
    page.wait_for_selector("input[name=token]")
    assert page.url.startswith(f"{service.url}/login?next=/decisions")
    assert "since" in page.input_value("input[name=next]", timeout=5000)


def test_what_was_not_carried_out_is_counted_as_it_is_listed(
    tmp_path: Path, sqlite_template: Path, tokens: dict[str, str]
) -> None:
    """Whoever looks: it is no preemption, and the outcome leads to as many decisions."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    pods = (builders.a_pod("web").in_namespace("shop").priority(1).cpu(4).on("n1").pod,)
    high = builders.a_pod("high").in_namespace("lab").priority(9).cpu(4).pod
    nodes = builders.objects(builders.a_node("n1").cpu(4))
    with Store.open(db) as store:
        parts = [*nodes, *pods, high]
        store.record.import_objects("default", parts, at_ms=RECENT - 1000, source="test")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: RECENT)
        rules = RuleSet.load("kube-1.36")
        Scheduler(journal, rules, clock=lambda: RECENT, seed=0).decide("lab/high")
        # It still runs.
        store.record.import_objects("default", pods, at_ms=RECENT + 60_000, source="test")
    started = serving.serve(db, tmp_path, "--tokens", tokens["file"], environment="")
    found = {}
    for who in ("viewer", "limited"):
        page = got(started, tokens[who], "/").text
        heading = re.search(r'<h2 id="hours">(.*?)</h2>', page)
        outcomes = re.findall(r'<a href="/(decisions\?[^"]*outcome=[^"]*)">.*?</a> (\d+) ', page)
        lists = [got(started, tokens[who], f"/api/v1/{unescape(to)}") for to, _ in outcomes]
        found[who] = (
            heading and heading[1],
            [count for _, count in outcomes],
            [[one["outcome"] for one in answer.json()["decisions"]] for answer in lists],
        )
    told = got(started, tokens["viewer"], "/api/v1/overview").json()["outcomes"]
    node = got(started, tokens["viewer"], "/nodes/n1").text
    drawn = re.findall(r"<title>[^<]*: decision 1, (.*?)</title>", node)
    counted = dict(re.findall(r'<p class="faint">([A-Z][a-z ]*): (\d+)</p>', node))
    past = (
        ["not-carried-out for lab/high, 1 victim"],
        {"Preemptions": "0", "Other decisions": "1"},
    )
    assert (drawn, counted) == past
    expected = ("Preemptions in the last 24 hours: 0", ["1"], [["not-carried-out"]])
    assert (found, told) == (dict.fromkeys(found, expected), {"not-carried-out": 1})
    assert started.stop() == 0


def test_a_workload_that_was_hit_leads_to_its_cluster(
    service: Serving, tokens: dict[str, str], db: str
) -> None:
    """Two of one name are two lines, and each page has as many evictions as its line says."""
    with Store.open(db) as store:
        store.record.import_objects("second", a_cluster(), at_ms=RECENT, source="test")
        store.record.decision(
            "second",
            made_on(store, a_decision(a_victim("shop/web-2"), now_ms=RECENT), "second"),
            the_changes("shop/web-2"),
            expected_revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
    for token in ("viewer", "limited"):
        page = got(service, tokens[token], "/?days=7").text
        web = [row for row in table(page, "hit") if row[0] == "shop/ReplicaSet/web"]
        assert [row[1] for row in web] == ["default", "second"]
        for _, cluster, evictions in web:
            address = f"/workloads/shop/web?cluster={cluster}"
            assert f'href="{address}"' in page
            assert f", {evictions} of them evicted" in got(service, tokens[token], address).text


def test_what_is_yet_to_come_is_counted_by_nobody(
    service: Serving, tokens: dict[str, str], db: str
) -> None:
    """Made for a time after the hour that has begun: neither in sums, bars, nor lists of these."""

    def many(token: str, address: str) -> int:
        return len(got(service, tokens[token], f"/api/v1{unescape(address)}").json()["decisions"])

    def counted() -> list[tuple[str, list[str]]]:
        for token in ("viewer", "limited"):
            page = got(service, tokens[token], "/?days=7").text
            leading = re.findall(r'<a href="(/decisions\?[^"]*outcome=[^"]*)">.*?</a> (\d+) ', page)
            assert [(at, many(token, at)) for at, _ in leading] == [
                (at, int(n)) for at, n in leading
            ]
        pages = [got(service, tokens[name], "/?days=7").text for name in ("viewer", "limited")]
        return [
            (
                re.search("in the last 7 days: ([0-9]+)", page)[1],
                re.findall("data-count=.*?>", page),
            )
            for page in pages
        ]

    before = counted()
    with Store.open(db) as store:
        store.record.decision(
            "default",
            made_on(store, a_decision(now_ms=NOW + 3 * HOUR_MS, seed=9)),
            [],
            expected_revision=store.state.head_revision("default"),
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
    assert counted() == before


def test_the_command_lists_what_the_api_does(
    service: Serving, tokens: dict[str, str], policy: Policy, db: str
) -> None:
    """For programs: the same fields in every line, whatever the others of the list are."""

    def listed(form: str, *given: str) -> str:
        return policy("decisions", "--db", db, "--limit", "1000", "-o", form, *given).out

    viewer = tokens["viewer"]
    for query, given in (("", ()), ("?cluster=default", ("--cluster", "default"))):
        api = got(service, viewer, f"/api/v1/export/decisions{query}").text.splitlines()
        told = [json.loads(line) for line in listed("jsonl", *given).splitlines()]
        assert told == [json.loads(line) for line in api]
        table = got(service, viewer, f"/api/v1/export/decisions.csv{query}").text
        assert listed("csv", *given).splitlines() == table.splitlines()
