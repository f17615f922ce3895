"""Pages, API and commands about a preemption that the service answered and a follower saw."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.cli.app import run
from policy.decision.model import Outcome
from policy.store import Store
from policy.store.model.decisions import CallMode
from tests.support import serving
from tests.support.answered import answer, fill, observe, offer
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("answered") / "policy.db")
    with Store.open(url) as store:
        fill(store)
        answer(store)
        observe(store, "a")
    return url


@pytest.fixture(scope="module")
def service(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    started = serving.serve(database, tmp_path_factory.mktemp("service"))
    started.ready()
    yield started
    assert started.stop() == 0


def test_the_pages_lead_to_the_decision(service: Serving) -> None:
    """The list, and the page of the observation, which decides nothing again."""
    listed, one = (service.get(path).text for path in ("/observed", "/observed/1?again=1"))
    assert '<td>answered</td><td class="names"><a href="/decisions/1">decision 1</a>' in listed
    assert '<dt>Decision</dt><dd><a href="/decisions/1">1</a></dd>' in one
    assert "Candidates of the rules" not in one


def test_the_export_says_what_was_answered(service: Serving) -> None:
    """In the last column, as the lines of JSON have it."""
    line = service.get("/api/v1/export/decisions").json()
    head, *rows = service.get("/api/v1/export/decisions.csv").text.splitlines()
    assert head.endswith(",rule_set,origin,answer")
    assert [row.rpartition(",")[2] for row in rows] == [line["answer"]] == ["chosen"]


def test_the_workload_was_hit_once(service: Serving) -> None:
    """By the decision."""
    page = service.get("/workloads/shop/a").text
    assert set(re.findall(r'href="/(decisions/\d+|observed/\d+)"', page)) == {"decisions/1"}


def test_the_api_says_which_decision_it_is(service: Serving) -> None:
    """As the filter finds it."""
    found = service.get("/api/v1/observations?verdict=answered").json()["observations"]
    assert [(o["id"], o["reason"], o["detail"]) for o in found] == [
        (1, "decision 1", {"decision": 1})
    ]


def test_commands(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`policy explain` refers to the decision, `policy who` tells of one eviction."""
    assert run(["explain", "observed:1", "--db", database]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "`policy explain 1` says why: it is what decision 1 answered"
    assert run(["who", "shop/a", "--db", database]) == 0
    assert "1 eviction of pod shop/a" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mode", "otherwise"), [(CallMode.ENFORCE, False), (CallMode.SHADOW, True)]
)
def test_a_refusal_that_changes_nothing_is_what_was_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: CallMode, otherwise: bool
) -> None:
    """The pod was unschedulable before: the second refusal leads to no revision."""
    url = str(tmp_path / "policy.db")
    with Store.open(url) as store:
        fill(store)
        outcomes = [offer(store, "unknown", mode=mode).outcome for _ in "12"]
        assert (outcomes, store.read.decision(2).row.revision) == ([Outcome.NO_CANDIDATE] * 2, None)
    assert run(["explain", "2", "--db", url]) == 0
    text = capsys.readouterr().out
    assert ("the scheduler was answered otherwise" in text) is otherwise


def test_the_health_of_the_cluster(service: Serving) -> None:
    """What the service answered is no decision of the cluster's own scheduler."""
    (cluster,) = service.get("/api/v1/overview").json()["clusters"]
    assert (cluster["observed"], cluster["verdicts"]) == (0, {"answered": 1})
