"""A Volcano cluster on the command line: import, session, reasons, comparison, supposition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import Policy

CLUSTER = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research}, spec: {weight: 1, capability: {cpu: "4"}, deserved: {cpu: "2"}}, status: {state: Open}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: shut}, spec: {weight: 1}, status: {state: Closed}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: train, namespace: ml}, spec: {minMember: 1, queue: research, minResources: {cpu: "6"}}, status: {phase: Pending}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: small, namespace: ml}, spec: {minMember: 1, queue: research, minResources: {cpu: "1"}, networkTopology: {mode: hard}}, status: {phase: Pending}}
- {apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: late, namespace: ml}, spec: {minMember: 1, queue: shut, minResources: {cpu: "1"}}, status: {phase: Pending}}
- {apiVersion: v1, kind: Pod, metadata: {name: train-0, namespace: ml, uid: t0, annotations: {scheduling.k8s.io/group-name: train}, ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: train, uid: j1, controller: true}]}, spec: {schedulerName: volcano, containers: [{name: c, resources: {requests: {cpu: "6"}}}]}, status: {phase: Pending}}
- {apiVersion: v1, kind: Pod, metadata: {name: small-0, namespace: ml, uid: s0, annotations: {scheduling.k8s.io/group-name: small}}, spec: {schedulerName: volcano, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}, status: {phase: Pending}}
- {apiVersion: v1, kind: Pod, metadata: {name: late-0, namespace: ml, uid: l0, annotations: {scheduling.k8s.io/group-name: late}}, spec: {schedulerName: volcano, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}, status: {phase: Pending}}
- {apiVersion: v1, kind: Pod, metadata: {name: lone, namespace: ml, uid: lo}, spec: {schedulerName: volcano, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}, status: {phase: Pending}}
"""  # noqa: E501  # one object per line, as in a dump

FIFO = """\
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata:
    name: line
    annotations: {volcano.sh/nodegroup-resource-limits: "{}"}
  spec: {dequeueStrategy: fifo}
"""

LARGER = """\
{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: research},
 spec: {weight: 1, capability: {cpu: "8"}}, status: {state: Open}}
"""

TDM = """\
actions: "allocate"
tiers:
- plugins:
  - name: tdm
    arguments: {tdm.revocable-zone.rz1: "10:00-21:00", tdm.evict.period: 1m}
  - name: gang
"""

EXTENDED = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: extender
"""


@pytest.fixture
def database(tmp_path: Path, policy: Policy, database_url: str) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    assert policy("import", file, "--db", database_url).status == 0
    return database_url


def test_a_session_says_which_limit_kept_a_group_out(policy: Policy, database: str) -> None:
    """Plugin, tier, queue and numbers; what the session did not look at is in its notes."""
    done = policy("batch", "run", "--rules", "volcano", "--db", database, "-o", "json")
    (session,) = json.loads(done.out)
    assert [(b["pod"], b["node"]) for b in session["binds"]] == [("ml/small-0", "n1")]
    assert [row["why"] for row in session["waiting"]] == [
        [
            "ml/late (queue shut): its group was not let into its queue; minimum 1, ready 0,"
            " promised 0, pending 1",
            "enqueue: tier 2, proportion: queue shut is not open",
        ],
        [
            "ml/train (queue research): its group was not let into its queue; minimum 1, ready 0,"
            " promised 0, pending 1",
            "enqueue: tier 2, proportion: queue research would pass its capability"
            " (cpu in use 1 of 4, asked for 6, 3 left)",
        ],
    ]
    assert [(n["note"], n["subject"], n["detail"]) for n in session["notes"]] == [
        ("without-group", "ml/lone", ""),
        ("queue-field-ignored", "research", "deserved"),
        ("not-modelled", "ml/small", "networkTopology"),
    ]
    assert policy("batch", "replay", "--all", "--db", database).status == 0
    told = policy("batch", "explain", "1", "--job", "ml/train", "--db", database)
    assert "tier 2, proportion: queue research would pass its capability" in told.out


def test_import_names_what_no_session_acts_on(
    policy: Policy, tmp_path: Path, database_url: str
) -> None:
    """A field that is read and has no effect is said when it comes in, with its objects."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER + FIFO)
    done = policy("import", file, "--db", database_url)
    assert [line for line in done.err.splitlines() if "effect" in line] == [
        "`networkTopology` of 1 PodGroup has no effect on sessions: `ml/small`",
        "`capability` of 1 Queue has an effect only on sessions in which a plugin reads it: "
        "`research`",
        "`dequeueStrategy` of 1 Queue has no effect on sessions: `line`",
        "`deserved` of 1 Queue has an effect only on sessions in which a plugin reads it: "
        "`research`",
        "`volcano.sh/nodegroup-resource-limits` of 1 Queue has no effect on sessions: `line`",
    ]


