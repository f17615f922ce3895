"""The comparison notices every difference, and tells ties from differences."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policy import RuleSet, Snapshot, decide
from policy.conformance import Agreement, RecordingError, ScenarioResult, run
from policy.conformance.compare import NOW, OVERRIDES, PLUGINS

RULES = RuleSet.load("kube-1.35", overrides=OVERRIDES)


def a_node(name: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def a_pod(name: str, priority: int, cpu: str, node: str = "", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    }
    status: dict[str, Any] = {"startTime": "2026-11-20T00:00:00Z"}
    if node:
        spec["nodeName"] = node
    status |= more
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": {"app": name}},
        "spec": spec,
        "status": status,
    }


CLUSTER = [
    a_node("n1"),
    a_node("n2"),
    a_node("n3"),
    a_pod("keep", 50, "1", "n1"),
    a_pod("twin-a", 0, "1", "n1"),
    a_pod("twin-b", 0, "1", "n1"),
    a_pod("twin-c", 0, "1", "n1"),
    a_pod("big", 10, "4", "n2"),
    a_pod("boss", 900, "4", "n3"),
    a_pod("waits", 5, "1", nominatedNodeName="n1"),
    a_pod("new", 100, "2", nominatedNodeName="n1"),
    {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "big"}}},
        "status": {"disruptionsAllowed": 0},
    },
]


def recorded(cluster: list[dict[str, Any]], pod: str = "ns/new") -> dict[str, Any]:
    """A recording of what our own engine does, in the form of 1.35."""
    decision = decide(Snapshot.from_manifests(cluster, now=NOW), RULES, pod, evaluate_all=True)
    trace, effects = decision.trace, decision.effects

    def status(node_status: Any) -> dict[str, Any]:
        found = {"code": node_status.code.label, "reasons": list(node_status.reasons)}
        if node_status.filter:
            found["plugin"] = PLUGINS[node_status.filter]
        return found

    nominated = {"set": decision.node, "clear": "", "leave": None}[effects.nomination.value]
    return {
        "id": "made-1",
        "family": "made",
        "cluster": {"kind": "List", "items": cluster},
        "pod": pod,
        "expect": {
            "filter": {node: status(s) for node, s in trace.filter_statuses.items()},
            "fits": trace.fits,
            "eligible": trace.eligible,
            "reason": trace.rules[0].reason,
            "candidates": {
                c.node: {"victims": list(c.victims), "numPDBViolations": c.pdb_violations}
                for c in decision.candidates
            },
            "statuses": {node: status(s) for node, s in trace.dry_run_statuses.items()},
            "best": [decision.candidates[0].node] if decision.candidates else [],
            "postFilter": None
            if trace.fits
            else {
                "code": "Success" if effects.nomination.value == "set" else "Unschedulable",
                "message": trace.message,
                "nominatedNode": nominated,
            },
            "clearedNominations": list(effects.clear_nominations),
            "deleted": sorted(effects.evict),
        },
    }


def judged(folder: Path, scenario: dict[str, Any], *, strict: bool = False) -> ScenarioResult:
    file = folder / "made.jsonl"
    file.write_text(json.dumps(scenario) + "\n")
    [result] = run([file], RULES, strict=strict)
    return result


SCENARIO = recorded(CLUSTER)
CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "fits": lambda e: e.update(fits=True, postFilter=None),
    "eligible": lambda e: e.update(eligible=False),
    "error": lambda e: e.update(error="no"),
    "a candidate more": lambda e: e["candidates"].update(n3={"victims": ["ns/boss"]}),
    "a candidate less": lambda e: e["candidates"].pop("n2"),
    "another victim": lambda e: e["candidates"]["n1"].update(victims=["ns/keep", "ns/twin-c"]),
    "more violations": lambda e: e["candidates"]["n2"].update(numPDBViolations=2),
    "another best": lambda e: e.update(best=["n2"]),
    "nomination cleared": lambda e: e["postFilter"].update(code="Unschedulable", nominatedNode=""),
    "nomination left": lambda e: e["postFilter"].update(code="Unschedulable", nominatedNode=None),
    "other nominations cleared": lambda e: e.update(clearedNominations=[]),
    "others deleted": lambda e: e.update(deleted=["ns/twin-c"]),
    "others marked": lambda e: e.update(disruptionTarget=["ns/twin-c"]),
}
TEXTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "code": lambda e: e["filter"]["n1"].update(code="UnschedulableAndUnresolvable"),
    "plugin": lambda e: e["filter"]["n1"].update(plugin="NodePorts"),
    "reasons": lambda e: e["filter"]["n1"].update(reasons=["Insufficient memory"]),
    "a status more": lambda e: e["statuses"].update(n1={"code": "Unschedulable"}),
    "a status less": lambda e: e["statuses"].clear(),
    "reason": lambda e: e.update(reason="because"),
    "message": lambda e: e["postFilter"].update(message="because"),
    "event": lambda e: e.update(fitError="because"),
    "potential nodes": lambda e: e.update(potentialNodes=["n1"]),
}


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    scenario = copy.deepcopy(SCENARIO)
    change(scenario["expect"])
    return scenario


def test_the_same_decision_agrees(tmp_path: Path) -> None:
    """A recording of our own decision agrees, to the last text."""
    result = judged(tmp_path, SCENARIO, strict=True)
    assert (result.verdict, result.differences) == (Agreement.AGREE, ())
    assert SCENARIO["expect"]["clearedNominations"] == ["ns/waits"]
    assert len(SCENARIO["expect"]["candidates"]) == 2


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_what_was_recorded_differs(tmp_path: Path, what: str) -> None:
    """Each part of a recording that counts is compared, in one line of explanation."""
    result = judged(tmp_path, changed(CHANGES[what]))
    assert result.verdict is Agreement.DIFFER
    assert result.differences


@pytest.mark.parametrize("what", TEXTS)
def test_texts_count_only_when_strict(tmp_path: Path, what: str) -> None:
    """Codes, reasons, statuses and messages are compared with `strict` and not without."""
    scenario = changed(TEXTS[what])
    assert judged(tmp_path, scenario).verdict is Agreement.AGREE
    assert judged(tmp_path, scenario, strict=True).verdict is Agreement.DIFFER


def test_other_equal_victims_tie(tmp_path: Path) -> None:
    """Victims that an order among equal pods explains are a tie, with the node named."""
    victims = ["ns/twin-b", "ns/twin-a"]
    scenario = changed(lambda e: e["candidates"]["n1"].update(victims=victims))
    scenario["expect"]["deleted"] = sorted(victims)
    result = judged(tmp_path, scenario)
    assert (result.verdict, result.differences) == (
        Agreement.TIE,
        ("n1: [ns/twin-b, ns/twin-c], recorded [ns/twin-b, ns/twin-a]",),
    )


def test_an_alternative_of_the_real_scheduler_agrees(tmp_path: Path) -> None:
    """What the real code gave for another order of the pods is as good as what is recorded."""
    scenario = copy.deepcopy(SCENARIO)
    expect = scenario["expect"]
    expect["alternatives"] = {"n1": [expect["candidates"]["n1"]]}
    expect["candidates"]["n1"] = {"victims": ["ns/twin-a"], "numPDBViolations": 0}
    expect["deleted"] = ["ns/twin-a"]
    assert judged(tmp_path, scenario).verdict is Agreement.AGREE


def test_pods_that_are_not_equal_do_not_tie(tmp_path: Path) -> None:
    """A later start is no tie: the other order needs another rule set."""
    cluster = copy.deepcopy(CLUSTER)
    cluster[6]["status"]["startTime"] = "2026-11-20T01:00:00Z"
    scenario = recorded(cluster)
    scenario["expect"]["candidates"]["n1"]["victims"] = ["ns/twin-a", "ns/twin-b"]
    assert judged(tmp_path, scenario).verdict is Agreement.DIFFER


def test_a_tie_must_lead_to_a_recorded_node(tmp_path: Path) -> None:
    """With the recorded victims our ranking must choose a recorded node."""
    scenario = changed(lambda e: e["candidates"]["n1"].update(victims=["ns/twin-a", "ns/twin-b"]))
    scenario["expect"]["best"] = ["n2"]
    scenario["expect"]["postFilter"]["nominatedNode"] = "n2"
    result = judged(tmp_path, scenario)
    assert result.verdict is Agreement.DIFFER
    assert "best of the recorded candidates: n1, recorded n2" in result.differences


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"not json\n", "made.jsonl:1: not a recorded scenario"),
        (b'{"id": "x"}\n', "made.jsonl:1: not a recorded scenario"),
        (
            b'{"id": "\xff"}\n',
            "made.jsonl:1: not a recorded scenario: one of its texts is not utf-8",
        ),
        (
            json.dumps({**SCENARIO, "expect": {"best": ["?"]}}).encode().replace(b"?", b"\xff"),
            "made.jsonl:1: one of its texts is not utf-8",
        ),
        (
            json.dumps({**SCENARIO, "expect": {"fits": 3}}).encode(),
            "made.jsonl:1: expected `bool`, got `int`",
        ),
    ],
)
def test_a_line_that_is_no_scenario_is_named(tmp_path: Path, text: bytes, error: str) -> None:
    """Something else than a recording is an error with file and line."""
    file = tmp_path / "made.jsonl"
    file.write_bytes(text)
    with pytest.raises(RecordingError) as caught:
        list(run([file], RULES))
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(error)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """A cut-off gzip file is an error with its name."""
    file = tmp_path / "made.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(SCENARIO).encode())[:-20])
    with pytest.raises(RecordingError) as caught:
        list(run([file], RULES))
    assert str(file) in str(caught.value)
