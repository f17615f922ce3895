"""Pages as people use them: back and forth, by keys, by ear, in a narrow window, on paper."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from policy.cli.app import run
from policy.server.security.tokens import Role, TokenFile
from tests.acceptance.commands import NOW, a_node, a_pod
from tests.support import serving
from tests.support.page_text import table, words
from tests.support.serving import Serving
from tests.support.signing_in import sign_in

LONG = "n" * 250
"""A node's name of which no part is a word."""

RULES = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: mine}
extends: kube-1.36
spec:
  eligibility:
    insert:
      - at: start
        rule: {id: nowhere-yet, when: "!nominated.exists", verdict: allow, why: test}
"""

CROWDED: dict[str, Any] = {
    **a_node("crowded", unschedulable=True),
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "500"}},
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    viewer = TokenFile(path).create("viewer", Role.VIEWER, namespaces=None, now_ms=1)
    return {"viewer": viewer, "file": str(path)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Decision 1 preempts on the node with the long name, 2 finds no candidate."""
    folder = tmp_path_factory.mktemp("browsing")
    path = folder / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    items = [
        a_node(LONG),
        CROWDED,
        a_pod("shop/low", LONG, 0, 4, "2026-11-20T10:00:00Z"),
        *(a_pod(f"crowd/p{i:03}", "crowded", 0, 0, "2026-11-20T10:00:00Z") for i in range(300)),
        a_pod("shop/high", "", 100, 4),
        a_pod("shop/lowest", "", -5, 4),
    ]
    (folder / "cluster.json").write_text(json.dumps({"kind": "List", "items": items}))
    (folder / "mine.yaml").write_text(RULES)
    decided = ("--rules", str(folder / "mine.yaml"), "--now", NOW)
    for command in (
        ("import", str(folder / "cluster.json")),
        ("env", "create", "prod", "--cluster", "default"),
        ("env", "activate", "prod", "kube-1.36", "--reason", "test"),
        ("preempt", "shop/high", *decided),
        ("preempt", "shop/lowest", *decided),
    ):
        assert run([*command, "--db", str(path)]) == 0
    return str(path)


@pytest.fixture(scope="module")
def service(db: str, tokens: dict[str, str]) -> Iterator[Serving]:
    started = serving.serve(db, Path(db).parent, "--tokens", tokens["file"])
    started.ready()
    yield started
    assert started.stop() == 0


def opened(
    browser: Browser, service: Serving, tokens: dict[str, str], path: str, **context: Any
) -> Page:
    page = browser.new_context(**context).new_page()
    return sign_in(page, service, tokens["viewer"], path)


def got(service: Serving, tokens: dict[str, str], path: str) -> Any:
    return service.get(path, headers={"Authorization": f"Bearer {tokens['viewer']}"})


def ids(page: Page) -> list[str]:
    """Numbers of the decisions that are listed."""
    return page.locator("#list tbody td:first-child").all_inner_texts()


def filtered(page: Page, outcome: str) -> None:
    page.select_option("select[name=outcome]", outcome)
    page.click("text=Show")
    page.wait_for_url(f"**outcome={outcome}**")


def shows(page: Page, fields: list[str], listed: list[str]) -> None:
    """Wait until it has these in fields `outcome` and `pod`, and lists these decisions."""
    page.wait_for_function(
        """wanted => JSON.stringify([
            ['outcome', 'pod'].map(name => document.querySelector(`[name=${name}]`).value),
            [...document.querySelectorAll('#list tbody td:first-child')].map(e => e.textContent),
        ]) === wanted""",
        arg=json.dumps([fields, listed], separators=(",", ":")),
        timeout=10_000,
    )


# --- back and forth ------------------------------------------------------------------------------


