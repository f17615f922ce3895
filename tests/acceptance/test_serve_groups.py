"""Cycles of pod groups in the service: their list, one of them whole, and other rules for them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from sqlalchemy import text

from policy import RuleSet
from policy.cli.app import run
from policy.cluster import canonical, times
from policy.cluster.snapshot import Snapshot
from policy.groups.decide import decide_group
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.contract.test_ledger import tampering
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.groups import a_group, of_group
from tests.support.page_text import table, words
from tests.support.serving import Serving

AT = times.to_text(serving.NOW_MS)
LATER = times.to_text(serving.NOW_MS + 1)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """The record of one cycle, in which a gang of one preempted.

    Environments: prod, whose rules know of no groups, and gangs.
    """
    path = str(tmp_path_factory.mktemp("groups") / "policy.db")
    shutil.copy(sqlite_template, path)
    parts = objects(
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4).started(60)),
        of_group(a_pod("train-0").priority(50).cpu(4), "train"),
        a_group("train", priority=100, least=1),
    )
    with Store.open(path) as store:
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36")
        store.record.create_environment("gangs", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36-groups", environment="gangs")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36-groups")
        Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0).decide_group(
            "default/train"
        )
    return path


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, db: str) -> Iterator[Serving]:
    started = serving.serve(db, tmp_path_factory.mktemp("served"))
    started.ready()
    yield started
    assert started.stop() == 0


def api(service: Serving, path: str) -> dict[str, Any]:
    found = service.get(f"/api/v1{path}")
    assert found.status_code == 200, found.text
    document: dict[str, Any] = found.json()
    return document


def test_cycles_are_listed(service: Serving) -> None:
    (line,) = api(service, "/groups")["groups"]
    assert {**line, "now": ""} == {
        "id": 1,
        "now": "",
        "group": "default/train",
        "outcome": "preempting",
        "bound": 0,
        "evicted": 1,
        "rule_set": "kube-1.36-groups",
        "cluster": "default",
    }


def test_the_last_page_names_no_next_one(service: Serving) -> None:
    """Although it is full."""
    only = service.get("/api/v1/groups?limit=1")
    assert (len(only.json()["groups"]), "Link" in only.headers) == (1, False)
    assert api(service, "/groups?limit=1&after=1") == {"groups": []}


def test_one_cycle_is_whole(service: Serving) -> None:
    found = api(service, "/groups/1")
    assert [unit["pods"] for unit in found["preemption"]["units"]] == [["default/low"]]
    assert [victim["pod"] for victim in found["victims"]] == ["default/low"]
    assert (found["members"][0]["pod"], found["actor"]) == ("default/train-0", "ann")


@pytest.mark.parametrize("wanted", ["2", "0", "x", "-1", "99999999999999999999", "1e0"])
def test_what_is_no_cycle_is_not_found(service: Serving, wanted: str) -> None:
    assert service.get(f"/api/v1/groups/{wanted}").status_code == 404
    assert service.get(f"/groups/{wanted}").status_code == 404


def test_other_rules_for_cycles(service: Serving) -> None:
    """`groups-safe` promises the room; rules without groups cannot judge the cycle."""

    def compared(rules: str) -> Any:
        body = {"rules": rules, "groups": [1]}
        found = service.client.post(f"{service.url}/api/v1/compare", json=body)
        assert found.status_code == 200, found.text
        return found.json()["decisions"]

    (safe,), (kube,) = compared("groups-safe"), compared("kube-1.36")
    assert (safe["id"], safe["change"]) == ("group:1", "other-nominations")
    assert (kube["id"], kube["skipped"]) == ("group:1", ["pod-groups"])


def decided(service: Serving, **body: Any) -> tuple[int, Any]:
    found = service.client.post(f"{service.url}/api/v1/decide", json=body)
    return found.status_code, found.json()


def test_members_are_decided_with_their_group(service: Serving, db: str) -> None:
    """As everywhere, where the rules schedule groups: of the state, and of a manifest."""
    status, found = decided(service, environment="gangs", pod="train-0")
    rules = RuleSet.load("kube-1.36-groups")
    with Store.open(db, read_only=True) as store:
        loaded = store.state.load("default")
    snapshot = Snapshot.from_objects(
        loaded.objects, now_ms=found["now_ms"], state_digest=loaded.state_digest
    )
    expected = decide_group(snapshot, rules, "default/train", seed=0)
    assert status == 200
    assert found == {
        **canonical.parse(expected.canonical.decode()),
        "now": times.to_text(found["now_ms"]),
        "cluster": "default",
        "environment": "gangs",
        "base_revision": loaded.revision,
        "digest": expected.digest,
    }
    member = {
        "metadata": {"name": "train-1", "namespace": "default"},
        "spec": {
            "priority": 100,
            "containers": [{"name": "c"}],
            "schedulingGroup": {"podGroupName": "train"},
        },
    }
    status, found = decided(service, environment="gangs", manifest=member)
    assert (status, found["group"]) == (200, "default/train")
    assert [one["pod"] for one in found["members"]] == ["default/train-1", "default/train-0"]


def test_others_are_decided_by_themselves(service: Serving) -> None:
    """Where rules know of no groups, pods without one, and what cannot be decided."""
    status, found = decided(service, environment="prod", pod="train-0")
    assert (status, found["preemptor"]) == (200, "default/train-0")
    alone = {"metadata": {"name": "alone"}, "spec": {"containers": [{"name": "c"}]}}
    status, found = decided(service, environment="gangs", manifest=alone)
    assert (status, found["preemptor"]) == (200, "default/alone")
    assert [decided(service, environment="gangs", pod=pod)[0] for pod in ("low", "none")] == [
        409,
        409,
    ]


def test_a_comparison_needs_something(service: Serving) -> None:
    found = service.client.post(f"{service.url}/api/v1/compare", json={"rules": "kube-1.36"})
    assert (found.status_code, "give `ids`, `groups` or both" in found.text) == (400, True)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/groups", "default/train"),
        ("/groups/1", "Units, in the order in which they were put back"),
        ("/groups/1", "default/low"),
        ("/compare?rules=groups-safe", "/groups/1"),
        ("/decisions", 'href="/groups"'),
    ],
)
def test_pages_show_cycles(service: Serving, path: str, shown: str) -> None:
    found = service.get(path)
    assert (found.status_code, shown in found.text) == (200, True)


@pytest.mark.parametrize(
    "path", ["/compare?rules=kube-1.36", "/compare?rules=kube-1.36&open=group:1"]
)
def test_why_a_cycle_cannot_be_judged_has_its_code_set_as_code(service: Serving, path: str) -> None:
    """The name of the rule set stood in backquotes, which are of the command line."""
    found = service.get(path).text
    said = re.findall(r": ([^:]*does not schedule pod groups[^<]*)<", found)
    assert {re.sub(r"\.$", "", one) for one in said} == {
        "rule set <code>kube-1.36</code> does not schedule pod groups"
    }
    assert "`" not in found


def test_the_page_of_a_cycle_begins_with_how_it_ended(service: Serving) -> None:
    """And leads to its pods, its node and its cluster."""
    page = service.get("/groups/1").text
    assert '<p class="sentence">default/train preempts 1 pod</p>' in page
    assert "1 member tried" in page
    assert "Preemption: victims were found; 1 unit may leave; passes run: " in page
    links = set(re.findall(r'href="(/[^"#]*)"', page.partition("<main")[2]))
    expected = {
        *("/workloads/default/train-0", "/workloads/default/low", "/nodes/n1"),
        *("/groups?cluster=default", "/groups?group=default/train", "/api/v1/groups/1"),
    }
    assert expected <= links
    assert {link: service.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_cycles_of_one_cluster_are_listed(service: Serving) -> None:
    listed = service.get("/groups?cluster=default").text
    assert ("default/train" in listed, "/export/groups?cluster=default" in listed) == (True, True)
    assert service.get("/groups?cluster=nowhere").status_code == 404


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ("", 1),
        ("group=default/train", 1),
        ("group=train", 1),
        ("group=default/other", 0),
        ("outcome=preempting", 1),
        ("outcome=scheduled", 0),
        (f"since={AT}", 1),
        (f"until={AT}", 0),
        (f"cluster=default&group=train&outcome=preempting&since={AT}&until={LATER}", 1),
    ],
)
def test_cycles_are_found(service: Serving, asked: str, count: int) -> None:
    """By group, outcome and time; the list, its export and the page find the same."""
    assert len(api(service, f"/groups?{asked}")["groups"]) == count
    assert len(service.get(f"/api/v1/export/groups?{asked}").text.splitlines()) == count
    page = service.get(f"/groups?{asked}")
    assert (page.status_code, page.text.count('<a href="/groups/1">')) == (200, count)
    assert ("No cycle matches" in page.text) == (not count)
    exported = re.findall(r'href="/api/v1/export/groups([^"]*)"', page.text)
    assert [dict(parse_qsl(unescape(one)[1:])) for one in exported] == [
        dict(parse_qsl(asked)) for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("since=yesterdy", "`yesterdy` is not a time"),
        ("outcome=preempt", "`outcome`"),
        ("team=a", "`team`"),
        ("after=x", "`after`"),
        ("cluster=nowhere", "`nowhere`"),
    ],
)
def test_a_filter_that_is_wrong_can_be_mended(service: Serving, asked: str, said: str) -> None:
    """The error is in the place of the list, as it is an error of the API."""
    name, _, value = asked.partition("=")
    problem, page = service.get(f"/api/v1/groups?{asked}"), service.get(f"/groups?{asked}")
    assert page.status_code == problem.status_code
    assert 400 <= page.status_code < 500
    assert said in problem.json()["detail"]
    assert said in words(page)
    assert 'role="alert"' in page.text
    if name in ("since", "cluster"):
        assert f'name="{name}" value="{value}"' in page.text


def test_a_cycle_that_was_only_asked_evicted_nothing(service: Serving, db: str) -> None:
    """Its page says so of each victim, beside that of the cycle that was made."""
    assert run(["what-if", "--db", db, "--at", "group:1", "--record"]) == 0
    evicted = [table(service.get(f"/groups/{number}"), "Victims")[0][-1] for number in (1, 2)]
    assert evicted == ["yes", "no"]


@pytest.mark.parametrize("document", ["no JSON", "[]", '{"decision": []}', '{"decision": {}}'])
def test_changed_rows_of_a_cycle_are_said_to_be_damaged(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str
) -> None:
    """By the command, the API and the page alike."""
    path = tmp_path / "policy.db"
    shutil.copy(db, path)
    with tampering(str(path)) as connection:
        changed = text("UPDATE sessions SET document = :document")
        assert connection.execute(changed, {"document": document}).rowcount
        connection.commit()
    said = "the rows of session 1 are not those of a session"
    capsys.readouterr()
    assert run(["explain", "group:1", "--db", str(path)]) == 1
    assert said in capsys.readouterr().err
    started = serving.serve(str(path), tmp_path, environment="")
    try:
        started.ready()
        told, page = started.get("/api/v1/groups/1"), started.get("/groups/1")
    finally:
        started.stop()
    assert (told.status_code, said in told.json()["detail"]) == (500, True)
    assert (page.status_code, said in unescape(page.text)) == (500, True)
