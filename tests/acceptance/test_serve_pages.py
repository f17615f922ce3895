"""The pages in a real browser: opened, used, refused; at both widths, in both colour schemes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page

from policy.cli.app import run
from policy.rules import RuleSet
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Proofs, ProvedClaim, Store
from tests.acceptance.test_serve_sessions import hold
from tests.support import serving
from tests.support.live import LIVE
from tests.support.serving import Serving, preempts
from tests.support.signing_in import sign_in

PAGES = (
    "/",
    "/decisions",
    "/decisions/1?show=spared&replay=1&rules=max-victims&why_not=w-2",
    "/groups",
    "/sessions",
    "/sessions/1",
    "/sessions/2?show=effects",
    "/workloads/team-a/web",
    "/nodes/w-1",
    "/rules",
    "/rules/kube-1.36?diff=kube-1.20",
    "/rules/environments/prod",
    "/rules/volcano",
    "/compare?rules=max-victims",
    "/compare?rules=environments/prod&n=50&open=1",
    "/observed",
    "/observed?cluster=real&verdict=same&rules=environments/prod",
    "/observed/1?again=1",
    "/environments",
    "/environments/prod",
    "/environments/prod?candidate=environments/prod",
    "/environments/staging",
    "/sql?saved=who-preempts-whom",
    "/sql?q=SELECT+victim,+run_seconds+FROM+v_victims&chart=bar",
    "/simulations",
    "/simulations/1",
    "/api",
)


TRACE = Path(__file__).parents[2] / "examples" / "simulation" / "trace"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tokens by role, and `file`; `limited` sees namespace team-a only."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    made["limited"] = file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1)
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, tokens: dict[str, str]
) -> Iterator[Serving]:
    """A service with decisions, also of a pod whose name, label and reason are markup."""
    folder = tmp_path_factory.mktemp("served")
    db = str(folder / "policy.db")
    shutil.copy(sqlite_template, db)
    serving.filled(db, run="a")
    with Store.open(db) as store:
        evil = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
        serving.activate(store, "kube-1.36", reason=evil)
        store.record.create_environment("staging", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "environments/dev", environment="staging")
        against = RuleSet.load("environments/dev").digest
        claims = (ProvedClaim(claim="never: a < b"), ProvedClaim(claim="c", against=against))
        proofs = Proofs(claims=claims, solver="z3 5.4.1")
        serving.activate(store, "environments/staging", environment="staging", proofs=proofs)
    for file in ("wave-kubelet.initial.json.gz", "wave-kubelet.jsonl.gz"):
        assert run(["import", "--db", db, "--cluster", "real", str(LIVE / file)]) == 0
    hold(db, folder, lab="team-a")
    assert run(["simulate", str(TRACE), "--rules", "kube-1.36", "--db", db]) == 0
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.ready()
    headers = {"Authorization": f"Bearer {tokens['extender']}"}
    for call in preempts("a")[:6]:
        answer = started.post("/extender/preempt", call["request"], headers=headers)
        assert answer.status_code == 200
    yield started
    assert started.stop() == 0


def opened(browser: Browser, service: Serving, token: str, **context: object) -> Page:
    """A page that is logged in; what goes wrong in it is collected in `page.failures`."""
    page = browser.new_context(**context).new_page()
    failures: list[str] = []
    page.failures = failures
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on(
        "console",
        lambda m: failures.append(m.text) if m.type in ("error", "warning") else None,
    )
    page.on(
        "request",
        lambda r: None if r.url.startswith((service.url, "data:")) else failures.append(r.url),
    )
    return sign_in(page, service, token)


@pytest.mark.parametrize("path", [*PAGES, "/sql?q=SELECT+victim+FROM+v_victims&chart=bar"])
def test_code_in_sentences_is_set_as_code(
    service: Serving, tokens: dict[str, str], path: str
) -> None:
    """No page has backquotes but where a source stands as it is."""
    page = service.get(path, headers={"Authorization": f"Bearer {tokens['admin']}"})
    plain = re.sub(r"<(pre|textarea|code)\b.*?</\1>", "", page.text, flags=re.DOTALL)
    assert (page.status_code, re.findall("[^<>]*`[^<>]*", plain)) == (200, [])


UNLABELLED = """() => [...document.querySelectorAll('input,select,textarea,button')]
    .filter(e => e.type !== 'hidden' && !e.labels?.length && !e.textContent.trim()
        && !e.getAttribute('aria-label')).map(e => e.outerHTML)
    .concat([...document.querySelectorAll('th')].filter(e => !e.textContent.trim())
        .map(e => e.closest('.wide').outerHTML.slice(0, 200)))"""
"""Fields without a name, and columns and rows of tables without a head that says what they are."""

CONTRAST = """() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => { const f = v => { v /= 255;
    return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 };
    return .2126 * f(r) + .7152 * f(g) + .0722 * f(b) };
  const back = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e)
    .backgroundColor); if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
  const bad = [];
  for (const e of document.querySelectorAll('main *, header *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (e.closest('svg') || !e.offsetParent) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(back(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 40), ratio]);
  }
  return bad }"""


FIELDS = """() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b };
  const ratio = (a, b) => { a = light(a); b = light(b);
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) };
  const page = getComputedStyle(document.body).backgroundColor;
  return [...document.querySelectorAll('input, select, textarea')].filter(e => e.checkVisibility())
    .filter(e => ratio(getComputedStyle(e).borderTopColor, page) < 3 || ratio(
      getComputedStyle(e, '::placeholder').color, getComputedStyle(e).backgroundColor) < 4.5)
    .map(e => e.outerHTML.slice(0, 80)) }"""
"""Fields whose edge does not stand out from the page (WCAG 1.4.11), or their hint from them."""

LANDMARKS = """() => {
  const named = [...document.querySelectorAll('section[aria-labelledby], [role=region], nav, main')]
    .map(e => [e.localName, e.getAttribute('aria-label')
      || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent.trim() || ''])
    .map(([kind, name]) => `${kind === 'div' ? 'section' : kind} ${name}`);
  return named.filter((one, at) => named.indexOf(one) !== at) }"""
"""Landmarks of the same name as one before: who goes from one to the next takes them for one."""

CRUSHED = """() => [...document.querySelectorAll('.wide td')].filter(cell => {
    const word = document.createElement('span');
    const first = cell.innerText.trim().split(/[\\s\\/-]/)[0];
    word.textContent = first.slice(0, 8);
    word.style.whiteSpace = 'nowrap';
    cell.append(word);
    const wide = word.getBoundingClientRect().width;
    word.remove();
    return cell.clientWidth + 1 < wide }).map(cell => cell.innerText.slice(0, 40))"""
"""Cells of tables that are too narrow for a short word, which is then set letter by letter."""


CUT = """() => [...document.querySelectorAll('.wide')]
    .filter(e => e.scrollWidth > e.clientWidth && getComputedStyle(e).backgroundImage === 'none')
    .map(e => e.getAttribute('aria-label'))"""
"""Tables to be scrolled, without a shadow where they go on: not every scroll bar shows."""

BROKEN = """() => [...document.querySelectorAll('.wide td')].filter(cell => {
    const words = document.createRange();
    words.selectNodeContents(cell);
    return /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/.test(cell.innerText.trim())
      && words.getBoundingClientRect().height > 30 }).map(cell => cell.innerText)"""
"""Dates that are set on two lines."""


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_every_page_stands(
    browser: Browser, service: Serving, tokens: dict[str, str], width: int, scheme: str
) -> None:
    """No error, no request elsewhere, no page wider than the window, labels and contrast."""
    page = opened(
        browser,
        service,
        tokens["viewer"],
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
    )
    wrong = {}
    shots = os.environ.get("POLICY_SCREENSHOTS")
    for path in PAGES:
        answer = page.goto(service.url + path)
        found = {
            "status": answer.status,
            "wide": page.evaluate("document.documentElement.scrollWidth > innerWidth"),
            "unlabelled": page.evaluate(UNLABELLED),
            "contrast": page.evaluate(CONTRAST),
            "one heading": page.locator("h1").count(),
            "crushed": page.evaluate(CRUSHED),
            "fields": page.evaluate(FIELDS),
            "landmarks": page.evaluate(LANDMARKS),
            "cut": page.evaluate(CUT),
            "broken": page.evaluate(BROKEN),
        }
        if shots:
            name = path.strip("/").partition("?")[0].replace("/", "-") or "overview"
            page.screenshot(path=f"{shots}/{name}-{width}.png", full_page=True)
        right = {
            "status": 200,
            "wide": False,
            "one heading": 1,
            "unlabelled": [],
            "contrast": [],
            "crushed": [],
            "fields": [],
            "landmarks": [],
            "cut": [],
            "broken": [],
        }
        if found != right:
            wrong[path] = found
    assert (wrong, page.failures) == ({}, [])


def test_lists_of_decisions_are_seen_whole(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """On a wide screen, also with what schedulers were answered: nothing has to be scrolled."""
    page = opened(browser, service, tokens["viewer"], viewport={"width": 1600, "height": 900})
    beyond = {}
    for path in ("/decisions", "/", "/nodes/w-6"):
        page.goto(service.url + path)
        lists = page.locator(".wide:has(table.list)")
        assert lists.count()
        beyond[path] = lists.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)")
    assert {path: max(found) for path, found in beyond.items()} == dict.fromkeys(beyond, 0)


def test_figures_of_a_simulation_are_seen_whole(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """On a wide screen; on a narrow one its charts are scrolled, so that their texts are read."""
    page = opened(browser, service, tokens["viewer"], viewport={"width": 1600, "height": 900})
    page.goto(service.url + "/simulations/1")
    beyond = "all => all.map(e => e.scrollWidth - e.clientWidth).filter(over => over > 0)"
    assert page.locator(".wide").evaluate_all(beyond) == []
    aligned = "all => [...new Set(all.map(e => getComputedStyle(e).textAlign))]"
    assert page.locator("[aria-label=Figures] td:not(:first-child)").evaluate_all(aligned) == [
        "right"
    ]
    page.set_viewport_size({"width": 360, "height": 900})
    sizes = page.locator(".wide svg text").evaluate_all(
        "all => all.map(e => 12 * e.getCTM().a).filter(size => size < 10)"
    )
    assert (sizes, page.failures) == ([], [])


LONGER = """() => document.querySelectorAll('.list td.name a, .list td.names a')
    .forEach(e => { e.textContent = `team-a/${'preemptsunknownuid'.repeat(3)}` })"""
"""Names of 61 characters, at which no line ends."""


def test_lists_of_decisions_are_seen_whole_with_long_names(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """A name is broken where it must be; what the scheduler was answered is below the outcome."""
    page = opened(browser, service, tokens["viewer"], viewport={"width": 1600, "height": 900})
    page.goto(service.url + "/decisions?origin=extender")
    page.evaluate(LONGER)
    lists = page.locator(".wide:has(table.list)")
    assert lists.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)") == [0]
    outcomes = page.locator("#list td:nth-child(5)").all_inner_texts()
    assert {text.replace("\n", ", ") for text in outcomes} == {"preempt, answered as offered"}


def test_candidates_are_seen_whole(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    page = opened(browser, service, tokens["viewer"], viewport={"width": 1280, "height": 900})
    page.goto(service.url + "/decisions/1")
    candidates = page.locator(".wide:has(table.ladder)")
    assert candidates.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)") == [0]


PRINTED = """() => ({
    clipped: [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth
        || getComputedStyle(e).overflowX !== 'visible').map(e => e.getAttribute('aria-label')),
    wide: document.documentElement.scrollWidth > innerWidth,
    controls: [...document.querySelectorAll('nav, form, button, input')]
        .filter(e => e.checkVisibility()).map(e => e.outerHTML.slice(0, 80)),
    back: getComputedStyle(document.body).backgroundColor,
})"""
"""What is missing on paper, controls that are of no use there, and the colour of the page."""


def test_every_page_is_printed_whole(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """On paper as wide as A4 is: no column is cut off or set letter by letter, no form is there."""
    page = opened(
        browser,
        service,
        tokens["operator"],
        viewport={"width": 718, "height": 1000},
        color_scheme="dark",
    )
    page.emulate_media(media="print")
    wrong = {}
    for path in PAGES:
        page.goto(service.url + path)
        found = {**page.evaluate(PRINTED), "crushed": page.evaluate(CRUSHED)}
        right = {"clipped": [], "wide": False, "controls": [], "crushed": []}
        if found != {**right, "back": "rgb(252, 252, 253)"}:
            wrong[path] = found
    assert (wrong, page.failures) == ({}, [])


def test_decisions_are_filtered_opened_and_asked(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """With JavaScript the list changes in place, and the address is that of what is shown."""
    page = opened(browser, service, tokens["viewer"])
    page.goto(service.url + "/decisions")
    page.select_option("select[name=outcome]", "preempt")
    page.click("text=Show")
    page.wait_for_url("**outcome=preempt**")
    assert set(page.locator("#list .outcome").all_text_contents()) == {"preempt"}
    page.locator("#list tbody tr:last-child td:first-child a").click()
    page.fill("input[name=why_not]", "w-1")
    page.click("text=Ask")
    assert "w-1" in page.locator("#answer").inner_text()
    assert page.failures == []


def test_pages_work_without_javascript(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    page = opened(browser, service, tokens["viewer"], java_script_enabled=False)
    page.goto(service.url + "/decisions")
    page.select_option("select[name=outcome]", "preempt")
    page.click("text=Show")
    assert set(page.locator("#list .outcome").all_text_contents()) == {"preempt"}


def test_times_are_those_of_the_reader(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """In their zone, which they name, with UTC on hover; without JavaScript in UTC, named too."""
    given = {"timezone_id": "Asia/Kolkata", "locale": "de-DE"}
    shown = {}
    for script in (True, False):
        page = opened(browser, service, tokens["viewer"], java_script_enabled=script, **given)
        page.goto(service.url + "/decisions/1")
        fact = page.locator("dd time").first
        shown[script] = (fact.inner_text(), fact.get_attribute("title"))
    local, utc = shown[True], shown[False]
    instant = datetime.fromisoformat(utc[1].removesuffix(" UTC"))
    there = instant.astimezone(ZoneInfo("Asia/Kolkata"))
    clock = f"{there.hour}:{there:%M:%S} GMT+5:30"
    assert local == (f"{there.day}.{there.month}.{there.year}, {clock}", utc[1])
    assert utc[0] == f"{instant:%Y-%m-%d %H:%M:%S}.{instant.microsecond // 1000:03} UTC"


def test_what_schedulers_did_is_set_against_rules(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """The verdicts as the commands say them; what rules would have done by week and namespace."""
    page = opened(browser, service, tokens["viewer"])
    headers = {name: {"Authorization": f"Bearer {value}"} for name, value in tokens.items()}
    page.goto(service.url + "/observed")
    page.select_option("select[name=verdict]", "same")
    page.fill("input[name=rules]", "protected")
    page.click("main form button")
    page.wait_for_url("**rules=protected**")
    rows = page.locator("section[aria-labelledby=newest] tbody tr").all_inner_texts()
    sums = page.locator("section[aria-labelledby=against] tbody tr").all_inner_texts()
    assert [("prod/c15-pre25" in row, "same" in row) for row in rows] == [
        (False, True),
        (True, True),
    ]
    assert [line.split("\t")[:5] for line in sums] == [
        ["2026-11-16", "prod", "1", "1", "0"],
        ["2026-11-16", "team-b", "2", "2", "0"],
    ]
    assert service.get("/observed?verdict=x", headers=headers["viewer"]).status_code == 400
    assert page.failures == []


def test_an_operator_activates_and_rolls_back(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """By the forms of the page; the ledger's activation names the token."""
    page = opened(browser, service, tokens["operator"])
    page.goto(service.url + "/environments/prod")
    page.fill("input[name=rules]", "max-victims")
    page.locator("form[action$=activate] input[name=reason]").fill("fewer at once")
    page.click("form[action$=activate] button")
    first = page.locator("section tbody tr").first
    assert "max-victims" in first.inner_text()
    assert "fewer at once" in first.inner_text()
    page.locator("form[action$=rollback] input[name=reason]").fill("too few")
    page.click("form[action$=rollback] button")
    assert "kube-1.36" in page.locator("section tbody tr").first.inner_text()
    answer = service.get(
        "/api/v1/environments/prod", headers={"Authorization": f"Bearer {tokens['viewer']}"}
    )
    assert [one["actor"] for one in answer.json()["activations"][:2]] == ["operator", "operator"]
    assert page.failures == []


