"""Pod groups that a real scheduler preempted for, observed and decided again as groups."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policy.audit.observed.again import AgainDecider, as_observed
from policy.audit.observed.against import compare, sums
from policy.cli.app import run
from policy.decision.groups import GroupDecision
from policy.rules import RuleSet
from policy.store import NotFound, PruneScope, Store
from policy.store.state.group_past import GroupMemberAt, Whereabouts
from tests.support import serving
from tests.support.builders import PodBuilder, a_pod, objects
from tests.support.groups import a_group, of_group

DATA = Path(__file__).parents[1] / "data" / "conformance" / "pod-groups.jsonl.gz"
AT = "2026-11-21T08:00:00Z"


def recordings() -> list[dict[str, Any]]:
    """Cycles in which a group preempted as one, and pods that were not leaving went."""
    with gzip.open(DATA, "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [
        one
        for one in found
        if one["expect"].get("preemption") and one["expect"]["deleted"] and not one.get("gates")
    ]


def stream(record: dict[str, Any], *, named: str = "") -> tuple[dict[str, Any], list[Any]]:
    """The cluster as a dump, and the watch of what the scheduler did to it.

    named: the victims that the events name, where they are others than those that went.
    """
    items = record["cluster"]["items"]
    pods = {}
    version = 100
    for item in items:
        version += 1
        meta = item["metadata"]
        meta.setdefault("uid", f"uid-{item['kind']}-{meta['name']}")
        meta["resourceVersion"] = str(version)
        if item["kind"] == "Pod":
            pods[f"{meta.get('namespace', 'default')}/{meta['name']}"] = item
    namespace, _, name = record["group"].partition("/")
    (group,) = (i for i in items if i["kind"] == "PodGroup" and i["metadata"]["name"] == name)
    uid = group["metadata"]["uid"]
    lines = []
    for key in [named] if named else record["expect"]["deleted"]:
        pod = json.loads(json.dumps(pods[key]))
        version += 1
        mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        status = pod.setdefault("status", {})
        status["conditions"] = [
            *status.get("conditions", []),
            {**mark, "lastTransitionTime": AT},
        ]
        meta = pod["metadata"]
        pod["metadata"] = {**meta, "deletionTimestamp": AT, "resourceVersion": str(version)}
        lines.append({"type": "MODIFIED", "object": pod})
        version += 1
        reference = {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"]}
        event = {
            "kind": "Event",
            "apiVersion": "events.k8s.io/v1",
            "metadata": {
                "name": f"e{version}",
                "namespace": meta["namespace"],
                "uid": f"event-{version}",
                "resourceVersion": str(version),
            },
            "eventTime": AT,
            "reason": "Preempted",
            "note": f"Preempted by podgroup {uid} on node cluster",
            "reportingController": "default-scheduler",
            "regarding": {**reference, "uid": meta["uid"]},
            "related": {"kind": "PodGroup", "namespace": namespace, "name": name, "uid": uid},
        }
        lines.append({"type": "ADDED", "object": event})
    return record["cluster"], lines


def imported(folder: Path, record: dict[str, Any], url: str, **options: str) -> None:
    dump, lines = stream(record, **options)
    (folder / "dump.json").write_text(json.dumps(dump))
    (folder / "watch.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    files = [str(folder / name) for name in ("dump.json", "watch.jsonl")]
    assert run(["import", "--db", url, "--as-is", *files]) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_groups_come_out_the_same(database_url: str, tmp_path: Path) -> None:
    """Whole units, on several nodes: the same pods, or equal ones, in every recording."""
    found = {}
    records = recordings()[::5]
    for number, record in enumerate(records):
        url = f"{database_url}.{number}"
        imported(tmp_path, record, url)
        with Store.open(url) as store:
            rows = store.read.observations()
            (row,) = (row for row in rows if row.preemptor_kind == "PodGroup")
            found[record["id"]] = (row.verdict, row.preemptor, row.rule_set)
    ids = {record["id"]: record["group"] for record in records}
    assert {one[0] for one in found.values()} <= {"same", "order"}
    assert {key: one[1:] for key, one in found.items()} == {
        key: (group, "kube-1.36-groups") for key, group in ids.items()
    }
    assert found


def test_another_victim_is_another_verdict(database_url: str, tmp_path: Path) -> None:
    """The reason names the pods of both; it can be decided again, and set against other rules."""
    record = next(
        one
        for one in recordings()
        if any(unit["reprieved"] for unit in one["expect"]["preemption"].get("units", ()))
    )
    units = record["expect"]["preemption"]["units"]
    spared = next(unit["pods"][0] for unit in units if unit["reprieved"])
    imported(tmp_path, record, database_url, named=spared)
    with Store.open(database_url) as store:
        (row,) = store.read.observations()
        decision, _ = AgainDecider(store).decide(row, as_observed(store, row))
        (compared,) = compare(store, [row], RuleSet.load("kube-1.36-groups"))
        (undecided,) = compare(store, [row], RuleSet.load("kube-1.35"))
        totals = sums([compared])
    assert isinstance(decision, GroupDecision)
    assert (row.verdict, spared in row.reason) == ("other", True)
    assert set(compared.victims) == set(record["expect"]["deleted"])
    assert compared.kept == (spared,)
    assert sum(line.spared for line in totals) == 1
    assert undecided.detail == "rule set `kube-1.35` does not schedule pod groups"


def test_a_group_as_it_was_and_where_its_members_are_now(database_url: str) -> None:
    """Those who named it then; not who ended, of other groups, or came under a name of before."""

    def member(name: str, group: str = "a_b", uid: str = "") -> PodBuilder:
        pod = a_pod(name).priority(5).pod
        named = replace(pod, metadata=replace(pod.metadata, uid=uid or f"uid-{name}"))
        return of_group(PodBuilder(named), group)

    nowhere = Whereabouts(node="", nominated="")
    before = objects(
        a_group("a_b", priority=9, least=3),
        *(member(name) for name in ("gone", "moves", "nominated", "new-uid", "waits")),
        member("done").ended(),
        # `_` is no wildcard, and case counts.
        *(member("other-1", "axb"), member("other-2", "A_B")),
        member("elsewhere").in_namespace("default-2"),
        member("late", "another"),
    )
    after = objects(
        a_group("a_b", priority=9, least=3),
        member("moves").on("n1"),
        member("nominated").nominated_to("n2"),
        member("new-uid", uid="another"),
        member("waits"),
        member("late"),
    )
    with Store.open(database_url) as store:
        for number, state in enumerate((before, after)):
            store.record.import_objects(
                "default",
                state,
                at_ms=serving.NOW_MS + number,
                source="test",
                prune=PruneScope(),
            )
        found = store.state.group_at("default", "default/a_b", 1)
        none = store.state.group_at("default", "default/none", 1)
        with pytest.raises(NotFound):
            store.state.group_at("default", "default/a_b", 3)
    now = {
        "gone": None,
        "moves": Whereabouts(node="n1", nominated=""),
        "nominated": Whereabouts(node="", nominated="n2"),
        "new-uid": None,
        "waits": nowhere,
    }
    assert found.members == tuple(
        GroupMemberAt(pod=f"default/{name}", priority=5, then=nowhere, now=at)
        for name, at in sorted(now.items())
    )
    assert (found.group, none.group, none.members) == (before[0], None, ())
