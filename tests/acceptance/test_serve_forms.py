"""Forms that are sent too late, or wrong: nothing is done unseen, and nothing typed is lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from html import unescape
from itertools import count
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from policy.rules import RuleSet
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from tests.support import serving
from tests.support.page_text import words
from tests.support.serving import Serving
from tests.support.signing_in import sign_in

WRONG = """() => [...document.querySelectorAll('[aria-invalid=true]')].map(field => [
    field.name, document.getElementById(field.getAttribute('aria-describedby')).innerText])"""
"""The fields that are marked as wrong, each with what describes it."""

Made = Callable[..., str]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`ann` and `bob` are operators; `file`."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {n: file.create(n, Role.OPERATOR, namespaces=None, now_ms=1) for n in ("ann", "bob")}
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    path = str(tmp_path_factory.mktemp("forms") / "policy.db")
    shutil.copy(sqlite_template, path)
    return serving.filled(path)


@pytest.fixture(scope="module")
def service(
    db: str, tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    yield started
    assert started.stop() == 0


@pytest.fixture
def made(db: str, numbers: Iterator[int]) -> Made:
    """Makes an environment in which these rules were activated one after the other."""

    def make(*rules: str) -> str:
        name = f"env-{next(numbers)}"
        with Store.open(db) as store:
            store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
            for one in rules:
                serving.activate(store, one, environment=name)
        return name

    return make


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    opened = browser.new_context()
    yield opened
    opened.close()


def fill(page: Page, form: str, *, rules: str = "kube-1.30", reason: str = "because") -> None:
    if form == "activate":
        page.locator("form[action$=activate] input[name=rules]").fill(rules)
    page.locator(f"form[action$={form}] input[name=reason]").fill(reason)


def send(page: Page, form: str) -> tuple[int, list[str]]:
    """Status and warnings of the page that answers."""
    with page.expect_navigation() as led:
        page.click(f"form[action$={form}] button")
    return led.value.status, page.locator("[role=alert]").all_inner_texts()


def typed(page: Page, form: str) -> dict[str, str]:
    """What is in the fields of a form that people see."""
    fields = page.locator(f"form[action$={form}] input:not([type=hidden])")
    return {one.get_attribute("name"): one.input_value() for one in fields.all()}


def activated(db: str, name: str) -> list[tuple[str, str, str]]:
    """Rules, actor and reason of each activation, newest first."""
    with Store.open(db) as store:
        return [(row.rule_set, row.actor, row.reason) for row in store.read.activations(name)]


def by_bob(service: Serving, tokens: dict[str, str], name: str) -> str:
    """Activates other rules meanwhile, and gives what is said of that."""
    answer = service.client.post(
        f"{service.url}/api/v1/environments/{name}/activations",
        json={"rules": "kube-1.34", "reason": "meanwhile"},
        headers={"Authorization": f"Bearer {tokens['bob']}"},
    )
    assert answer.status_code == 201
    at = answer.json()["at"]
    return (
        f"environment {name} has changed: kube-1.34 is active since {at}, activated by bob\n"
        "nothing was activated; look at the environment as it is now before you try again"
    )


# --- a page that is out of date ------------------------------------------------------------------


@pytest.mark.parametrize("form", ["activate", "rollback"])
def test_a_form_of_an_old_page_undoes_nothing(
    form: str,
    context: BrowserContext,
    service: Serving,
    db: str,
    tokens: dict[str, str],
    made: Made,
) -> None:
    """What a colleague activated stays, and is named; who sends the form again has seen that."""
    name = made("kube-1.35", "kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    said = by_bob(service, tokens, name)
    before = activated(db, name)
    fill(page, form)
    assert send(page, form) == (409, [said])
    entered = {"rules": "kube-1.30", "reason": "because"}
    if form == "rollback":
        del entered["rules"]
    assert (typed(page, form), activated(db, name)) == (entered, before)
    assert "kube-1.34 decides since" in page.inner_text("main")
    assert send(page, form) == (200, [])
    chosen = {"activate": "kube-1.30", "rollback": "kube-1.36"}[form]
    assert activated(db, name) == [(chosen, "ann", "because"), *before]


def test_of_two_first_activations_the_second_is_refused(
    context: BrowserContext, service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """That nothing was active is what its page showed."""
    name = made()
    first = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    second = context.new_page()
    second.goto(first.url)
    for page, rules in ((first, "kube-1.30"), (second, "kube-1.31")):
        fill(page, "activate", rules=rules)
    assert send(first, "activate") == (200, [])
    status, (said,) = send(second, "activate")
    assert (status, said.startswith(f"environment {name} has changed: kube-1.30 is ")) == (
        409,
        True,
    )
    assert [row[0] for row in activated(db, name)] == ["kube-1.30"]


def test_a_form_that_is_mended_is_still_of_its_page(
    context: BrowserContext, service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """Whoever corrects a name has not been told that something was activated meanwhile."""
    name = made("kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    said = by_bob(service, tokens, name)
    before = activated(db, name)
    fill(page, "activate", rules="kube-1.3x")
    status, _ = send(page, "activate")
    fill(page, "activate")
    assert (status, send(page, "activate"), activated(db, name)) == (404, (409, [said]), before)


def test_a_form_that_does_not_say_what_was_active_is_refused(
    service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """As of a page that an earlier version served; the page that answers says it."""
    name = made("kube-1.35", "kube-1.36")
    headers = {"Authorization": f"Bearer {tokens['ann']}"}
    address = f"{service.url}/environments/{name}"
    token = hidden(httpx.get(address, headers=headers), "form_token")
    with Store.open(db) as store:
        newest = store.read.activations(name)[0].id
    for given in ({}, {"active": ""}, {"active": "-1"}, {"active": "x"}):
        form = {"form_token": token, "reason": "because", **given}
        answer = httpx.post(f"{address}/rollback", data=form, headers=headers)
        said = "the form does not say what was active when its page was loaded"
        assert (answer.status_code, said in words(answer)) == (400, True)
        assert hidden(answer, "active") == str(newest)
    assert len(activated(db, name)) == 2


def hidden(page: httpx.Response, name: str) -> str:
    """The value of a field that people do not see, in the last form that has it."""
    return unescape(re.findall(rf'name="{name}" value="([^"]*)"', page.text)[-1])


def test_a_rollback_says_what_it_activates(
    context: BrowserContext, service: Serving, tokens: dict[str, str], made: Made
) -> None:
    """On its button; where there is nothing to go back to there is no form."""
    page = sign_in(context.new_page(), service, tokens["ann"])
    found = []
    for rules in ((), ("kube-1.36",), ("kube-1.35", "kube-1.36")):
        page.goto(f"{service.url}/environments/{made(*rules)}")
        found.append(page.locator("form[action$=rollback] button").all_inner_texts())
        nothing = page.locator("text=There are no earlier rules to go back to.").count()
        assert nothing == (len(rules) == 1)
    assert found == [[], [], ["Roll back to kube-1.35"]]
    text = page.locator("form[action$=rollback] p")
    link = text.locator("a").get_attribute("href")
    assert unescape(link).endswith(quote(RuleSet.load("kube-1.35").digest))
    assert text.inner_text().endswith(" by test.")


# --- sessions that ended -------------------------------------------------------------------------


def test_a_form_without_a_session_is_said_not_to_be_sent(
    context: BrowserContext, service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """On the login page, also after a wrong token, and on the page to which that leads."""
    name = made("kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    fill(page, "activate")
    context.clear_cookies()
    ended = (
        "Your session has ended. The form was not sent: nothing was changed."
        " After you log in, its page is shown again."
    )
    assert send(page, "activate") == (200, [ended])
    assert urlsplit(page.url).path == "/login"
    page.fill("input[name=token]", "wrong")
    page.click("main button")
    alerts = page.locator("[role=alert]")
    assert alerts.all_inner_texts() == [ended, "That token is not valid."]
    page.fill("input[name=token]", tokens["ann"])
    page.click("main button")
    assert urlsplit(page.url).path == f"/environments/{name}"
    assert alerts.all_inner_texts() == [
        "The form Activate was not sent, because your session had ended. Nothing was changed by it."
    ]
    assert activated(db, name) == [("kube-1.36", "test", "test")]
    fill(page, "activate")
    assert send(page, "activate") == (200, [])
    assert len(activated(db, name)) == 2


@pytest.mark.parametrize(
    "name", ["50%25 off", "team/..", "a?b#c", "team/rollback", "two\nlines", "line\n"]
)
def test_a_login_leads_back_to_whatever_name(
    service: Serving, db: str, tokens: dict[str, str], name: str
) -> None:
    """The address is the one that was opened: no `%` and no slash of a name means another one."""
    with Store.open(db) as store:
        store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
    address = f"{service.url}/environments/{quote(name, safe='')}"
    with httpx.Client(follow_redirects=True) as client:
        login = client.get(address)
        target = re.search('name="next" value="([^"]*)"', login.text)
        assert target is not None
        given = {"token": tokens["ann"], "next": unescape(target[1])}
        opened = client.post(f"{service.url}/login", data=given)
    heading = re.search("<h1>(.*)</h1>", opened.text)
    assert heading is not None
    shown = name.replace("\n", "\\n")
    assert (str(opened.url), unescape(heading[1])) == (address, f"Environment {shown}")


@pytest.mark.parametrize("name", ["of/activate", "three\nlines", "last\n"])
def test_forms_of_whatever_name(
    service: Serving, db: str, tokens: dict[str, str], name: str
) -> None:
    """They change the environment that the page shows."""
    with Store.open(db) as store:
        store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
    address = f"/environments/{quote(name, safe='')}"
    with httpx.Client(base_url=service.url) as client:
        client.post("/login", data={"token": tokens["ann"], "next": "/"})
        for form, typed in (
            ("activate", {"rules": "kube-1.35"}),
            ("activate", {"rules": "kube-1.36"}),
            ("rollback", {}),
        ):
            page = client.get(address).text
            hidden = dict(re.findall('name="(form_token|active)" value="([^"]*)"', page))
            answer = client.post(f"{address}/{form}", data={**hidden, **typed, "reason": form})
            assert (answer.status_code, answer.headers["location"]) == (303, address)
    assert activated(db, name) == [
        ("kube-1.35", "ann", "rollback"),
        ("kube-1.36", "ann", "activate"),
        ("kube-1.35", "ann", "activate"),
    ]


@pytest.mark.parametrize("form", ["activate", "rollback"])
def test_a_reason_is_no_longer_than_the_api_takes(
    service: Serving, db: str, tokens: dict[str, str], made: Made, form: str
) -> None:
    """Of whoever sends the form without the bound of its field; it is shown again whole."""
    name = made("kube-1.35", "kube-1.36")
    before = activated(db, name)
    reason = "long " * 401
    with httpx.Client(base_url=service.url) as client:
        client.post("/login", data={"token": tokens["ann"], "next": "/"})
        page = client.get(f"/environments/{name}").text
        hidden = dict(re.findall('name="(form_token|active)" value="([^"]*)"', page))
        sent = {
            **hidden,
            "reason": reason,
            **({"rules": "kube-1.30"} if form == "activate" else {}),
        }
        answer = client.post(f"/environments/{name}/{form}", data=sent)
    said = "the reason has 2005 characters, and 2000 are allowed"
    shown = (answer.status_code, said in answer.text, f'value="{reason}"' in answer.text)
    assert (shown, activated(db, name)) == ((400, True, True), before)


def test_who_only_reads_is_told_of_no_form(
    context: BrowserContext, service: Serving, tokens: dict[str, str], made: Made
) -> None:
    """A page that is opened without a session, and the address of a form that is opened again."""
    path = f"/environments/{made('kube-1.36')}"
    page = context.new_page()
    found = []
    for address in (path, f"{path}/rollback"):
        page.goto(service.url + address)
        found.append(page.locator("[role=alert]").count())
    page.fill("input[name=token]", tokens["ann"])
    page.click("main button")
    found.append(page.locator("[role=alert]").count())
    page.goto(f"{service.url}{path}?unsent=other")
    found.append(page.locator("[role=alert]").count())
    assert (page.url, found) == (f"{service.url}{path}?unsent=other", [0, 0, 0, 0])


def test_a_page_of_an_earlier_session_logs_out(
    context: BrowserContext, service: Serving, tokens: dict[str, str]
) -> None:
    """In a tab that was open before somebody logged in again in another one."""
    early = sign_in(context.new_page(), service, tokens["ann"])
    sign_in(context.new_page(), service, tokens["bob"])
    early.click("header button")
    assert (urlsplit(early.url).path, context.cookies()) == ("/login", [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_nobody_else_logs_out(
    service: Serving, tokens: dict[str, str], headers: dict[str, str]
) -> None:
    """Whoever does not show that a page of the service sent the form needs the session's token."""
    with httpx.Client(base_url=service.url) as client:
        client.post("/login", data={"token": tokens["ann"], "next": "/"})
        own = hidden(client.get("/"), "form_token")
        answer = client.post("/logout", data={"form_token": "of another"}, headers=headers)
        assert (answer.status_code, answer.headers["content-type"], dict(answer.cookies)) == (
            403,
            "text/html; charset=utf-8",
            {},
        )
        assert "Not allowed" in words(answer)
        assert client.get("/").status_code == 200
        if not headers:
            assert client.post("/logout", data={"form_token": own}).status_code == 303


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_what_is_wrong_with_a_form_is_a_page(service: Serving, path: str) -> None:
    answer = httpx.post(service.url + path, content="token=%00")
    assert (answer.status_code, answer.headers["content-type"], words(answer)) == (
        400,
        "text/html; charset=utf-8",
        "That did not work the form holds the character NUL, which no text may hold Overview",
    )