def test_back_shows_the_fields_of_the_list(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """And the list of the fields, which the next filter is added to."""
    page = opened(browser, service, tokens, "/decisions")
    filtered(page, "preempt")
    page.fill("input[name=pod]", "shop/lowest")
    page.click("text=Show")
    page.wait_for_url("**pod=shop**")
    shows(page, ["preempt", "shop/lowest"], [])
    page.go_back()
    shows(page, ["preempt", ""], ["1"])
    page.go_back()
    shows(page, ["", ""], ["2", "1"])
    page.go_forward()
    shows(page, ["preempt", ""], ["1"])
    page.fill("input[name=cluster]", "default")
    page.click("text=Show")
    page.wait_for_url("**cluster=default**")
    assert sorted(page.url.partition("?")[2].split("&")) == ["cluster=default", "outcome=preempt"]


def test_no_page_is_kept_in_the_browser(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """After a sign-out nothing is left, neither of a filter nor of an earlier version."""
    page = opened(browser, service, tokens, "/decisions")
    page.evaluate("localStorage.setItem('htmx-history-cache', '[\"shop/high\"]')")
    page.reload()
    filtered(page, "preempt")
    filtered(page, "no-candidate")
    page.click("text=Log out")
    page.wait_for_url("**/login")
    assert page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


# --- keys, and a screen reader -------------------------------------------------------------------


def test_a_choice_is_sent_by_the_button_alone(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """Whoever goes through the choices by keys sends nothing and makes no entry of the history."""
    page = opened(browser, service, tokens, "/decisions")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(service.url)))
    before = page.evaluate("history.length")
    page.focus("select[name=outcome]")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert page.locator("select[name=outcome]").input_value() == "preempt"
    page.wait_for_timeout(300)
    assert (asked, page.evaluate("history.length") - before) == ([], 0)
    page.focus("input[name=cluster]")
    page.keyboard.press("Enter")
    page.wait_for_url("**outcome=preempt**")
    assert (len(asked), page.evaluate("history.length") - before) == (1, 1)


def test_how_many_are_listed_is_read_out(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """One sentence in an element that stays; the list itself is not read out."""
    page = opened(browser, service, tokens, "/decisions")
    said = page.get_by_role("status")
    said.evaluate("element => { element.dataset.kept = 'kept' }")
    sentences = [said.inner_text()]
    for outcome in ("preempt", "bind"):
        filtered(page, outcome)
        sentences.append(said.inner_text())
    page.fill("input[name=since]", "7x")
    page.click("text=Show")
    page.wait_for_url("**since=7x**")
    sentences.append(said.inner_text())
    assert sentences == [
        "2 decisions are listed.",
        "1 decision is listed.",
        "No decision is listed.",
        "",
    ]
    assert (said.get_attribute("data-kept"), page.locator("[aria-live]").count()) == ("kept", 0)
    assert page.get_by_role("alert").inner_text().startswith("since: 7x is not a time")
    plain = got(service, tokens, "/decisions?limit=1")
    assert "1 decision is listed; there are older ones." in words(plain)


# --- no answer -----------------------------------------------------------------------------------


def test_what_gets_no_answer_is_said(browser: Browser, db: str, tokens: dict[str, str]) -> None:
    """Beside the list, which is as old as it was; until there is an answer."""
    folder = Path(db).parent
    service = serving.serve(db, folder, "--tokens", tokens["file"])
    service.ready()
    page = opened(browser, service, tokens, "/decisions")
    alert = page.get_by_role("alert")
    older = "What is listed here is from before. Try again."
    # Slow.
    page.evaluate("htmx.config.timeout = 500")
    os.kill(service.process.pid, signal.SIGSTOP)
    page.select_option("select[name=outcome]", "preempt")
    page.click("text=Show")
    expect(alert).to_have_text(f"The service did not answer within 0.5 seconds. {older}")
    os.kill(service.process.pid, signal.SIGCONT)
    page.evaluate("htmx.config.timeout = 60000")
    page.click("text=Show")
    expect(alert).to_have_count(0)
    assert ids(page) == ["1"]
    # Refused by what stands before the pages.
    page.locator("input[name=pod]").evaluate("input => { input.value = 'a\\0b' }")
    page.click("text=Show")
    expect(alert).to_have_text(f"The answer has status 400 and is no page. {older}")
    assert ids(page) == ["1"]
    page.fill("input[name=pod]", "shop/low")
    page.click("text=Show")
    expect(alert).to_have_count(0)
    # Gone.
    page.fill("input[name=pod]", "")
    port = service.url.rpartition(":")[2]
    assert service.stop() == 0
    page.select_option("select[name=outcome]", "no-candidate")
    page.click("text=Show")
    expect(alert).to_have_text(f"The service did not answer. {older}")
    assert ids(page) == ["1"]
    again = serving.serve(db, folder, "--tokens", tokens["file"], "--port", port)
    again.ready()
    assert got(again, tokens, "/decisions").status_code == 200  # the first page takes a while
    page.click("text=Show")
    expect(alert).to_have_count(0)
    assert ids(page) == ["2"]
    assert again.stop() == 0


# --- times ---------------------------------------------------------------------------------------


def test_how_typed_times_are_read_is_said(
    db: str, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch, service: Serving
) -> None:
    """Beside the fields, on every list and for saved queries: UTC, or the zone that is set."""
    monkeypatch.setenv("POLICY_TZ", "Europe/Berlin")
    there = serving.serve(db, Path(db).parent, "--tokens", tokens["file"])
    there.ready()
    found = {}
    for zone, one in (("UTC", service), ("Europe/Berlin", there)):
        lists = ("/decisions", "/observed", "/groups", "/sessions")
        found[zone] = [
            words(got(one, tokens, path)).count(f"without a zone it is in {zone}") for path in lists
        ]
        query = words(got(one, tokens, "/sql?saved=outcomes"))
        found[zone].append(query.count(f"without a zone: {zone};"))
    assert found == {"UTC": [2, 2, 2, 2, 1], "Europe/Berlin": [2, 2, 2, 2, 1]}
    assert there.stop() == 0


def test_bars_say_the_reader_s_hour(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """With its zone, as the ends of their axis do; without JavaScript in UTC."""
    given = {"timezone_id": "Asia/Kolkata", "locale": "de-DE"}
    path = "/decisions?since=2026-11-20T12:00:00Z&until=2026-11-21T12:00:00Z"
    shown = {}
    for script in (True, False):
        page = opened(browser, service, tokens, "/decisions", java_script_enabled=script, **given)
        page.goto(service.url + path)
        bar = page.locator(".bars a")
        words = [bar.get_attribute("title"), bar.locator("svg").get_attribute("aria-label")]
        shown[script] = [*words, *page.locator(".ends span").all_inner_texts()]
    local, utc = "21.11.2026, 5:30:00 GMT+5:30: 1", "2026-11-21 00:00 UTC: 1"
    assert shown == {
        True: [local, local, "20.11.2026, 17:30:00 GMT+5:30", "21.11.2026, 16:30:00 GMT+5:30"],
        False: [utc, utc, "2026-11-20 12:00:00 UTC", "2026-11-21 11:00:00 UTC"],
    }


# --- narrow, and on paper ------------------------------------------------------------------------


def test_long_names_make_no_page_wider(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """In headings, and in the choices of a form."""
    page = opened(browser, service, tokens, "/")
    alias = "a" * 60
    paths = ("/decisions/1", f"/nodes/{LONG}", f"/sql?q=SELECT+1+AS+{alias}&chart=bar")
    wide = {}
    for width in (360, 800, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        for path in paths:
            page.goto(service.url + path)
            wide[width, path] = page.evaluate("document.documentElement.scrollWidth") - width
    assert wide == dict.fromkeys(wide, 0)


def test_the_bars_of_narrow_pods_are_filled(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """300 pods of 500 fill three fifths, without an edge each; they are named all the same."""
    page = opened(browser, service, tokens, "/nodes/crowded")
    bar = page.locator("svg.held[aria-label^='pods:']")
    drawn = bar.evaluate(
        """svg => [...svg.querySelectorAll('rect:not(.room)')].map(
            part => [part.getBBox().x, part.getBBox().width, part.textContent])"""
    )
    assert drawn == [[0, 360, "300 pods, from crowd/p000 to crowd/p299: 300"]]
    assert bar.get_attribute("aria-label") == "pods: 300 of 500 requested, 200 free"


# --- words, links, refusals ----------------------------------------------------------------------


def test_values_are_shown_as_in_a_rule_file(service: Serving, tokens: dict[str, str]) -> None:
    """What a rule looked at, and what a filter is given."""
    rows = table(got(service, tokens, "/decisions/1"), "Rules")
    (asked,) = (row for row in rows if row[1] == "nowhere-yet")
    (resources,) = (row for row in rows if row[:2] == ["filters", "resources"])
    assert (asked[5], resources[3]) == (
        "nominated.exists=false",
        "aboveAllocatable=unresolvable compare=requested sidecars=true podLevel=true"
        " podLevelResize=true resize=true overhead=true runningInit=true",
    )
    python = re.compile(r"=(True|False|None|\[\])")
    paths = ("/decisions/1", "/rules/kube-1.36")
    found = [python.findall(words(got(service, tokens, path))) for path in paths]
    assert found == [[], []]


def test_the_command_shows_values_likewise(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "1", "--db", db]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "nowhere-yet" in line)
    assert line.split() == ["eligibility", "nowhere-yet", "allow", "nominated.exists=false"]


def test_one_change_leads_to_those_of_its_cluster(service: Serving, tokens: dict[str, str]) -> None:
    """As the fields of the form say."""
    page = got(service, tokens, "/compare?rules=max-victims&open=1&cluster=default").text
    address = "/compare?rules=max-victims&amp;n=200&amp;cluster=default"
    link = f'<a href="{address}">The newest 200 decisions of cluster default under max-victims</a>'
    assert link in page
    page = got(service, tokens, "/compare?rules=max-victims&open=1").text
    assert '<a href="/compare?rules=max-victims&amp;n=200">The newest 200 decisions under' in page


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/decisions", "/decisions/1", "/groups", "/groups/1", "/sessions", "/sessions/1"),
        *("/observed", "/observed/1", "/workloads/shop/low", "/nodes/crowded"),
        *("/rules", "/rules/kube-1.36", "/compare", "/environments", "/environments/prod"),
        *("/sql", "/simulations", "/simulations/1", "/api"),
    ],
)
def test_a_parameter_that_a_page_does_not_know_is_refused(
    service: Serving, tokens: dict[str, str], path: str
) -> None:
    """In the same words; an empty one is none."""
    page = got(service, tokens, f"{path}?foo=1")
    said = "`foo`: there is no such parameter" in words(page)
    assert (page.status_code, said) == (400, True)
    plain, empty = (got(service, tokens, path + query).status_code for query in ("", "?foo="))
    assert plain == empty


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/?cluster=default&cluster=other", "`cluster`: it is given twice"),
        ("/nodes/crowded?cluster=default&cluster=default", "`cluster`: it is given twice"),
        ("/sql?q=SELECT+:a&p.a=1&p.a=2", "`p.a`: it is given twice"),
        ("/decisions/1?show=nodes", "`show`: not one of `candidates`, `node`, `spared`"),
        ("/sessions/1?show=all", "`show`: not one of `effects`"),
    ],
)
def test_a_value_that_has_no_effect_is_refused(
    service: Serving, tokens: dict[str, str], path: str, told: str
) -> None:
    """Of two the last one counted, and another part than there is showed none."""
    page = got(service, tokens, path)
    assert (page.status_code, told in words(page)) == (400, True)


@pytest.mark.parametrize("path", ["/workloads/shop/low", "/sessions/1", "/decisions"])
def test_a_place_in_a_list_is_a_number(service: Serving, tokens: dict[str, str], path: str) -> None:
    page = got(service, tokens, f"{path}?after=abc")
    said = "`after`: not a whole number" in words(page)
    assert (page.status_code, said) == (400, True)


def test_files_of_pages_are_kept_as_long_as_they_are_those(service: Serving) -> None:
    """Under the address that a page of another version names, what is given here is not kept.

    While two services are replaced one by one, the page may come from the new one and this from
    the old one: browsers would keep the old file for the new page.
    """
    login = service.get("/login").text
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', login)
    others = [f"{file.partition('?')[0]}?0123456789ab" for file in files]
    kept = [service.get(file).headers["cache-control"] for file in (*files, *others)]
    assert kept == ["public, max-age=31536000, immutable"] * 3 + ["no-store"] * 3
