"""A page that is full, behind which there is nothing more, leads to no other one."""

from __future__ import annotations

import shutil
from pathlib import Path

from policy import RuleSet
from policy.cluster.snapshot import Snapshot
from policy.decision.record import record_of
from policy.preemption.decide import decide
from policy.store import Store
from policy.store.record.decisions import DecidedPod
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.page_text import words
from tests.support.serving import Serving

RULES = RuleSet.load("kube-1.36")
PAGE = 50
"""Decisions of a page."""


def preempted(url: str, count: int) -> None:
    """So many decisions that take `low` from node n1."""
    with Store.open(url) as store:
        state = store.state.load("default")
        snapshot = Snapshot.from_objects(
            state.objects, now_ms=serving.NOW_MS, state_digest=state.state_digest
        )
        made = record_of(decide(snapshot, RULES, "default/high"))
        store.record.decision_group(
            "default",
            [DecidedPod(record=made, changes=[], at_ms=serving.NOW_MS)] * count,
            expected_revision=state.revision,
            rules=RULES,
            actor="test",
        )


def more(service: Serving) -> dict[str, bool]:
    """Whether there is said to be more than the page has, in the API and on pages."""
    listed = service.get("/api/v1/decisions", params={"limit": PAGE})
    assert len(listed.json()["decisions"]) == PAGE
    return {
        "api": "next" in listed.links,
        "decisions": 'rel="next"' in service.get("/decisions").text,
        "workload": 'rel="next"' in service.get("/workloads/default/low").text,
        "node": f"the newest {PAGE} decisions" in service.get("/nodes/n1").text,
    }


def test_there_is_more_where_something_is_on_it(tmp_path: Path, sqlite_template: Path) -> None:
    """With a page of decisions there is no other one; with one decision more there is."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    parts = objects(
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4).started(60)),
        a_pod("high").priority(9).cpu(4),
    )
    with Store.open(db) as store:
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
    preempted(db, PAGE)
    service = serving.serve(db, tmp_path, environment="")
    full = more(service)
    preempted(db, 1)
    beyond = more(service)
    assert service.stop() == 0
    names = ("api", "decisions", "workload", "node")
    assert (full, beyond) == (dict.fromkeys(names, False), dict.fromkeys(names, True))


def test_an_empty_record_is_no_list_without_matches(tmp_path: Path, sqlite_template: Path) -> None:
    """Where nothing was left out by a condition, none is to be taken away."""
    db = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, db)
    service = serving.serve(db, tmp_path, environment="")
    found = [words(service.get(path)) for path in ("/decisions", "/decisions?outcome=bind")]
    assert service.stop() == 0
    none = "No decision is recorded yet. `policy preempt`, `policy run` and calls of the extender"
    assert [(none in page, "Take a condition away" in page) for page in found] == [
        (True, False),
        (False, True),
    ]
