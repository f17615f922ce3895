"""Observed preemptions, for a viewer who is limited to namespaces."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.observed import VerdictClass
from policy.text.words import duration
from tests.support import serving
from tests.support.live import LIVE
from tests.support.page_text import words
from tests.support.serving import Serving

OWN = "team-b"
OTHERS = ("prod/", "team-a/")
ODD = "eu/west 1"
"""A cluster whose name is quoted in addresses; decided for it: order, lag, same."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    db = serving.filled(str(tmp_path_factory.mktemp("observed") / "policy.db"))
    files = [str(LIVE / f"wave-kubelet.{end}.gz") for end in ("initial.json", "jsonl")]
    command = [sys.executable, "-m", "policy", "import", "--db", db, "--cluster"]
    subprocess.run([*command, "real", *files], check=True, capture_output=True)
    files = [str(LIVE / f"three-at-once.{end}.gz") for end in ("initial.json", "jsonl")]
    subprocess.run([*command, ODD, *files], check=True, capture_output=True)
    return db


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return {
        "all": file.create("all", Role.VIEWER, namespaces=None, now_ms=1),
        "own": file.create("own", Role.VIEWER, namespaces=[OWN], now_ms=1),
        "file": str(file._path),
    }


@pytest.fixture(scope="module")
def service(
    database: str, tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("service")
    started = serving.serve(database, folder, "--tokens", tokens["file"])
    started.ready()
    yield started
    assert started.stop() == 0


def own_number(tokens: dict[str, str], number: int) -> int:
    """The number of an observation, as tokens see it that are limited to namespaces."""
    return serving.shown(tokens["file"], Numbered.OBSERVATION, number)


def get(service: Serving, tokens: dict[str, str], who: str, path: str) -> Any:
    return service.get(path, headers={"Authorization": f"Bearer {tokens[who]}"})


def test_a_limited_viewer_sees_their_part(service: Serving, tokens: dict[str, str]) -> None:
    """What concerns their namespaces, and of that nothing about pods of others."""
    whole = get(service, tokens, "all", "/api/v1/observations").json()["observations"]
    answer = get(service, tokens, "own", "/api/v1/observations")
    expected = [
        (
            own_number(tokens, one["id"]),
            one["preemptor"] if one["preemptor"].startswith(f"{OWN}/") else None,
            [v["victim"] for v in one["victims"] if v["namespace"] == OWN],
        )
        for one in whole
    ]
    expected = [one for one in expected if one[1] or one[2]]
    shown = [
        (one["id"], one["preemptor"], [v["victim"] for v in one["victims"]])
        for one in answer.json()["observations"]
    ]
    assert 0 < len(expected) < len(whole)
    assert (shown, [name for name in OTHERS if name in answer.text]) == (expected, [])


def test_one_observation_of_a_limited_viewer(
    service: Serving, tokens: dict[str, str], database: str
) -> None:
    """As the list shows it, and no decision made again; what does not concern them is not there.

    Nor is anything under the numbers of the record.
    """
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]
    with Store.open(database) as store:
        recorded = [row.id for row in store.read.observations()]
    numbers = [*recorded, *(own_number(tokens, n) for n in recorded)]
    found = {n: get(service, tokens, "own", f"/api/v1/observations/{n}") for n in numbers}
    shown = {n: answer.json() for n, answer in found.items() if answer.status_code == 200}
    assert shown == {one["id"]: one for one in listed}
    assert {answer.status_code for n, answer in found.items() if n not in shown} == {404}


def test_a_page_does_not_begin_at_what_is_hidden(
    service: Serving, tokens: dict[str, str], database: str
) -> None:
    """What follows a hidden one would tell its time: it is as one that does not exist."""
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]
    own = [one["id"] for one in listed]
    with Store.open(database) as store:
        recorded = [row.id for row in store.read.observations()]
    numbers = [own_number(tokens, n) for n in (*recorded, 99_999)]

    def behind(number: int) -> list[int] | int:
        answer = get(service, tokens, "own", f"/api/v1/observations?after={number}")
        if answer.status_code != 200:
            return answer.status_code
        return [one["id"] for one in answer.json()["observations"]]

    found = {number: behind(number) for number in numbers}
    expected = {n: own[own.index(n) + 1 :] if n in own else 400 for n in numbers}
    assert (found, len(own) < len(recorded)) == (expected, True)
    for path in ("/api/v1/observations", "/observed"):
        answers = [get(service, tokens, "own", f"{path}?after={n}") for n in recorded]
        assert {answer.status_code for answer in answers} == {400}
        said = answers[0].json()["detail"] if "api" in path else words(answers[0])
        assert f"`after`: no list ended with {recorded[0]}" in said


