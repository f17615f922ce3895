"""Tuning: the rule file of every choice, parts of traces, and figures as numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.cluster import canonical
from policy.cluster.objects import Node, ObjectMeta
from policy.rules import RuleSet
from policy.simulation.trace import Trace, TraceError, TraceEvent, TracePod
from policy.simulation.tuning.candidate import Space
from policy.simulation.tuning.figures import value
from policy.simulation.tuning.spec import Study, Tuning, part
from tests.support.builders import a_pod

CRITERIA = ["lowest-top-priority", "lowest-priority-sum", "fewest-victims", "latest-start"]


def a_space(**vary: object) -> Space:
    spec = Tuning.model_validate(
        {
            "apiVersion": "policy/v1",
            "kind": "Tuning",
            "metadata": {"name": "t"},
            "base": "kube-1.36",
            "vary": vary,
            "training": [{"workload": "w"}],
            "minimise": ["lost work"],
        }
    )
    return Space.of(Study(spec=spec, folder=Path(), training=[], judging=[]))


def test_every_order_of_criteria_is_the_one_that_was_chosen() -> None:
    """Also those in which all of them move; the others stay where they are."""
    space = a_space(ranking=CRITERIA)
    for order in space.orders:
        rules = space.rule_set({"ranking": order}, "t")
        assert [c.id for c in rules.ranking] == [
            "fewest-pdb-violations",
            *order.split(" > "),
            "by-name",
        ]
    assert len(space.orders) == 24


def test_a_number_stands_in_its_rule_and_in_its_reason() -> None:
    """A time is written as rules write it; nothing else of the rule changes."""
    number = {"name": "rest", "rule": "cooldown", "text": "15m", "from": "5m", "to": "2h"}
    space = a_space(include=["cooldown"], numbers=[number])
    rules = space.rule_set({"include cooldown": True, "rest": 5400}, "t")
    (found,) = [r for r in rules.victims.forbid if r.id == "cooldown"]
    shipped = next(r for r in RuleSet.load("cooldown").victims.forbid if r.id == "cooldown")
    assert found.when is not None
    assert shipped.when is not None
    assert found.when.source == shipped.when.source.replace("15m", "90m")
    assert found.reason == f"{shipped.reason} (15m is 90m here)"


def test_a_file_beside_the_tuning_file_is_no_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tuning file is read from its own folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rules.yaml").write_text(
        "apiVersion: policy/v1\n"
        "kind: PreemptionRules\n"
        "metadata: {name: mine}\n"
        "extends: kube-1.36\n"
        "spec: {ranking: {remove: [latest-start]}}\n"
    )
    space = a_space(include=["./mine"])
    rules = space.rule_set({"include ./mine": True}, "t")
    assert "latest-start" not in [c.id for c in rules.ranking]
    assert "latest-start" in [c.id for c in space.base.ranking]


def test_the_unchanged_choice_is_the_base() -> None:
    """Under another name, and with no other difference."""
    space = a_space(include=["cooldown", "max-victims"], ranking=CRITERIA)
    rules = space.rule_set(space.unchanged(), "kube-1.36")
    assert rules.canonical == RuleSet.load("kube-1.36").canonical
    assert space.changes(space.unchanged()) == 0
    assert canonical.digest(rules.canonical) == canonical.digest(space.base.canonical)


def test_a_part_of_a_trace_begins_with_the_nodes_of_then_and_no_pods_of_before() -> None:
    """What changed before has changed; what comes later is not part of it."""

    def node(name: str) -> Node:
        return Node(metadata=ObjectMeta(name=name))

    def task(name: str, at: int) -> TracePod:
        return TracePod(pod=a_pod(name).pod, arrives_ms=at, work_ms=1)

    whole = Trace(
        name="t",
        start_ms=1000,
        end_ms=9000,
        objects=[node("a"), node("b")],
        tasks=[task("x", 1000), task("y", 4000), task("z", 6000)],
        events=[
            TraceEvent(at_ms=2000, change=("Node", "a", None)),
            TraceEvent(at_ms=2500, change=("Node", "c", node("c"))),
            TraceEvent(at_ms=5000, change=("Node", "b", None)),
        ],
    )
    found = part(whole, 2000, 5000)
    assert (found.start_ms, found.end_ms) == (3000, 6000)
    assert [o.metadata.name for o in found.objects] == ["b", "c"]
    assert [t.key for t in found.tasks] == ["default/y"]
    assert [e.at_ms for e in found.events] == [5000]
    assert found.notes == ["pods left out that came before this part of the trace: 1"]
    with pytest.raises(TraceError, match="the trace ends before"):
        part(whole, 9000, None)


def test_of_several_priorities_counts_are_summed_and_the_worst_percentile_counts() -> None:
    """One that falls on a pod that never started is the whole time."""
    waits = {"wait": {"p95": 700}, "arrived": 1, "evictions": 2}
    never = {"wait": {"p95": None}, "arrived": 3, "evictions": 5}
    empty = {"wait": {"p95": None}, "arrived": 0, "evictions": 7}
    result = {
        "start_ms": 1000,
        "end_ms": 61_000,
        "everyone": never,
        "by_priority": {"9": waits, "8": empty, "1": never},
        "timeline": {"waiting_mean": "1.500000"},
    }
    assert value(result, "wait p95", 8) == 700
    assert value(result, "wait p95", 1) == 60_000
    assert value(result, "evictions", 8) == 9
    assert value(result, "evictions", None) == 5
    assert value(result, "waiting", None) == 90_000
