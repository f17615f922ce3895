"""A shipped rule set has the name that asks for it, and the one under which it is recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.acceptance.commands import Policy
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.page_text import words
from tests.support.serving import Serving

MEANT = "did you mean `environments/prod`?"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Decision 1 of environments/prod, and 2 of kube-1.36; environments/prod is active."""
    path = str(tmp_path_factory.mktemp("names") / "policy.db")
    shutil.copy(sqlite_template, path)
    cluster = objects(a_node("n0").cpu(4), a_pod("one").cpu(1), a_pod("two").cpu(1))
    with Store.open(path) as store:
        store.record.import_objects("default", cluster, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "environments/prod")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        for rules, pod in (("environments/prod", "default/one"), ("kube-1.36", "default/two")):
            scheduler = Scheduler(
                journal, RuleSet.load(rules), clock=lambda: serving.NOW_MS, seed=0
            )
            scheduler.decide(pod)
    return path


@pytest.fixture(scope="module")
def service(db: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    started = serving.serve(db, tmp_path_factory.mktemp("served"))
    yield started
    assert started.stop() == 0


def listed(lines: Iterable[Any]) -> list[int]:
    return [line["id"] for line in lines]


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "--rules", "prod"),
        ("rules", "explain", "prod"),
        ("rules", "show", "prod"),
        ("rules", "diff", "kube-1.36", "prod"),
        ("env", "activate", "prod", "prod", "--reason", "x"),
    ],
    ids=" ".join,
)
def test_commands_name_the_one_that_calls_itself_so(
    policy: Policy, db: str, arguments: tuple[str, ...]
) -> None:
    at = () if arguments[:2] == ("rules", "diff") else ("--db", db)
    done = policy(*arguments, *at)
    assert (done.status, done.err) == (1, f"prod: no shipped rule set `prod`\n  help: {MEANT}\n")


def test_the_service_names_the_one_that_calls_itself_so(service: Serving) -> None:
    body = {"rules": "prod", "reason": "x"}
    activations = f"{service.url}/api/v1/environments/prod/activations"
    answers = [
        service.get("/api/v1/rule-sets/prod"),
        service.get("/api/v1/rule-sets/kube-1.36/diff/prod"),
        service.client.post(activations, json=body, headers={"Idempotency-Key": "1"}),
    ]
    expected = (404, "there is no shipped rule set `prod`", MEANT)
    for answer in answers:
        said = answer.json()
        assert (answer.status_code, said["detail"], said["help"]) == expected
    assert MEANT in words(service.get("/environments/prod?candidate=prod"))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [("environments/prod", [1]), ("prod", [1]), ("kube-1.36", [2]), ("environments/dev", [])],
)
def test_either_name_finds_the_decisions(
    service: Serving, policy: Policy, db: str, rules: str, expected: list[int]
) -> None:
    """In the list, its bars, its export, and on the command line."""
    query = {"rules": rules}
    done = policy("decisions", "--db", db, "--rules", rules, "-o", "json")
    assert listed(json.loads(done.out)) == expected
    answer = service.get("/api/v1/decisions", params=query)
    assert listed(answer.json()["decisions"]) == expected
    lines = service.get("/api/v1/export/decisions", params=query).text.splitlines()
    assert listed(map(json.loads, lines)) == expected
    shown = words(service.get("/decisions", params={**query, "since": "2026-01-01"}))
    assert f"Decisions per day: {len(expected)}" in shown
    used = policy("rules", "coverage", rules, "--db", db)
    assert used.err.count("made 1 decision (sha256:") == len(expected)