def test_a_configuration_of_its_own_is_linted_and_compared(policy: Policy, tmp_path: Path) -> None:
    """What Volcano itself reads needs no heading of ours; what is not modelled is named."""
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(TDM)
    linted = policy("rules", "lint", file, "-o", "json")
    assert [row["finding"] for row in json.loads(linted.out)] == ["no-division", "not-modelled"]
    assert "argument `tdm.evict.period` of Volcano is left out" in linted.err
    compared = policy("rules", "diff", "volcano", file)
    assert "`actions`: enqueue, allocate, backfill before, now allocate" in compared.out


def test_other_rules_and_other_objects_are_tried_without_a_trace(
    policy: Policy, database: str, tmp_path: Path
) -> None:
    """A larger queue, and a recorded session held again without the action that placed a pod."""

    def asked(*arguments: object) -> tuple[int, list[dict[str, Any]]]:
        done = policy("batch", *arguments, "--db", database, "-o", "json")
        return done.status, json.loads(done.out)

    assert policy("batch", "run", "--rules", "volcano", "--db", database).status == 0
    larger = tmp_path / "queue.yaml"
    larger.write_text(LARGER)
    assert asked("what-if", "--file", larger, "--rules", "volcano") == (
        0,
        [
            {"subject": "ml/train-0", "before": "", "after": "bound to n1"},
            {"subject": "job ml/train", "before": "waits: not-enqueued", "after": ""},
        ],
    )
    other = tmp_path / "other.yaml"
    other.write_text(
        "apiVersion: policy/v1\nkind: BatchRules\nmetadata: {name: other}\nextends: volcano\n"
        "spec: {actions: [enqueue, backfill]}\n"
    )
    assert asked("compare", "1", "--rules", other) == (
        5,
        [
            {"subject": "ml/small-0", "before": "bound to n1", "after": ""},
            {"subject": "job ml/small", "before": "", "after": "waits: not-tried"},
        ],
    )
    assert len(asked("sessions")[1]) == 1


def test_a_configuration_of_which_nothing_divides_the_cluster_needs_a_word(
    policy: Policy, database: str, tmp_path: Path
) -> None:
    """Where the plugin that had a say about queues is not modelled, `--anyway` is asked for."""
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(EXTENDED)
    run = ("batch", "run", "--dry-run", "--rules", file, "--db", database)
    refused = policy(*run)
    assert (refused.status, "plugin extender" in refused.err) == (2, True)
    held = policy(*run, "--anyway")
    assert (held.status, "plugin extender" in held.out) == (0, True)
    assert "plugin `extender` of Volcano is left out" in held.err


def test_a_limit_before_any_node_is_the_answer_to_why_not(policy: Policy, tmp_path: Path) -> None:
    """A job that no action looked for a node for has its limit with the numbers, not silence."""
    dump, database = tmp_path / "cluster.yaml", str(tmp_path / "limits.db")
    dump.write_text(CLUSTER)
    assert policy("import", dump, "--db", database).status == 0
    assert policy("batch", "run", "--rules", "volcano", "--db", database).status == 0
    shown = policy(
        "batch", "explain", "1", "--why-not", "n1", "--job", "ml/train", "--db", database
    )
    assert shown.out.splitlines() == [
        "no action looked for a node for ml/train (queue research): its group was not let into its"
        " queue; minimum 1, ready 0, promised 0, pending 1",
        "  enqueue: tier 2, proportion: queue research would pass its capability"
        " (cpu in use 1 of 4, asked for 6, 3 left)",
    ]
