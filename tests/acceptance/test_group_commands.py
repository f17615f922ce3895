"""Cycles of pod groups where commands take a decision: `--at group:ID`, `compare --jobs`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.commands import NOW, Policy

CLUSTER = """
{kind: Node, apiVersion: v1, metadata: {name: n1},
 status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}}
---
{kind: Pod, apiVersion: v1, metadata: {name: low}, status: {phase: Running},
 spec: {nodeName: n1, priority: 1, containers: [{name: c, resources: {requests: {cpu: 4}}}]}}
---
{kind: Pod, apiVersion: v1, metadata: {name: train-0},
 spec: {priority: 50, schedulingGroup: {podGroupName: train},
        containers: [{name: c, resources: {requests: {cpu: 4}}}]}}
---
{kind: PodGroup, apiVersion: scheduling.k8s.io/v1alpha2, metadata: {name: train},
 spec: {priority: 100, schedulingPolicy: {gang: {minCount: 1}}}}
"""

PAST = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: past}
extends: kube-1.36-groups
spec:
  eligibility:
    insert:
      - at: start
        rule: {id: often, when: "history.namespacePreemptions('default', duration('1h')) > 100",
               verdict: deny, why: test, reason: too often}
"""


@pytest.fixture
def db(policy: Policy, tmp_path: Path) -> tuple[str, str]:
    """A database in which one cycle has preempted."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    own = ("--db", f"sqlite:///{tmp_path / 'own.db'}")
    assert policy("import", *own, str(file)).status == 0
    rules = ("--rules", "kube-1.36-groups")
    done = policy("preempt", "--group", "train", *own, *rules, "--now", NOW, "--seed", "3")
    assert done.status == 0
    return own


def test_a_run_tells_cycles_of_groups_from_decisions(policy: Policy, db: tuple[str, str]) -> None:
    """What is tried again is another cycle, and no other group or pod."""
    done = policy("run", "--settle", "--dry-run", *db, "--rules", "kube-1.36-groups", "--now", NOW)
    assert done.err.splitlines()[-1] == (
        "2 cycles of pod groups made, nothing recorded (--dry-run): 1 preempting, 1 scheduled"
    )


def test_cycles_are_listed(policy: Policy, db: tuple[str, str]) -> None:
    """By group, outcome and time; the id is what other commands take."""
    line = {
        "id": "group:1",
        "cluster": "default",
        "now": NOW,
        "group": "default/train",
        "outcome": "preempting",
        "bound": 0,
        "evicted": 1,
        "rule_set": "kube-1.36-groups",
    }

    def listed(*filters: str) -> list[dict[str, str]]:
        return json.loads(policy("groups", *db, *filters, "--output", "json").out)

    every = ("--group", "train", "--outcome", "preempting", "--since", NOW)
    assert [listed(), listed(*every), listed("--group", "default/train")] == [[line]] * 3
    others = (("--group", "ml/train"), ("--outcome", "scheduled"), ("--until", NOW))
    assert [listed(*some) for some in others] == [[], [], []]
    assert policy("explain", str(listed()[0]["id"]), *db).status == 0


def test_a_cycle_is_explained_in_words(policy: Policy, db: tuple[str, str]) -> None:
    """Its preemption, too; the document keeps the code."""
    told = policy("explain", "group:1", *db).out.splitlines()
    document = json.loads(policy("explain", "group:1", *db, "--output", "json").out)
    assert [line for line in told if line.startswith("preemption")] == [
        "preemption  victims were found; 1 unit may leave, passes run: 2"
    ]
    assert document["preemption"]["code"] == "Success"


def test_where_a_cycle_is_recorded_is_said(policy: Policy, db: tuple[str, str]) -> None:
    """Cluster, state, who and when, as of a decision and as in the API."""
    told = policy("explain", "group:1", *db).out.splitlines()
    document = json.loads(policy("explain", "group:1", *db, "--output", "json").out)
    facts = {
        name: document[name] for name in ("cluster", "base_revision", "revision", "environment")
    }
    assert facts == {
        "cluster": "default",
        "base_revision": 1,
        "revision": 2,
        "environment": "",
    }
    found = {line[:12].strip(): line[12:] for line in told if line[11:12] == " "}
    assert found["state"].startswith("cluster default, revision 1, sha256:")
    assert (found["led to"], found["digest"]) == ("revision 2", document["digest"])
    assert found["recorded"].startswith(f"{document['at']} by claimed name {document['actor']}")


def test_the_state_of_a_cycle(policy: Policy, db: tuple[str, str]) -> None:
    """The pods as the cycle found them: its victim still ran."""
    done = policy("state", "show", "pods", *db, "--at", "group:1", "--output", "json")
    leaving = {
        p["metadata"]["name"]: "deletionTimestamp" in p["metadata"] for p in _items(done.out)
    }
    assert (done.status, leaving) == (0, {"low": False, "train-0": False})


def _items(text: str) -> list[dict[str, dict[str, str]]]:
    found = json.loads(text)
    return list(found["items"] if isinstance(found, dict) else found)


def test_what_if_begins_where_a_cycle_did(policy: Policy, db: tuple[str, str]) -> None:
    """Time, seed and rules are those of the cycle."""
    done = policy("what-if", *db, "--at", "group:1")
    assert done.status == 0
    assert f"as group:1 was made: for {NOW}" in done.err
    assert "seed 3, rules kube-1.36-groups" in done.err
    assert "preempts; pods that leave: default/low" in done.out


def test_a_supposed_cycle_is_kept_apart(policy: Policy, db: tuple[str, str]) -> None:
    """`--record` keeps it under a number that explains and replays it; no list shows it."""
    listed = [policy(*words, *db, "--output", "json").out for words in LISTS]
    done = policy("what-if", *db, "--at", "group:1", "--record", "--output", "json")
    found = [(step["pod"], step["decision"]) for step in json.loads(done.out)]
    assert found == [("default/train", "group:2"), ("default/train", "group:3")]
    assert "recorded as hypothetical cycles of pod groups group:2 to group:3" in done.err
    assert [policy(*words, *db, "--output", "json").out for words in LISTS] == listed
    for number, said in (("2", True), ("1", False)):
        explained = policy("explain", f"group:{number}", *db).out
        assert ("only asked  what would be, by `policy what-if`" in explained) is said
        deleted = re.search(
            r"^default/low .* (yes|no) *$", explained.partition("victims\n")[2], re.M
        )
        assert deleted is not None
        assert deleted[1] == ("no" if said else "yes")
    (replayed,) = json.loads(policy("replay", "group:2", *db, "--output", "json").out)
    assert replayed["verdict"] == "equal"
    (never,) = json.loads(policy("replay", "group:3", *db, "--output", "json").out)
    assert (never["verdict"], never["missing"]) == ("incomplete", ["hypothetical-state"])
    assert policy("audit", "verify", *db).status == 0


LISTS = (
    ("decisions",),
    ("report",),
    ("who", "default/low"),
    ("replay", "--all"),
    ("compare", "--rules", "groups-safe"),
    ("nominations",),
)


def test_rules_that_schedule_groups_would_not_have_decided_for_a_member(
    policy: Policy, tmp_path: Path
) -> None:
    """`policy avoidable` says of an environment's rules what `policy compare` says of them."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    own = ("--db", str(tmp_path / "alone.db"))
    for command in (
        ("import", str(file)),
        ("preempt", "train-0", "--rules", "kube-1.36", "--now", NOW),
        ("env", "create", "groups"),
        ("env", "activate", "groups", "kube-1.36-groups", "--reason", "test"),
    ):
        assert policy(*command, *own).status == 0
    found = json.loads(policy("avoidable", "1", *own, "--output", "json").out)
    why = "`kube-1.36-groups` schedules pod group `default/train` as one, not pod by pod"
    groups = {"what": "groups (kube-1.36-groups)", "why_not": why}
    assert found["environments"] == [{"kind": None, "spared": False, "instead": None, **groups}]
    compared = policy("compare", "--rules", "kube-1.36-groups", *own, "--output", "json")
    assert [one["detail"] for one in json.loads(compared.out)["skipped"]] == [why]