def test_a_viewer_cannot_activate(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """No form is shown, and a form made by hand is refused."""
    page = opened(browser, service, tokens["viewer"])
    page.goto(service.url + "/environments/prod")
    assert page.locator("form[action$=activate]").count() == 0
    answer = page.request.post(
        service.url + "/environments/prod/activate",
        form={"rules": "kube-1.20", "reason": "x", "form_token": "x"},
    )
    assert answer.status == 403


def test_markup_in_the_record_is_text(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """A reason that holds a script is shown, not run."""
    page = opened(browser, service, tokens["viewer"])
    page.goto(service.url + "/environments/prod")
    assert page.title() == "Environment prod · policy"
    assert "<script>document.title" in page.content().replace("&lt;", "<").replace("&gt;", ">")
    assert page.locator("main script, main img").count() == 0


def test_what_was_proved_before_an_activation_is_shown(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """Each claim with its verdict, a link to what it compares with, and the solver."""
    page = opened(browser, service, tokens["viewer"])
    page.goto(service.url + "/environments/staging")
    against = RuleSet.load("environments/dev").digest
    newest = page.locator("section tbody tr").first
    assert newest.locator("li").all_inner_texts() == [
        "proved: never: a < b",
        f"proved: c (compared with {against[:14]})",
    ]
    assert "z3 5.4.1" in newest.inner_text()
    newest.locator("li a").click()
    assert unquote(page.url).endswith(f"?diff={against}")
    assert page.failures == []


def test_a_limited_viewer_sees_nothing_of_others(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """Neither pages nor the API name a pod, an owner or a count of another namespace."""
    page = opened(browser, service, tokens["limited"])
    texts = []
    given = [serving.shown(tokens["file"], Numbered.DECISION, n) for n in range(1, 7)]
    for path in ("/", "/decisions", *(f"/decisions/{n}" for n in (*range(1, 7), *given))):
        page.goto(service.url + path)
        texts.append(page.content())
    headers = {"Authorization": f"Bearer {tokens['limited']}"}
    paths = ("decisions", "export/decisions", *(f"decisions/{n}" for n in given))
    texts += [service.get(f"/api/v1/{path}", headers=headers).text for path in paths]
    assert [text for text in texts if "team-b" in text] == []
    refused = [
        service.get(f"/api/v1/{path}", headers=headers).status_code
        for path in ("environments", "ledger", "queries", "clusters/default/state")
    ]
    assert refused == [403, 403, 403, 403]
