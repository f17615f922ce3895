"""Law: what the store keeps of a group's cycle is enough to make it again.

Holds for every cluster with groups, under the rules as kube-scheduler has them and as `groups-safe`
has them, however the cluster changed between the cycles and afterwards, in whatever order they are
replayed; the ledger proves all of it.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policy.audit.compare import DecisionChange
from policy.audit.group_compare import ComparingCycles
from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import ReplayVerdict
from policy.cluster.members import groups_of
from policy.cluster.objects import SchedulingPodGroup, key_of, kind_of
from policy.cluster.snapshot import Snapshot
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, PruneScope, Store
from policy.store.journal import StoreJournal
from tests.property.test_group_laws import gangs
from tests.support.builders import NOW_MS, a_node

REMEMBERING = {
    "groups": {
        "victims": {
            "eligible": {
                "insert": [
                    {
                        "at": "start",
                        "rule": {
                            "id": "not-again",
                            "verdict": "deny",
                            "reason": "was preempted a moment ago",
                            "when": "history.preemptedCount(unit.workload, duration('1h')) > 1",
                        },
                    }
                ]
            }
        }
    }
}
RULES = [
    RuleSet.load("kube-1.36-groups"),
    RuleSet.load("kube-1.36-groups", overrides=REMEMBERING),
    RuleSet.load(
        "kube-1.36-groups", overrides={"groups": {"gates": {"workloadAwarePreemption": False}}}
    ),
    RuleSet.load("groups-safe"),
]
NAMES = itertools.count()


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def lived(store: Store, gang: Snapshot, rules: RuleSet, turns: list[int], seed: int) -> str:
    """A cluster in which cycles were made and other things happened in between."""
    cluster = f"c{next(NAMES)}"
    parts = [
        *gang.nodes.nodes,
        *(pod for _, _, pod in gang.in_order()),
        *gang.budgets,
        *groups_of(gang).values(),
    ]
    store.record.import_objects(cluster, parts, at_ms=NOW_MS - 5, source="generated")
    clock = itertools.count(NOW_MS, 60_000)
    journal = StoreJournal(store, cluster, actor="law", clock=lambda: NOW_MS)
    for turn in turns:
        scheduler = Scheduler(journal, rules, clock=lambda: next(clock), seed=seed)
        known = sorted(groups_of(scheduler.snapshot))
        if known:
            # The gang, or one of the others whose members may have come back.
            scheduler.decide_group(known[-1 if turn % 4 else turn % len(known)])
        happen(store, cluster, turn)
    return cluster


def happen(store: Store, cluster: str, turn: int) -> None:
    """Something that no cycle did: victims are gone, a node comes, a group changes or goes."""
    state = store.state.load(cluster)
    groups = [one for one in state.objects if isinstance(one, SchedulingPodGroup)]
    changes: list[Any] = []
    if turn % 5 == 0:
        changes = [
            (kind_of(one), key_of(one), None)
            for one in state.objects
            if one.metadata.deletion_timestamp
        ]
    elif turn % 5 == 1:
        changes = [("Node", f"new-{turn}", a_node(f"new-{turn}").cpu("2").node)]
    elif turn % 5 == 2 and groups:
        group = groups[turn % len(groups)]
        mode = "Pod" if group.spec.disruption_mode == "PodGroup" else "PodGroup"
        spec = replace(group.spec, disruption_mode=mode, priority=turn)
        changes = [(kind_of(group), key_of(group), replace(group, spec=spec))]
    elif turn % 5 == 3 and groups:
        changes = [(kind_of(groups[0]), key_of(groups[0]), None)]
    else:
        scope = PruneScope(kinds=frozenset({"Pod"}), namespaces=frozenset({"default"}))
        kept = state.objects[turn % 2 :: 2]
        store.record.import_objects(cluster, kept, at_ms=NOW_MS, source="again", prune=scope)
    store.record.change(cluster, changes, at_ms=NOW_MS, source="watch", cause=Cause.LIVE)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(
    gang=gangs(),
    rules=st.sampled_from(RULES),
    turns=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    seed=st.integers(0, 9),
    order=st.randoms(use_true_random=False),
)
def test_every_recorded_cycle_replays_to_its_digest(store, gang, rules, turns, seed, order):
    """Oldest first and in any other order; compared with the same rules nothing changes."""
    cluster = lived(store, gang, rules, turns, seed)
    rows = sorted(store.read.sessions(cluster, kind="group"), key=lambda row: row.id)
    results = list(GroupReplayer(store).replay_all(rows))
    assert [(r.verdict, r.digest) for r in results] == [
        (ReplayVerdict.EQUAL, row.digest) for row in rows
    ]
    mixed = list(rows)
    order.shuffle(mixed)
    replayer = GroupReplayer(store)
    assert {replayer.replay(row).verdict for row in mixed} <= {ReplayVerdict.EQUAL}
    compared = ComparingCycles(rules)(store, [row.id for row in rows])
    assert {found.change for found in compared} <= {DecisionChange.SAME}
    assert store.ledger.verify(cluster).ok
