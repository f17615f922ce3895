"""The manifests of `deploy/`: of the schema of Kubernetes, and with the rights that were meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from policy.server.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "base"


def manifests() -> list[dict[str, Any]]:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [yaml.safe_load((BASE / name).read_text()) for name in listed]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [manifest for manifest in manifests() if manifest["kind"] == kind]
    return found


def partition_template() -> dict[str, Any]:
    """Of the pods that close months."""
    template: dict[str, Any] = of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    return template


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda m: f"{m['kind']} {m['metadata']['name']}"
)
def test_it_is_of_the_schema(manifest: dict[str, Any]) -> None:
    """Unknown and misspelt fields are errors; kinds of other projects have another schema."""
    if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
        assert set(manifest["spec"]) == {"selector", "endpoints"}
    else:
        kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_kustomize_is_given_every_file() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {file.name for file in BASE.iterdir()}


def test_the_service_has_no_right_in_the_cluster() -> None:
    """No role is bound, no token mounted; it runs without root on a read-only file system."""
    kinds = {manifest["kind"] for manifest in manifests()}
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & kinds
    for template in (of_kind("Deployment")["spec"]["template"], partition_template()):
        pod = template["spec"]
        (container,) = pod["containers"]
        assert (
            pod["automountServiceAccountToken"],
            {k: v for k, v in pod["securityContext"].items() if k != "fsGroup"},
            container["securityContext"],
        ) == (
            False,
            {
                "runAsNonRoot": True,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        )


def test_months_are_closed_by_a_pod_that_is_none_of_the_service() -> None:
    """No call reaches it, and it reaches Postgres alone."""
    labels = partition_template()["metadata"]["labels"]
    policies = {
        manifest["metadata"]["name"]: manifest["spec"]
        for manifest in manifests()
        if manifest["kind"] == "NetworkPolicy"
    }
    service = of_kind("Service")["spec"]["selector"]
    budget = of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    assert labels not in (service, budget, policies["policy"]["podSelector"]["matchLabels"])
    its_own = policies["policy-partition"]
    assert its_own["podSelector"]["matchLabels"] == labels
    assert "ingress" not in its_own
    assert its_own["egress"] == policies["policy"]["egress"]


def test_the_dashboard_names_metrics_that_exist() -> None:
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    used = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"policy_[a-z_]+", target["expr"])
    }
    known = {
        name
        for metric in Metrics().registry.collect()
        for name in (metric.name, f"{metric.name}_total", f"{metric.name}_bucket")
    }
    assert used - known == set()
    assert len(used) == 8


def test_the_scheduler_calls_what_the_service_serves() -> None:
    """The extender of the scheduler's configuration asks for preempt alone."""
    (extender,) = yaml.safe_load((DEPLOY / "scheduler-config.yaml").read_text())["extenders"]
    assert extender["urlPrefix"].endswith("/extender/prod")
    assert {k: v for k, v in extender.items() if k.endswith("Verb")} == {"preemptVerb": "preempt"}
