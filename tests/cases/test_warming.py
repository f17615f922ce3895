"""Before the first call: what decisions derive is there, and the state is as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from policy.cluster.snapshot import Snapshot
from policy.decision.model import OfferedNode
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.server.extender.warming import warmed
from tests.support.builders import Builder, a_node, a_pdb, a_pod, rule_set, snapshot


def two_nodes() -> list[Builder]:
    return [
        a_node("a").cpu(4).running(a_pod("one").priority(1).cpu(4).labelled(app="x")),
        a_node("b").cpu(4).running(a_pod("two").priority(5).cpu(4).labelled(app="x")),
        a_pod("high").priority(100).cpu(2),
        a_pdb("x").selecting(app="x"),
    ]


OFFER = [
    OfferedNode(node=node, victims=(f"default/{pod}",), pdb_violations=0)
    for node, pod in (("a", "one"), ("b", "two"))
]


@pytest.mark.parametrize("rules", ["kube-1.36", "kube-1.14", "protected"])
def test_the_state_and_its_decisions_stay_as_they_are(rules: str) -> None:
    """Down to every digest, also when it goes on from there."""
    before, by = snapshot(*two_nodes()), rule_set(rules)
    after = warmed(before, by)
    assert (after.digest, after.now_ms, after.history) == (before.digest, before.now_ms, None)
    assert list(after.in_order()) != []
    assert [key for _, key, _ in after.in_order()] == [key for _, key, _ in before.in_order()]
    assert {*map(id, after.objects())} == {*map(id, before.objects())}
    for gone in ([], [("Pod", "default/one", None)]):
        digests = {
            decide(state.apply(gone), by, "default/high", offer=OFFER).digest
            for state in (before, after)
        }
        assert len(digests) == 1


def test_the_first_decision_derives_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it asks a snapshot to keep is kept there already; without warming it is not."""
    built: list[object] = []
    derived = Snapshot.derived

    def noting(self: Snapshot, key: object, build: Callable[..., object]) -> object:
        def noted(state: Snapshot) -> object:
            built.append(key)
            return build(state)

        return derived(self, key, noted)

    monkeypatch.setattr(Snapshot, "derived", noting)
    rules = RuleSet.load("kube-1.36")
    cold, warm = snapshot(*two_nodes()), warmed(snapshot(*two_nodes()), rules)
    built.clear()
    decide(cold, rules, "default/high", offer=OFFER)
    assert {"rows-by-uid"} < set(built)
    built.clear()
    decide(warm, rules, "default/high", offer=OFFER)
    assert built == []


def test_a_name_that_is_taken_is_left_to_its_pod() -> None:
    """The made-up pod has another one."""
    taken = a_pod("warm-up-0").priority(7).cpu(1)
    before = snapshot(*two_nodes(), taken)
    assert warmed(before, rule_set("kube-1.36")).pod("default/warm-up-0") == taken.pod


@pytest.mark.parametrize("objects", [[], [a_node("a").cpu(4)], [a_pod("waits").cpu(1)]])
def test_where_no_pod_runs_nothing_is_done(objects: list[Builder]) -> None:
    """No pod can be made up without one that runs."""
    before = snapshot(*objects)
    assert warmed(before, rule_set("kube-1.36")) is before
