"""`policy rules for` names the rule set of a version, or of the nodes of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.commands import Policy

NODES = """\
apiVersion: v1
kind: Node
metadata: {name: a}
status: {nodeInfo: {kubeletVersion: v1.30.8-eks-1}}
---
apiVersion: v1
kind: Node
metadata: {name: b}
status: {nodeInfo: {kubeletVersion: v1.29.3}}
"""


def test_the_rule_set_of_a_version_with_its_reason(policy: Policy) -> None:
    """The answer names the versions, the reason, and what other patches of the minor version do."""
    done = policy("rules", "for", "1.30.8", "--output", "json")
    [row] = json.loads(done.out)
    assert (row["rules"], row["versions"], row["why"], done.err.strip()) == (
        "kube-1.30",
        "1.30.7 and later patches",
        "since 1.30.7 victims are sorted again by importance, and the node may be another one",
        "other patches of 1.30 decide otherwise: kube-1.30.6 (1.30.0 to 1.30.6)",
    )


def test_the_rule_set_of_a_cluster_is_that_of_its_newest_kubelet(
    policy: Policy, tmp_path: Path
) -> None:
    """No kubelet is newer than its control plane; that the latter may be newer is said."""
    (tmp_path / "nodes.yaml").write_text(NODES)
    database = str(tmp_path / "p.db")
    policy("import", str(tmp_path / "nodes.yaml"), "--db", database)
    done = policy("rules", "for", "--cluster", "default", "--db", database, "--output", "json")
    assert (json.loads(done.out)[0]["rules"], done.err.splitlines()[0]) == (
        "kube-1.30",
        "kubelets of cluster default: v1.29.3 (1), v1.30.8-eks-1 (1); "
        "its control plane may be newer",
    )


def test_a_version_without_a_rule_set_is_told_the_nearest_ones(policy: Policy) -> None:
    """What was never recorded gets no guess, but the neighbours on both sides."""
    done = policy("rules", "for", "1.17.3")
    assert (done.status, done.err.strip()) == (
        1,
        "no shipped rule set decides like 1.17.3; "
        "the nearest: kube-1.14 (1.13 to 1.14), kube-1.20 (1.19 to 1.26)",
    )
