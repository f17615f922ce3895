"""Pages about what was really evicted, of a record that holds a kept simulation beside it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from tests.contract.builders import NOW
from tests.contract.filled import fill, fill_more
from tests.contract.test_kept_simulations import KEPT, REAL, record_in
from tests.contract.test_ledger import tampering
from tests.support import serving
from tests.support.page_text import table, words
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`limited` sees namespace shop only, `other` none in which anything happened."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {
        name: file.create(name, Role.VIEWER, namespaces=spaces, now_ms=1)
        for name, spaces in (("viewer", None), ("limited", ["shop"]), ("other", ["other"]))
    }
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def serve(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, tokens: dict[str, str]
) -> Iterator[Callable[[int], Serving]]:
    """A service over a record of that instant."""
    services: list[Serving] = []

    def serve(now_ms: int) -> Serving:
        folder = tmp_path_factory.mktemp("simulated")
        path = folder / "policy.db"
        path.write_bytes(sqlite_template.read_bytes())
        with Store.open(str(path)) as store:
            for cluster in (REAL, KEPT):
                record_in(store, cluster, now_ms=now_ms)
        started = serving.serve(str(path), folder, "--tokens", tokens["file"], environment="")
        started.ready()
        services.append(started)
        return started

    yield serve
    assert [started.stop() for started in services] == [0] * len(services)


@pytest.fixture(scope="module")
def service(serve: Callable[[int], Serving]) -> Serving:
    return serve(NOW)


@pytest.fixture(scope="module")
def today(serve: Callable[[int], Serving]) -> Serving:
    """As the first page looks at it."""
    return serve(time.time_ns() // 1_000_000 - 1000)


@pytest.fixture
def got(service: Serving, tokens: dict[str, str]):
    return asking(service, tokens)


def asking(service: Serving, tokens: dict[str, str]):
    def asked(path: str, token: str = "viewer", **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {tokens[token]}"}
        return service.get(path, headers=headers, params=query or None)

    return asked


@pytest.mark.parametrize("token", ["viewer", "limited"])
def test_a_workload_was_evicted_where_it_is(got, token: str) -> None:
    """A simulation counts where its cluster is named, and is said to be one."""
    page = got("/workloads/shop/web", token)
    assert "2 times a victim, 2 of them evicted" in words(page)
    assert "Kept simulations are left out" in words(page)
    assert len({row[-1] for row in table(page, "Evictions")}) == 1  # of one decision
    lanes = table(page, "When its pods ran")
    assert [lane[0] for lane in lanes] == ["shop/web-2", "shop/web-1"]
    named = got("/workloads/shop/web", token, cluster=KEPT)
    assert "2 times a victim, 2 of them evicted" in words(named)
    assert f"Only cluster {KEPT}, a kept simulation: nothing of it took place" in words(named)
    assert {row[-1] for row in table(named, "Evictions")}.isdisjoint(
        row[-1] for row in table(page, "Evictions")
    )
    real = words(got("/workloads/shop/web", token, cluster=REAL))
    assert (f"Only cluster {REAL}." in real, "simulation" in real) == (True, False)


def test_a_node_had_no_simulated_past(got) -> None:
    """What was decided for it; its state in the simulation is said to be that."""

    def decisions(page: httpx.Response) -> set[str]:
        return set(re.findall(r'href="(/decisions/\d+)"', page.text.partition('id="past"')[2]))

    page = got("/nodes/n1")
    assert decisions(page) == {"/decisions/1"}
    assert f"Cluster {KEPT} (a kept simulation): pods on it now" in words(page)
    named = got("/nodes/n1", cluster=KEPT)
    assert decisions(named) == {"/decisions/2"}
    assert f"Cluster {REAL}" not in words(named)


def test_links_lead_to_what_was_simulated(got, tokens: dict[str, str]) -> None:
    """The pages of a workload and of a node have it where its cluster is named, as links do."""

    def places(page: httpx.Response) -> set[str]:
        return set(re.findall(r'href="(/(?:nodes|workloads)/[^"]*)"', page.text))

    def kept_to(found: set[str]) -> set[str]:
        return {address.partition("?")[2] for address in found}

    simulated = {f"cluster={KEPT}"}
    web = f"/workloads/shop/web-1?cluster={KEPT}"
    for token in ("viewer", "limited"):
        real, kept = (
            n if token == "viewer" else serving.shown(tokens["file"], Numbered.DECISION, n)
            for n in (1, 2)
        )
        assert web in places(got(f"/decisions/{kept}", token))
        assert kept_to(places(got(f"/decisions/{kept}", token))) == simulated
        assert kept_to(places(got(f"/decisions/{real}", token))) == {""}
        assert f"/decisions/{kept}" in got(web, token).text.partition('id="evictions"')[2]
    assert kept_to(places(got("/decisions", cluster=KEPT))) == simulated
    assert places(got("/decisions")) == {"/nodes/n1", f"/nodes/n1?cluster={KEPT}"}
    for path in ("/nodes/n1", "/workloads/shop/web"):
        assert kept_to(places(got(path, cluster=KEPT)) - {path}) == simulated  # all clusters
    by_other_rules = got("/compare", rules="kube-1.36", cluster=KEPT, n="1", open="2")
    assert kept_to(places(by_other_rules)) == simulated


def test_the_newest_are_judged_without_it(got) -> None:
    """Unless its cluster is named."""
    assert "1 of 1 would have been decided otherwise" in words(got("/compare", rules="kube-1.36"))
    named = got("/compare", rules="kube-1.36", cluster=KEPT)
    assert re.findall(r"open=(\d+)", got("/compare", rules="kube-1.36").text) == ["1"]
    assert re.findall(r"open=(\d+)", named.text) == ["2"]


def test_the_first_page_lists_what_took_place(got) -> None:
    """Its newest decisions are not those of a simulation, unless its cluster is named."""

    def newest(**query: str) -> set[str]:
        return set(re.findall(r'href="/decisions/(\d+)"', got("/", **query).text))

    assert newest() == newest(cluster=REAL) == {"1"}
    assert newest(cluster=KEPT) == {"2"}


def test_the_first_page_counts_what_took_place(today: Serving, tokens: dict[str, str]) -> None:
    """Each number leads to a list with as many; the simulation counts on its own line alone."""
    got = asking(today, tokens)
    page = got("/", days="7")
    assert "Preemptions in the last 7 days: 2" in words(page)
    assert "Victims that violate a disruption budget: 1" in words(page)
    assert "Kept simulations are left out of all figures but those of their own lines" in words(
        page
    )
    assert [line[:2] for line in table(page, "Clusters")] == [[KEPT, "2"], [REAL, "2"]]
    leading = re.findall(r'<a href="(/decisions\?[^"]*)"[^>]*><span class="outcome', page.text)
    assert [unescape(one).partition("&")[0] for one in leading] == ["/decisions?simulated=left-out"]
    for address in (unescape(one) for one in leading):
        assert re.findall(r'<td class="number"><a href="(/decisions/\d+)"', got(address).text) == [
            "/decisions/1"
        ]
    named = got("/", days="7", cluster=KEPT).text
    counted = re.findall(r'href="(/decisions\?[^"]*since=[^"]*|/workloads/[^"]*)"', named)
    assert len(counted) > 3
    assert [one for one in counted if f"cluster={KEPT}" not in one] == []
    assert f'href="/decisions?cluster={KEPT}">All decisions' in named


def test_a_list_leaves_it_out_on_request(got) -> None:
    """The page with its bars, the API and the exports; a named cluster is listed all the same."""
    start = {"since": "2026-01-01T00:00:00Z"}
    out = {**start, "simulated": "left-out"}
    for path in ("/api/v1/decisions", "/api/v1/export/decisions"):
        found = [got(path, **given).text.count('"preemptor"') for given in (start, out)]
        assert found == [2, 1]
        assert got(path, **out, cluster=KEPT).text.count('"preemptor"') == 1
    titles = {
        name: re.search(r"<h2>(.*?)</h2>", got("/decisions", **given).text).group(1)
        for name, given in (
            ("all", start),
            ("left out", out),
            ("of origin", {**start, "origin": "simulated"}),
            ("of cluster", {**out, "cluster": KEPT}),
        )
    }
    assert titles == {
        "all": "Decisions per day: 2",
        "left out": "Decisions per day: 1",
        "of origin": "Decisions per day: 1",
        "of cluster": "Decisions per day: 1",
    }
    refused = got("/api/v1/decisions", simulated="no")
    assert (refused.status_code, "left-out" in refused.json()["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({}, "that took place, and of those in kept simulations:"),
        ({"simulated": "left-out"}, "that took place:"),
        ({"origin": "decided"}, "that took place:"),
        ({"origin": "simulated"}, "that took place in kept simulations:"),
        ({"cluster": KEPT}, "that took place in a kept simulation:"),
        ({"cluster": REAL}, "that took place:"),
    ],
)
def test_bars_say_what_they_count(got, given: dict[str, str], where: str) -> None:
    assert f"Whole hours (UTC) of preemptions {where}" in words(got("/decisions", **given))


def test_a_limited_viewer_is_told_what_counts(today: Serving, tokens: dict[str, str]) -> None:
    got = asking(today, tokens)
    text = words(got("/", "limited", days="7"))
    assert "Preemptions in the last 7 days: 1" in text
    assert "Preemptions and outcomes are those of decisions about single pods." in text


def test_a_limited_viewer_is_told_of_no_cluster(got) -> None:
    """One in which nothing concerns them, a simulation or not, is as one that is not there."""

    def shown(cluster: str) -> tuple[int, str]:
        page = got("/workloads/other/web", "other", cluster=cluster)
        return page.status_code, page.text.replace(cluster, "it")

    assert shown(KEPT) == shown(REAL) == shown("no-such-cluster")
    assert got("/workloads/shop/web", cluster="no-such-cluster").status_code == 404


def test_changed_rows_of_a_simulation_are_said_to_be_damaged(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """As those of sessions are: no internal error, whatever stands in place of the result."""
    path = tmp_path / "policy.db"
    path.write_bytes(sqlite_template.read_bytes())
    changed = ("{}", "no JSON", "[]")
    with Store.open(str(path)) as store:
        for cluster in ("one", "two", "three"):
            fill(store, cluster)
            fill_more(store, cluster)
    with tampering(str(path)) as connection:
        for number, result in enumerate(changed, start=1):
            update = text("UPDATE simulations SET result = :result WHERE id = :id")
            assert connection.execute(update, {"result": result, "id": number}).rowcount == 1
        connection.commit()
    started = serving.serve(str(path), tmp_path, environment="")
    try:
        started.ready()
        pages = [started.get(f"/simulations/{n}") for n in range(1, len(changed) + 1)]
    finally:
        assert started.stop() == 0
    found = [(page.status_code, "is not that of a simulation" in page.text) for page in pages]
    assert found == [(500, True)] * len(changed)
    assert "Traceback" not in started.log.read_text()