def test_a_page_does_not_begin_at_what_there_is_not(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Also for who sees everything: without its time nothing is behind it, nor before it."""
    for path in ("/api/v1/observations", "/observed", "/api/v1/export/observations"):
        answer = get(service, tokens, "all", f"{path}?after=99999")
        said = answer.json()["detail"] if "api" in path else words(answer)
        assert (answer.status_code, "no list ended with 99999" in said) == (400, True)


def test_exports_and_sql_have_what_the_list_has(service: Serving, tokens: dict[str, str]) -> None:
    """For either viewer, filtered alike; SQL for the limited one."""
    for who, query in (("all", ""), ("own", ""), ("all", "?cluster=real&verdict=tie")):
        listed = get(service, tokens, who, f"/api/v1/observations{query}").json()["observations"]
        whole = get(service, tokens, who, f"/api/v1/export/observations{query}").text
        assert [json.loads(line) for line in whole.splitlines()] == listed != []
    page = get(service, tokens, "all", "/observed?cluster=real&verdict=tie&rules=kube-1.36").text
    assert 'href="/api/v1/export/observations?cluster=real&amp;verdict=tie"' in page
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]

    def rows(statement: str) -> list[list[Any]]:
        found: list[list[Any]] = service.client.post(
            f"{service.url}/api/v1/sql",
            json={"sql": statement},
            headers={"Authorization": f"Bearer {tokens['own']}"},
        ).json()["rows"]
        return found

    columns = ("id", "cluster", "at", "node", "confidence", "verdict", "preemptor")
    assert rows(f"SELECT {', '.join(columns)} FROM observations") == [
        [one["now" if name == "at" else name] for name in columns] for one in listed
    ]
    assert rows("SELECT observation, pod, ran_seconds FROM observed_victims") == [
        [one["id"], victim["victim"], victim["run_seconds"]]
        for one in listed
        for victim in one["victims"]
    ]


def test_filters_ask_for_nothing_hidden(
    service: Serving, tokens: dict[str, str], database: str
) -> None:
    """Whether a hidden pod took part is not to be found out by a filter."""
    with Store.open(database) as store:
        rows = store.read.observations()
    pods = {row.preemptor for row in rows} | {v.victim for row in rows for v in row.victims}
    hidden = sorted(pod for pod in pods if not pod.startswith(f"{OWN}/"))
    found = [
        get(service, tokens, "own", f"/api/v1/observations?{name}={pod}").json()["observations"]
        for pod in hidden
        for name in ("preemptor", "victim", "pod")
    ]
    assert found == [[]] * len(found)


def test_times_and_pods_are_typed_as_on_the_command_line(
    service: Serving, tokens: dict[str, str]
) -> None:
    """A duration is that before now; a pod without a namespace is in `default`."""

    def victims(query: str) -> list[list[str]]:
        found = get(service, tokens, "all", f"/api/v1/observations?{query}").json()
        return [[v["victim"] for v in one["victims"]] for one in found["observations"]]

    assert {query: victims(query) for query in ("victim=c15-p2", "victim=c15-p2&until=36500d")} == {
        "victim=c15-p2": [["default/c15-p2"]],
        "victim=c15-p2&until=36500d": [],
    }
    assert victims("since=36500d") == victims("")


def test_the_pages_of_a_limited_viewer(service: Serving, tokens: dict[str, str]) -> None:
    """The list has their part; neither sums nor other rules; the first page counts theirs."""
    page = get(service, tokens, "own", "/observed").text
    first = get(service, tokens, "own", "/").text
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]
    assert [name for name in OTHERS if name in page + first] == []
    text = re.sub(r"<[^>]+>", " ", page)
    assert ("Set against" in text, text.count(f"{OWN}/")) == (
        False,
        sum(bool(one["preemptor"]) + len(one["victims"]) for one in listed),
    )
    pages = {one["id"]: get(service, tokens, "own", f"/observed/{one['id']}") for one in listed}
    assert {number: answer.status_code for number, answer in pages.items()} == dict.fromkeys(
        pages, 200
    )
    shown = "".join(answer.text.partition("<main")[2] for answer in pages.values())
    hidden = (*OTHERS, "/nodes/", "/rules/", "Decide again", "?again")
    assert [word for word in hidden if word in shown] == []
    assert get(service, tokens, "own", "/observed/999").status_code == 404
    linked = {name for name in VerdictClass if f"/observed?verdict={name}" in first}
    assert linked == {one["verdict"] for one in listed}


# --- the pages ------------------------------------------------------------------------------------


def listed(page: Any) -> list[tuple[str, str, str]]:
    """Id, cluster and verdict of the rows, as text."""
    table = re.search(r'aria-label="Observed preemptions">.*?</table>', page.text, re.DOTALL)
    rows = re.findall(r"<tr>(<td.*?)</tr>", table[0], re.DOTALL) if table else []
    cells = [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td.*?</td>", row)]
        for row in rows
    ]
    return [(row[0], row[2], row[7]) for row in cells]


def test_the_page_filters_as_the_api_does(service: Serving, tokens: dict[str, str]) -> None:
    """By cluster as by everything else; the fields keep what was given."""
    filters = (
        f"cluster={quote(ODD)}",
        "cluster=real&verdict=tie",
        "pod=team-b/c15-pre26&confidence=certain",
        "namespace=prod&node=c15-n002",
        "victim=team-a/c15-p17",
        "since=2026-11-22T00:00:00Z",
        "until=2026-11-22T00:00:00Z",
    )
    found, expected = {}, {}
    for query in filters:
        page = get(service, tokens, "all", f"/observed?{query}")
        found[query] = listed(page)
        documents = get(service, tokens, "all", f"/api/v1/observations?{query}").json()
        expected[query] = [
            (str(one["id"]), one["cluster"], one["verdict"]) for one in documents["observations"]
        ]
        for _, value in parse_qsl(query):
            assert f'value="{value}"' in page.text or f"<option selected>{value}<" in page.text
    assert found == expected
    assert [len(rows) for rows in found.values()] == [3, 3, 2, 1, 2, 5, 3]


def test_older_ones_follow(service: Serving, tokens: dict[str, str]) -> None:
    """Page by page with the filter kept, and back to the newest."""
    query = "?confidence=certain&limit=3"
    seen: list[tuple[str, str, str]] = []
    pages = 0
    while query:
        page = get(service, tokens, "all", f"/observed{query}")
        seen += listed(page)
        pages += 1
        older = re.search(r'rel="next" href="/observed([^"]+)"', page.text)
        query = unescape(older[1]) if older else ""
        assert (">Newest</a>" in page.text) is (pages > 1)
    whole = listed(get(service, tokens, "all", "/observed"))
    assert (seen, pages, len(whole)) == (whole, 3, 8)


def test_what_is_wrong_with_the_filter_is_said_beside_it(
    service: Serving, tokens: dict[str, str]
) -> None:
    """The form keeps what was typed, and a cluster that is not there is named."""
    for query, told in (
        ("verdict=x", "`verdict`: not one of `same`"),
        ("since=someday&node=n1", "`since`: "),
        ("cluster=nowhere", "nowhere"),
        ("color=red", "`color`: "),
    ):
        answer = get(service, tokens, "all", f"/observed?{query}")
        assert (answer.status_code // 100, told in words(answer)) == (4, True), answer.text
        assert 'action="/observed"' in answer.text
    assert 'value="n1"' in get(service, tokens, "all", "/observed?since=someday&node=n1").text
    assert get(service, tokens, "all", "/observed/x").status_code == 404


def test_one_has_a_page(service: Serving, tokens: dict[str, str]) -> None:
    """What was done, how that is known, what the rules decide; candidates on request."""
    number = listed(get(service, tokens, "all", "/observed?verdict=order"))[0][0]
    page = get(service, tokens, "all", f"/observed/{number}").text
    words = " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
    for sentence in (
        "team-a/p13c (priority 10000) took w-6 from 2 pods",
        "Confidence certain: an event names the preemptor and the victim",
        "Verdict order : other victims, equal in priority and start time",
        "Victims team-a/scav-1-r2 , team-a/scav-2-r3 team-a/scav-2-r3 , team-a/scav-3-r4",
    ):
        assert sentence in words
    ran = re.findall(r'title="(\d+) s">([^<]*)<', page)
    victims = get(service, tokens, "all", f"/api/v1/observations/{number}").json()["victims"]
    assert ran == [(str(one["run_seconds"]), duration(one["run_seconds"])) for one in victims]
    links = set(re.findall(r'href="(/[^"#]*)"', page.partition("<main")[2]))
    assert {f"/observed?cluster={quote(ODD)}", "/nodes/w-6", "/workloads/team-a/p13c"} < links
    statuses = {link: get(service, tokens, "all", unescape(link)).status_code for link in links}
    assert statuses == dict.fromkeys(links, 200)
    assert 'aria-label="Candidates"' not in page
    again = get(service, tokens, "all", f"/observed/{number}?again=1").text
    table = again.partition('aria-label="Candidates">')[2].partition("</table>")[0]
    assert re.findall(r'href="/nodes/([^"]+)"', table) == ["w-6", "w-1", "w-4", "w-2", "w-3", "w-5"]


def test_the_overview_leads_to_those_of_each_cluster(
    service: Serving, tokens: dict[str, str]
) -> None:
    page = unescape(get(service, tokens, "all", "/").text)
    addresses = re.findall(r'href="(/observed\?cluster=[^"]+)">', page)
    found = {address: listed(get(service, tokens, "all", address)) for address in addresses}
    assert sorted({row for rows in found.values() for row in rows}) == sorted(
        listed(get(service, tokens, "all", "/observed"))
    )
    assert [{row[1:] for row in rows} for rows in found.values()] == [
        {(parse_qsl(urlsplit(address).query)[0][1], parse_qsl(urlsplit(address).query)[1][1])}
        for address in found
    ]