def test_what_if_does_not_guess_the_past_of_a_cycle(
    policy: Policy, db: tuple[str, str], tmp_path: Path
) -> None:
    """Figures that it did not read are not in the record: `policy compare` refuses them as well."""
    rules = tmp_path / "past.yaml"
    rules.write_text(PAST)
    asked = ("what-if", "train", "--at", "group:1", "--rules", rules, "--depth", "1", *db)
    done = policy(*asked)
    told = (
        "`past` reads figures of the past that group:1 did not read\n"
        "  help: give the time for which they count with `--now`\n"
    )
    assert (done.status, done.err.endswith(told)) == (1, True)
    assert policy(*asked, "--now", NOW).status == 0


def test_who_evicted_a_pod_was_a_cycle(policy: Policy, db: tuple[str, str]) -> None:
    """By which rules, and what explains it; the document says what the record has."""
    first, cycle, *others = policy("who", "default/low", *db).out.splitlines()
    assert first.endswith("left n1 for default/train-0 (priority 50)")
    of = "cycle group:1 (`policy explain group:1`) of pod group default/train in cluster default"
    by = re.search(r"^recorded +(.*)$", policy("explain", "group:1", *db).out, re.MULTILINE)
    assert by is not None
    assert cycle == f"  {of}, recorded {by[1]}"
    assert others == [
        "  allowed by `lower-than-the-group`",
        "  rule set kube-1.36-groups, in no environment",
    ]
    (told,) = json.loads(policy("who", "default/low", *db, "-o", "json").out)
    names = ("session", "group", "rule", "filter", "pdb_violating", "rule_set")
    assert [told[name] for name in names] == [
        *(1, "default/train", "lower-than-the-group", "pod-group", False),
        "kube-1.36-groups",
    ]
    assert told["rule_set_digest"].startswith("sha256:")


def test_a_number_that_is_no_cycle(policy: Policy, db: tuple[str, str]) -> None:
    said = "there is no cycle 7 of a pod group"
    for command in (["what-if", "--at"], ["replay"], ["explain"]):
        done = policy(*command, "group:7", *db)
        assert (done.status, said in done.err) == (1, True), (command, done.err)
    done = policy("batch", "replay", "1", *db)
    said = "there is no batch session 1\n  help: there is cycle 1 of a pod group"
    assert (done.status, said in done.err) == (1, True), done.err


def test_cycles_are_compared_by_several_processes(policy: Policy, db: tuple[str, str]) -> None:
    """What is found does not depend on who looks."""
    found = [
        policy("compare", *db, "--rules", "groups-safe", "--jobs", jobs, "--output", "json").out
        for jobs in ("1", "2")
    ]
    assert found[0] == found[1]
    assert json.loads(found[0])["changes"]["other-nominations"] == 1
