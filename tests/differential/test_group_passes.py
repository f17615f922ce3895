"""Passes with running totals give the decisions of the plain passes, to the byte."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policy import RuleSet
from policy.cluster.snapshot import Snapshot
from policy.conformance.compare import NOW
from policy.face import Snapshot as FromManifests
from policy.groups.columns import column_passes
from policy.groups.decide import decide_group_by
from policy.groups.members import muster
from policy.groups.passes import CycleInputs, Passes, PlainPasses
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects
from tests.support.groups import a_group, of_group

DATA = Path(__file__).parents[1] / "data" / "conformance" / "pod-groups.jsonl.gz"
RULES = RuleSet.load("kube-1.36-groups")
OTHERS = {
    "all": {"groups": {"success": "all", "nominations": "placed"}},
    "fixed": {"groups": {"victims": {"reprieveTest": "fixed-nodes"}}},
    "fewer": {"groups": {"victims": {"search": "fewer", "searchPasses": 20}}},
}


def columns(task: CycleInputs) -> Passes:
    found = column_passes(task)
    assert found is not None
    return found


def both(snapshot: Snapshot, rules: RuleSet, group: str) -> tuple[bytes, bytes]:
    ways = (columns, PlainPasses)
    fast, plain = (decide_group_by(way, snapshot, rules, group).canonical for way in ways)
    return fast, plain


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Few nodes of two sizes, units below and above the group, members of two kinds, a budget."""
    small = st.integers(1, 3)
    nodes: list[Any] = []
    for n in range(draw(st.integers(1, 5))):
        node = a_node(f"n{n}").cpu(draw(st.sampled_from([2, 4, 6]))).memory("8Gi")
        for p in range(draw(st.integers(0, 4))):
            pod = a_pod(f"p{n}-{p}").cpu(draw(small)).priority(draw(st.sampled_from([0, 5, 20])))
            pod = pod.labelled(app=draw(st.sampled_from("ab"))).started(draw(st.integers(1, 3)))
            group = draw(st.sampled_from(["", "", "units", "loose"]))
            node = node.running(of_group(pod, group) if group else pod)
        nodes.append(node)
    members = []
    for m in range(draw(st.integers(1, 5))):
        pod = a_pod(f"m{m}").cpu(draw(small)).priority(draw(st.sampled_from([1, 10])))
        if draw(st.booleans()):
            pod = pod.nominated_to(f"n{draw(st.integers(0, 4))}")
        members.append(of_group(pod, "own"))
    return Snapshot.from_objects(
        objects(
            *nodes,
            *members,
            a_pdb("budget").selecting(app="a").allowing(draw(st.integers(0, 2))),
            a_group("own", priority=10, least=draw(st.integers(1, 5))),
            a_group("units", priority=draw(st.integers(0, 12)), mode="PodGroup"),
            a_group("loose", priority=100),
        ),
        now_ms=NOW_MS,
    )


@settings(max_examples=150, deadline=None)
@given(clusters(), st.sampled_from(["", *OTHERS]))
def test_the_same_decision_both_ways(snapshot: Snapshot, how: str) -> None:
    rules = RuleSet.load("kube-1.36-groups", overrides=OTHERS[how]) if how else RULES
    fast, plain = both(snapshot, rules, "default/own")
    assert fast == plain


def test_recorded_cycles_both_ways() -> None:
    """Wherever running totals are used on recorded clusters they change nothing."""
    used = 0
    with gzip.open(DATA) as lines:
        for line in lines:
            record = json.loads(line)
            if record.get("gates") or record.get("cycles"):
                continue
            items = record["cluster"]["items"]
            snapshot = FromManifests.from_manifests(items, now=NOW, admission=False)
            assert RULES.groups is not None
            found = muster(snapshot, record["group"], RULES.groups)
            if not found.members:
                continue
            task = CycleInputs.of(snapshot, RULES, RULES.groups, found, seed=0)
            if column_passes(task) is None:
                continue
            used += 1
            fast, plain = both(snapshot, RULES, record["group"])
            assert (record["id"], fast) == (record["id"], plain)
    assert used > 60
