"""Observed preemptions, for a viewer who is limited to namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.observed import VerdictClass
from tests.support import serving
from tests.support.live import LIVE
from tests.support.serving import Serving

OWN = "team-b"
OTHERS = ("prod/", "team-a/")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    db = serving.filled(str(tmp_path_factory.mktemp("observed") / "policy.db"))
    files = [str(LIVE / f"wave-kubelet.{end}.gz") for end in ("initial.json", "jsonl")]
    command = [sys.executable, "-m", "policy", "import", "--db", db, "--cluster", "real"]
    subprocess.run([*command, *files], check=True, capture_output=True)
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


def get(service: Serving, tokens: dict[str, str], who: str, path: str) -> Any:
    return service.get(path, headers={"Authorization": f"Bearer {tokens[who]}"})


def test_a_limited_viewer_sees_their_part(service: Serving, tokens: dict[str, str]) -> None:
    """What concerns their namespaces, and of that nothing about pods of others."""
    whole = get(service, tokens, "all", "/api/v1/observations").json()["observations"]
    answer = get(service, tokens, "own", "/api/v1/observations")
    expected = [
        (
            one["id"],
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
    """As the list shows it, and no decision made again; what does not concern them is not there."""
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]
    with Store.open(database) as store:
        numbers = [row.id for row in store.read.observations()]
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
        numbers = [row.id for row in store.read.observations()]

    def behind(number: int) -> list[int]:
        path = f"/api/v1/observations?after={number}"
        return [one["id"] for one in get(service, tokens, "own", path).json()["observations"]]

    found = {number: behind(number) for number in (*numbers, 99_999)}
    expected = {n: own[own.index(n) + 1 :] if n in own else [] for n in (*numbers, 99_999)}
    assert (found, len(own) < len(numbers)) == (expected, True)


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
    page = get(service, tokens, "own", "/observed?rules=kube-1.36").text
    first = get(service, tokens, "own", "/").text
    listed = get(service, tokens, "own", "/api/v1/observations").json()["observations"]
    assert [name for name in OTHERS if name in page + first] == []
    assert ("Set against" in page, page.count(f"{OWN}/")) == (
        False,
        sum(bool(one["preemptor"]) + len(one["victims"]) for one in listed),
    )
    linked = {name for name in VerdictClass if f"/observed?verdict={name}" in first}
    assert linked == {one["verdict"] for one in listed}
