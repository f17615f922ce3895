"""`--paranoid`: decisions made again on the state put together anew."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policy.cluster.snapshot import OnNodes, Snapshot
from policy.cluster.tables import PRIORITY
from policy.groups.decide import decide_group
from policy.preemption.decide import decide
from policy.preemption.victims import Allowed
from policy.rules import RuleSet
from policy.scheduling import cycle as scheduling_cycle
from policy.scheduling.cycle import Scheduler
from policy.scheduling.second_look import DecisionsDiffer, look_again, look_again_at_group
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.contract.builders import a_node, a_pod
from tests.support import builders as b
from tests.support.groups import a_group, of_group

NOW = 10**12
"""An instant of 2001: behind the clock of every machine that runs the tests."""
RULES = RuleSet.load("kube-1.35")
CLUSTER = (
    a_node("n1", cpu="2"),
    a_pod("shop/low", node="n1", priority=1, cpu="2"),
    a_pod("shop/high", priority=10, cpu="2"),
    a_pod("shop/higher", priority=20, cpu="2"),
)


def forgetful(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a wrong answer among what it remembers: no pod may be a victim."""
    none = Allowed(
        pods=np.zeros(len(snapshot.pods), dtype=np.bool_),
        rule=np.full(len(snapshot.pods), -1, dtype=np.int16),
        rules=len(RULES.victims.eligible),
        without_value=(),
        node=snapshot.node,
    )
    priorities = OnNodes(snapshot.column(PRIORITY), snapshot.node)
    inputs = (RULES.victims.eligible, snapshot.node, 10, priorities)
    snapshot.remembered("allowed", inputs, lambda: none)
    return snapshot


def test_an_equal_decision_is_let_through() -> None:
    """The second decision is compared, and nothing else happens."""
    snapshot = Snapshot.from_objects(CLUSTER, now_ms=NOW)
    look_again(snapshot, RULES, decide(snapshot, RULES, "shop/high"))


def test_a_wrong_answer_that_was_kept_is_found() -> None:
    """The message names the pod and what is different."""
    snapshot = forgetful(Snapshot.from_objects(CLUSTER, now_ms=NOW))
    with pytest.raises(DecisionsDiffer) as raised:
        look_again(snapshot, RULES, decide(snapshot, RULES, "shop/high"))
    assert str(raised.value).startswith(
        "the decision for `shop/high` is another one on the same state put together anew:"
        " `outcome`, `node`, `victims`, `candidates`, `trace.rules`"
    )


@pytest.mark.parametrize(("paranoid", "found"), [(1, True), (2, False), (None, False)])
def test_every_nth_decision_of_a_scheduler_is_made_again(
    database_url: str, paranoid: int | None, found: bool
) -> None:
    """The one that differs is not recorded; those that are not looked at are."""
    with Store.open(database_url) as store:
        store.record.import_objects("default", list(CLUSTER), at_ms=NOW, source="dump")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW)
        cycle = Scheduler(journal, RULES, clock=lambda: NOW, seed=0, paranoid=paranoid)
        forgetful(cycle.snapshot)
        if found:
            with pytest.raises(DecisionsDiffer):
                cycle.decide("shop/high")
        else:
            cycle.decide("shop/high")
        assert len(store.read.decisions()) == (0 if found else 1)


GROUP_RULES = RuleSet.load("kube-1.36-groups")


def a_cluster_with_a_group():
    """A full node whose pod gives way to a gang of one; and a lone pod."""
    return list(
        b.objects(
            b.a_node("n1").cpu(4).running(b.a_pod("low").priority(1).cpu(4).started(60)),
            of_group(b.a_pod("train-0").priority(50).cpu(4), "train"),
            a_group("train", priority=100, least=1),
            b.a_pod("alone").priority(2).cpu(1),
        )
    )


def test_the_cycle_of_a_pod_group_is_made_again_too() -> None:
    """An equal one is let through; the message names the group and what is different."""
    snapshot = Snapshot.from_objects(a_cluster_with_a_group(), now_ms=b.NOW_MS)
    decision = decide_group(snapshot, GROUP_RULES, "default/train")
    look_again_at_group(snapshot, GROUP_RULES, decision)
    with pytest.raises(DecisionsDiffer) as raised:
        look_again_at_group(snapshot, GROUP_RULES, replace(decision, message="", victims=()))
    assert str(raised.value) == (
        "the cycle of pod group `default/train` is another one on the same state put together"
        " anew: `message`, `victims` differ"
    )


def test_cycles_of_pod_groups_count_among_the_decisions(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second decision of a run is made again, whichever kind it is."""
    looked_at = []

    def noted(snapshot, rules, decision):
        looked_at.append(decision.group)
        look_again_at_group(snapshot, rules, decision)

    monkeypatch.setattr(scheduling_cycle, "look_again_at_group", noted)
    with Store.open(database_url) as store:
        found = a_cluster_with_a_group()
        store.record.import_objects("default", found, at_ms=b.NOW_MS, source="dump")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: b.NOW_MS)
        for paranoid in (1, 2, None):
            cycle = Scheduler(
                journal,
                GROUP_RULES,
                clock=lambda: b.NOW_MS,
                seed=0,
                dry_run=True,
                paranoid=paranoid,
            )
            assert len(list(cycle.run())) == 2
    assert looked_at == ["default/train"]
