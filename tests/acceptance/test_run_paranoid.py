"""`policy run --paranoid N`: each way to run makes every N-th of its decisions again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision
from policy.rules import RuleSet
from policy.scheduling import cycle
from policy.scheduling.second_look import DecisionsDiffer, look_again
from tests.acceptance.commands import NOW, Policy, a_node, a_pod

PODS = 24
KINDS = 5
NODES = 12
CLUSTER = [
    *(a_node(f"n{n:02}") for n in range(NODES)),
    *(
        a_pod(f"shop/low-{n:02}-{i}", f"n{n:02}", i, 2, f"2026-11-20T1{i}:00:00Z")
        for n in range(NODES)
        for i in range(2)
    ),
    *(a_pod(f"shop/new-{i:02}", "", 10 + i % KINDS, 1 + i % 3) for i in range(PODS)),
]
WAYS = {
    "groups": (),
    "dry": ("--dry-run",),
    "settled": ("--settle",),
}


@pytest.fixture
def filled(policy: Policy, database_url: str, tmp_path: Path) -> str:
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps({"kind": "List", "items": CLUSTER}))
    assert policy("import", "--db", database_url, dump).status == 0
    return database_url


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods whose decisions were made again, in their order."""
    pods: list[str] = []

    def noted(snapshot: Snapshot, rules: RuleSet, decision: Decision) -> None:
        pods.append(decision.preemptor)
        look_again(snapshot, rules, decision)

    monkeypatch.setattr(cycle, "look_again", noted)
    return pods


@pytest.mark.parametrize("way", WAYS)
def test_every_nth_decision_of_a_run_is_made_again(
    way: str, policy: Policy, filled: str, looked_at: list[str]
) -> None:
    """A stream of five kinds of pods: none differs, and every third one was looked at."""
    command = ("run", "--db", filled, "--now", NOW, "--paranoid", 3, *WAYS[way])
    done = policy(*command, "--output", "json")
    decided = [one["preemptor"] for one in json.loads(done.out)]
    assert done.status == 0, done.err
    assert len(decided) >= PODS
    assert looked_at == decided[2::3]


def test_none_is_made_again_without_the_option(
    policy: Policy, filled: str, looked_at: list[str]
) -> None:
    assert policy("run", "--db", filled, "--now", NOW).status == 0
    assert looked_at == []


def test_a_decision_that_differs_ends_the_run(
    policy: Policy, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was recorded before it is printed; its own pod is in no row."""
    seen = 0

    def differs(snapshot: Snapshot, rules: RuleSet, decision: Decision) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise DecisionsDiffer(f"the decision for `{decision.preemptor}` is another one")

    monkeypatch.setattr(cycle, "look_again", differs)
    done = policy("run", "--db", filled, "--now", NOW, "--paranoid", 4, "--output", "json")
    recorded = policy("decisions", "--db", filled, "--output", "json", "--limit", PODS)
    assert done.status != 0
    assert "is another one" in done.err
    assert "this is a defect of the program" in done.err
    assert len(json.loads(recorded.out)) == 7
