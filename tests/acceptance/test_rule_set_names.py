"""A shipped rule set has the name that asks for it, and the one under which it is recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.audit.rule_sets import canonical_of
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import InvalidValue, Store
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


SHORT = "`sha256:637` is too short for the beginning of a digest"
LONGER = "give `sha256:` and 4 to 64 of its hexadecimal digits, in lower case"


def test_a_shipped_rule_set_is_found_by_its_digest(policy: Policy, tmp_path: Path, db: str) -> None:
    """Whole, it needs no database; the beginning of one may be that of a stored one, too."""
    digest = RuleSet.load("kube-1.14").digest
    text = policy("rules", "show", "kube-1.14").out
    for wanted, at in ((digest, tmp_path / "none.db"), (digest[:15], db)):
        done = policy("rules", "show", wanted, "--db", at)
        assert (done.status, done.out, done.err) == (0, text, f"{digest}\n")


def test_a_digest_that_several_begin_with_is_refused() -> None:
    """A shipped rule set and one of the database are looked for together."""
    digest = RuleSet.load("kube-1.14").digest
    with pytest.raises(InvalidValue, match="is the beginning of more than one digest"):
        canonical_of(digest[:12], lambda _: "another")
    assert canonical_of(digest, lambda _: "another") == RuleSet.load("kube-1.14").canonical


@pytest.mark.parametrize(
    "arguments",
    [
        ("decisions", "--rules", "sha256:637"),
        ("rules", "coverage", "sha256:637"),
        ("rules", "show", "sha256:637"),
        ("compare", "--rules", "sha256:637"),
        ("rules", "prove", "sha256:637"),
    ],
    ids=" ".join,
)
def test_commands_refuse_a_digest_that_is_too_short(
    policy: Policy, db: str, arguments: tuple[str, ...]
) -> None:
    done = policy(*arguments, "--db", db)
    assert (done.status, done.err) == (1, f"{SHORT}\n  help: {LONGER}\n")


def test_the_service_refuses_a_digest_that_is_too_short(service: Serving) -> None:
    """As a filter and as a name, in the API and on pages; what is no digest in other words."""
    for path in ("/decisions?rules=", "/export/decisions?rules=", "/rule-sets/"):
        for wanted, said in (
            ("sha256:637", SHORT),
            ("sha256:", "`sha256:` is too short for the beginning of a digest"),
            ("sha256:63x7", "`sha256:63x7` is not the beginning of a digest"),
        ):
            answer = service.get(f"/api/v1{path}{wanted}")
            assert (answer.status_code, answer.json()["help"]) == (400, LONGER)
            assert answer.json()["detail"].removeprefix("query: `rules`: ") == said
    for path in ("/decisions?rules=", "/compare?rules=", "/rules/"):
        page = service.get(f"{path}sha256:637")
        assert (page.status_code, SHORT in words(page)) == (400, True)
    assert SHORT in words(service.get("/decisions/1?rules=sha256:637"))
    digest = RuleSet.load("environments/prod").digest
    found = service.get("/api/v1/decisions", params={"rules": digest[:11]})
    assert listed(found.json()["decisions"]) == [1]


def test_a_filter_of_the_api_is_not_empty(service: Serving) -> None:
    """A form of the pages sends the fields that are empty, which are none there."""
    names = "cluster since until namespace node rules preemptor pod victim workload outcome origin"
    for name in names.split():
        answer = service.get(f"/api/v1/decisions?{name}=")
        assert (answer.status_code, f"`{name}`" in answer.json()["detail"]) == (400, True)
        assert service.get(f"/decisions?{name}=").status_code == 200
    for path in (
        "observations?pod=",
        "groups?group=",
        "overview?cluster=",
        "export/sessions?since=",
    ):
        assert "it is empty" in service.get(f"/api/v1/{path}").json()["detail"]