EARLIER = (
    "the form is from an earlier session, or from before the service was started again\n"
    "nothing was done; check it as it is shown now, and send it again"
)


@pytest.mark.parametrize("form", ["activate", "rollback"])
def test_a_form_of_an_earlier_session_is_shown_again(
    form: str,
    context: BrowserContext,
    service: Serving,
    db: str,
    tokens: dict[str, str],
    made: Made,
) -> None:
    """With what was typed, so that sending it once more does it, under the new session."""
    name = made("kube-1.35", "kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    fill(page, form)
    entered = typed(page, form)
    sign_in(context.new_page(), service, tokens["bob"])
    before = activated(db, name)
    assert send(page, form) == (403, [EARLIER])
    assert (typed(page, form), activated(db, name)) == (entered, before)
    assert send(page, form) == (200, [])
    assert [row[1:] for row in activated(db, name)[:1]] == [("bob", "because")]


def test_a_form_of_an_earlier_session_is_still_of_its_page(
    context: BrowserContext, service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """What was activated meanwhile is said when it is sent again."""
    name = made("kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    sign_in(context.new_page(), service, tokens["bob"])
    said = by_bob(service, tokens, name)
    fill(page, "activate")
    found = [send(page, "activate") for _ in range(3)]
    assert found == [(403, [EARLIER]), (409, [said]), (200, [])]


def test_a_form_of_an_earlier_process_is_shown_again(
    context: BrowserContext, db: str, tmp_path: Path, made: Made
) -> None:
    """A service without tokens that was started again."""
    name = made("kube-1.36")
    first = serving.serve(db, tmp_path)
    page = context.new_page()
    page.goto(f"{first.url}/environments/{name}")
    fill(page, "activate")
    assert first.stop() == 0
    second = serving.serve(db, tmp_path, "--port", urlsplit(first.url).port)
    assert send(page, "activate") == (403, [EARLIER])
    assert typed(page, "activate") == {"rules": "kube-1.30", "reason": "because"}
    assert (send(page, "activate"), second.stop()) == ((200, []), 0)
    assert [row[0] for row in activated(db, name)] == ["kube-1.30", "kube-1.36"]


def test_what_another_site_typed_is_not_shown(
    service: Serving, db: str, tokens: dict[str, str], made: Made
) -> None:
    """It would be in a form of this service, with a valid token, for somebody to press a button."""
    name = made("kube-1.36")
    with httpx.Client(base_url=service.url) as client:
        client.post("/login", data={"token": tokens["ann"], "next": "/"})
        form = {"rules": "kube-1.20", "reason": "planted", "active": "1"}
        found = []
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = client.post(f"/environments/{name}/activate", data=form, headers=headers)
            found.append((answer.status_code, words(answer), "planted" in answer.text))
            bare = httpx.post(
                f"{service.url}/environments/{name}/activate", data=form, headers=headers
            )
            found.append((bare.status_code, words(bare), "planted" in bare.text))
    said = "Not allowed the form is not from a page of this service Overview"
    assert found == [(403, said, False)] * 4


# --- what is wrong, beside its field -------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "entered", "wrong"),
    [
        (
            "activate",
            {"rules": "kube-1.3x", "reason": "because"},
            ["rules", "there is no shipped rule set kube-1.3x\ndid you mean kube-1.36?"],
        ),
        (
            "activate",
            {"rules": "kube-1.36", "reason": "because"},
            ["rules", "kube-1.36 is active in {name} already"],
        ),
        (
            "activate",
            {"rules": "kube-1.30", "reason": " "},
            ["reason", "the reason is empty\nsay why, for later readers"],
        ),
        (
            "rollback",
            {"reason": " "},
            ["reason", "the reason is empty\nsay why, for later readers"],
        ),
    ],
)
def test_a_field_of_a_form_that_is_wrong_is_marked(
    form: str,
    entered: dict[str, str],
    wrong: list[str],
    context: BrowserContext,
    service: Serving,
    tokens: dict[str, str],
    made: Made,
) -> None:
    """That one of that form alone, described by the message; everything typed is kept."""
    name = made("kube-1.35", "kube-1.36")
    page = sign_in(context.new_page(), service, tokens["ann"], f"/environments/{name}")
    fill(page, form, **entered)
    send(page, form)
    field, said = wrong
    assert (page.evaluate(WRONG), typed(page, form)) == (
        [[field, said.format(name=name)]],
        entered,
    )
    own = page.locator(f"form[action$={form}] [aria-invalid=true]")
    others = {"activate": "rollback", "rollback": "activate"}[form]
    assert (own.count(), set(typed(page, others).values())) == (1, {""})


LISTS = {
    "/decisions?since=someday": "since",
    "/decisions?outcome=lost": "outcome",
    "/decisions?cluster=none": "cluster",
    "/decisions?workload=x": "workload",
    "/decisions?rules=sha256:1": "rules",
    "/decisions?rule=filters/x": "rule",
    "/groups?until=someday": "until",
    "/groups?outcome=lost": "outcome",
    "/sessions?since=someday": "since",
    "/sessions?cluster=none": "cluster",
    "/sessions?since=7d&until=8d": "since",
    "/observed?verdict=lost": "verdict",
    "/observed?since=someday": "since",
    "/observed?rules=none": "rules",
    "/compare?rules=none": "rules",
    "/compare?rules=protected&n=501": "n",
    "/compare?rules=protected&cluster=none": "cluster",
    "/compare?n=3": "n",
    "/compare?cluster=default": "cluster",
    "/environments/prod?candidate=none": "candidate",
    "/environments/prod?candidate=protected&n=x": "n",
    "/environments/prod?n=3": "n",
    "/environments/prod?candidate=&n=3": "n",
    "/rules/kube-1.36?diff=none": "diff",
    "/sql?saved=outcomes&p.since=someday": "p.since",
    "/sql?saved=outcomes&p.since=7d&p.until=8d": "p.since",
    "/sql?saved=outcomes&p.limit=0": "p.limit",
}


def test_a_filter_that_is_wrong_is_marked(
    context: BrowserContext, service: Serving, tokens: dict[str, str]
) -> None:
    """The one field alone, described by the message, on every page that has fields."""
    page = sign_in(context.new_page(), service, tokens["ann"])
    found, wanted = {}, {}
    for address, field in LISTS.items():
        page.goto(service.url + address)
        found[address] = page.evaluate(WRONG)
        wanted[address] = [[field, page.locator("[role=alert]").inner_text()]]
    assert found == wanted


def test_a_filter_is_marked_where_the_list_alone_is_loaded(
    context: BrowserContext, service: Serving, tokens: dict[str, str]
) -> None:
    """The fields stay in place then, and so does what is typed; mended, nothing is marked."""
    page = sign_in(context.new_page(), service, tokens["ann"], "/decisions")
    found = []
    for since in ("someday", "7d"):
        page.fill("input[name=since]", since)
        page.click("main form button")
        page.wait_for_url(f"**since={since}")
        found.append([name for name, _ in page.evaluate(WRONG)])
        assert page.input_value("input[name=since]") == since
    assert found == [["since"], []]


# --- titles --------------------------------------------------------------------------------------


def test_a_title_says_what_the_page_is_about(service: Serving, tokens: dict[str, str]) -> None:
    """In tabs and in the history of a browser, where nothing else says it."""
    found = {}
    for address in ("/environments/prod", "/", "/?cluster=default", "/?cluster=default&days=7"):
        page = service.get(address, headers={"Authorization": f"Bearer {tokens['ann']}"})
        found[address] = re.findall("<title>(.*?)</title>", page.text)
    assert found == {
        "/environments/prod": ["Environment prod · policy"],
        "/": ["Overview · policy"],
        "/?cluster=default": ["Overview: cluster default · policy"],
        "/?cluster=default&days=7": ["Overview: cluster default · policy"],
    }
