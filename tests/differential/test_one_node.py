"""Nodes gone through in plain numbers: verdicts, dry runs and attempts are those of the columns."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import taken
from policy.filters.base import Incoming
from policy.preemption import one_node, victims
from policy.preemption.context import DecisionContext
from policy.preemption.importance import Importance
from policy.rules import RuleSet
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.clusters import Example, clusters

EXAMPLES = int(os.environ.get("POLICY_DIFFERENTIAL_EXAMPLES", "800"))
OTHERS_FIRST = {"reprieve": ["others", "pdb-violating"]}
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "newest": ("kube-1.36", {}),
    "1.14": ("kube-1.14", {}),
    "others-first": ("kube-1.36", {"victims": OTHERS_FIRST}),
    "others-first-as-reprieved": (
        "kube-1.35",
        {"victims": {**OTHERS_FIRST, "order": "as-reprieved"}},
    ),
    "one-victim": ("kube-1.36", {"victims": {"maxVictims": 1, "reprieve": ["all"]}}),
}


def context_of(snapshot: Snapshot, key: str, rules: RuleSet) -> DecisionContext:
    row, pod = snapshot.row(key), snapshot.pod(key)
    assert row is not None
    assert pod is not None
    return DecisionContext(
        incoming=Incoming(snapshot=snapshot, pod=pod, key=key, row=row),
        rules=rules,
        seed=0,
        importance=Importance,
    )


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def parts(found: victims.DryRun) -> dict[str, Any]:
    """What a dry run found, but for what it went by."""
    without = {"potentials", "failed_load"}
    return {f.name: plain(getattr(found, f.name)) for f in fields(found) if f.name not in without}


@pytest.mark.parametrize("name", RULES)
@settings(
    max_examples=max(1, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(case=clusters(without=["affinity", "anti-affinity", "spread", "host-ports"]), some=st.data())
def test_few_nodes_and_columns_agree(name: str, case: Example, some: st.DataObject) -> None:
    base, overrides = RULES[name]
    snapshot = case.snapshot()
    context = context_of(snapshot, case.pod, RuleSet.load(base, overrides))
    pipeline = context.pipeline
    chosen = some.draw(st.sets(st.integers(0, len(context.names) - 1), min_size=1, max_size=4))
    nodes = np.array(sorted(chosen), dtype=np.int64)

    judged = pipeline.judge(taken(pipeline.base, nodes), nodes)
    statuses = one_node.judge(pipeline, nodes)
    event(f"judged: {statuses is not None}")
    assert statuses in (None, [judged.statuses[i] for i in judged.index.tolist()])

    potential = context.potential_victims(nodes)
    found = victims.dry_run(pipeline, potential, context.rules.victims, context.importance)
    few = one_node.dry_run(context, nodes)
    if few is None:
        return
    why = pipeline.judge(found.failed_load, found.failed)
    assert parts(few[0]) == parts(found)
    assert few[1] == [why.statuses[i] for i in why.index.tolist()]

    for i, node in enumerate(found.nodes.tolist()):
        gone = found.victims[found.offsets[i] : found.offsets[i + 1]]
        here = one_node.OneNode.of(context, node)
        assert here is not None
        event("some stay" if gone.size < len(here.rows) else "all leave")
        columns = victims.attempts(pipeline, potential.at(node), gone)
        told = here.attempts(set(gone.tolist()))
        assert list(map(msgspec.structs.asdict, told)) == list(map(msgspec.structs.asdict, columns))


@pytest.mark.parametrize("cpu", [2**61, 2**62, 2**63 - 1])
def test_sums_that_int64_does_not_hold_take_the_columns(cpu: int) -> None:
    """There they wrap, and plain numbers do not."""
    running = (a_pod(f"low-{i}").priority(i).cpu(f"{cpu}m") for i in range(2))
    parts = objects(a_node("n0").cpu("4").running(*running), a_pod("high").priority(10).cpu("1"))
    context = context_of(
        Snapshot.from_objects(parts, now_ms=NOW_MS), "default/high", RuleSet.load("kube-1.36")
    )
    node = np.zeros(1, dtype=np.int64)
    assert one_node.judge(context.pipeline, node) is None
    assert one_node.dry_run(context, node) is None
    assert one_node.OneNode.of(context, 0) is None
