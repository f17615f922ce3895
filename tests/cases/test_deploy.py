"""The manifests of `deploy/`: of the schema of Kubernetes, and with the rights that were meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from policy.cluster import quantities
from policy.live.figures import FollowerFigures
from policy.live.status import FollowerMetrics
from policy.rules.scheduler_config import generation_of, profiles_of
from policy.server.metrics import Metrics
from policy.store.read.bounds import TEMPORARY_MIB

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = Path(__file__).parents[2] / "docs"
BASE = DEPLOY / "base"
_OF_PODS = "podMetricsEndpoints"
KUSTOMIZATIONS = sorted(file.parent for file in DEPLOY.rglob("kustomization.yaml"))


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def listed(folder: Path) -> list[str]:
    """The files that are applied with a folder."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    names: list[str] = kustomization["resources"]
    return names


def manifests(folder: Path = BASE) -> list[dict[str, Any]]:
    return [manifest for name in listed(folder) for manifest in documents(folder / name)]


def all_manifests() -> list[dict[str, Any]]:
    """Every object of every YAML file, in a folder or not."""
    return [one for file in sorted(DEPLOY.rglob("*.yaml")) for one in documents(file)]


def of_kind(kind: str, folder: Path = BASE) -> dict[str, Any]:
    (found,) = [manifest for manifest in manifests(folder) if manifest["kind"] == kind]
    return found


def partition_template() -> dict[str, Any]:
    """Of the pods that close months."""
    template: dict[str, Any] = of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    return template


@pytest.mark.parametrize(
    "manifest", all_manifests(), ids=lambda m: f"{m['kind']} {m.get('metadata', {}).get('name')}"
)
def test_it_is_of_the_schema(manifest: dict[str, Any]) -> None:
    """Unknown and misspelt fields are errors; kinds of other projects have another schema."""
    match manifest["apiVersion"].partition("/")[0]:
        case "monitoring.coreos.com":
            endpoints = "endpoints" if manifest["kind"] == "ServiceMonitor" else _OF_PODS
            assert set(manifest["spec"]) == {"selector", endpoints}
        case "kustomize.config.k8s.io":
            assert set(manifest) == {"apiVersion", "kind", "namespace", "resources"}
        case "kubescheduler.config.k8s.io":
            (profile,) = profiles_of(yaml.safe_dump(manifest), "scheduler-config.yaml")
            assert generation_of(profile) != ""
        case _:
            kubernetes_validate.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=lambda f: f.name)
def test_kustomize_is_given_every_file(folder: Path) -> None:
    """And no manifest of Kubernetes lies beside the folders, where nothing applies it."""
    assert {*listed(folder), "kustomization.yaml"} == {file.name for file in folder.iterdir()}
    assert {file.name for file in DEPLOY.glob("*.yaml")} == {"scheduler-config.yaml"}
    assert [folder.name for folder in KUSTOMIZATIONS] == ["base", "follow", "otel"]


def test_the_folders_belong_together() -> None:
    """One namespace, one image, one secret with the database; no name is given twice."""
    whole = [(folder, one) for folder in KUSTOMIZATIONS for one in manifests(folder)]
    assert {documents(f / "kustomization.yaml")[0]["namespace"] for f in KUSTOMIZATIONS} == {
        "policy-system"
    }
    given = {one["metadata"].get("namespace", "policy-system") for _, one in whole}
    assert given == {"policy-system"}
    names = [(one["kind"], one["metadata"]["name"]) for _, one in whole]
    assert sorted(set(names)) == sorted(names)
    (account,) = of_kind("ClusterRoleBinding", DEPLOY / "follow")["subjects"]
    assert (account["namespace"], account["name"]) == ("policy-system", "policy-follow")
    pods = [
        of_kind("Deployment")["spec"]["template"]["spec"],
        of_kind("Deployment", DEPLOY / "follow")["spec"]["template"]["spec"],
        partition_template()["spec"],
    ]
    databases = {
        (variable["name"], *variable["valueFrom"]["secretKeyRef"].values())
        for pod in pods
        for variable in pod["containers"][0]["env"]
        if "valueFrom" in variable
    }
    assert {pod["containers"][0]["image"] for pod in pods} == {"policy:latest"}
    assert databases == {
        ("POLICY_DB", "policy-database", "url"),
        ("POLICY_READER_DB", "policy-database", "reader-url"),
    }


def test_temporary_files_of_sql_have_room() -> None:
    """SQLite takes the volume, which holds what it may write until that is looked at again."""
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (folder,) = [one["value"] for one in container["env"] if one["name"] == "SQLITE_TMPDIR"]
    (mount,) = [one["name"] for one in container["volumeMounts"] if one["mountPath"] == folder]
    (size,) = [one["emptyDir"]["sizeLimit"] for one in pod["volumes"] if one["name"] == mount]
    assert quantities.units(size) >= 4 * TEMPORARY_MIB << 20


def test_the_image_notes_where_it_may_write() -> None:
    """As the deployment does: beside tokens that are mounted nothing can be written."""
    image = (DEPLOY.parent / "Dockerfile").read_text()
    command = json.loads(re.sub(r"\\\n", "", image.partition("\nCMD ")[2]))
    given = dict(zip(command[1::2], command[2::2], strict=True))
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    wanted = dict(one.split("=") for one in container["args"] if "=" in one)
    assert given == {name: wanted[name] for name in ("--host", "--tokens", "--token-uses")}


@pytest.mark.parametrize("page", ["service.md", "groups.md", "tutorial.md", "../README.md"])
def test_all_that_decides_is_exported(page: str) -> None:
    """Without services and controllers, pods are spread otherwise than in the cluster."""
    lines = (DOCS / page).read_text().split("\n")
    (found,) = [line for line in lines if "kubectl get nodes,pods" in line]
    kinds = found.partition("kubectl get ")[2].partition(" ")[0]
    assert kinds == "nodes,pods,pdb,priorityclasses,namespaces,services,rc,rs,sts"


def test_prometheus_finds_the_follower() -> None:
    """By the label of its pods, at a port that they have."""
    asked = of_kind("PodMonitor", DEPLOY / "follow")["spec"]
    template = of_kind("Deployment", DEPLOY / "follow")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert asked["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert [one["port"] for one in asked[_OF_PODS]] == [p["name"] for p in container["ports"]]


def test_only_who_follows_reaches_the_api_server() -> None:
    """The service and its months reach Postgres; traces leave it by a policy of their own."""
    reached = {
        one["metadata"]["name"]: {
            port["port"] for rule in one["spec"]["egress"] for port in rule["ports"]
        }
        for folder in KUSTOMIZATIONS
        for one in manifests(folder)
        if one["kind"] == "NetworkPolicy"
    }
    assert reached == {
        "policy": {53, 5432},
        "policy-partition": {53, 5432},
        "policy-follow": {53, 5432, 443, 6443},
        "policy-otel": {4318},
    }
    (otel,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]["envFrom"]
    endpoint = of_kind("ConfigMap", DEPLOY / "otel")
    assert otel["configMapRef"] == {"name": endpoint["metadata"]["name"], "optional": True}
    assert endpoint["data"]["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(":4318")


def test_who_follows_only_reads() -> None:
    """It lists and watches, and is none of the service's pods."""
    rules = of_kind("ClusterRole", DEPLOY / "follow")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}
    template = of_kind("Deployment", DEPLOY / "follow")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    service = of_kind("Deployment")["spec"]["template"]["spec"]
    assert template["metadata"]["labels"] != of_kind("Service")["spec"]["selector"]
    assert container["securityContext"] == service["containers"][0]["securityContext"]
    ours = {k: v for k, v in service["securityContext"].items() if k != "fsGroup"}
    assert template["spec"]["securityContext"] == ours


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


def test_the_dashboard_shows_every_metric() -> None:
    """Those of the service and of the follower; a histogram by its buckets."""
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]
    used = {
        name
        for panel in panels
        for target in panel.get("targets", ())  # a heading has none
        for name in re.findall(r"policy_[a-z_]+", target["expr"])
    }
    suffixes = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    service = Metrics().registry.collect()
    follower = FollowerMetrics(FollowerFigures, lambda: 0).collect()
    assert used == {one.name + suffixes[one.type] for one in (*service, *follower)}


def test_the_documented_patch_changes_the_mode() -> None:
    """docs/service.md, from shadow to enforce: the path is that of the argument."""
    page = (DOCS / "service.md").read_text()
    (index, value), *more = re.findall(r"containers/0/args/(\d+), value: (\S+)}", page)
    (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    assert (container["args"][int(index)], value, more) == (
        "--extender-mode=shadow",
        "--extender-mode=enforce",
        [],
    )


def test_the_documentation_names_every_metric() -> None:
    """The tables of docs/service.md and docs/follow.md, and nothing that there is not."""
    followed = FollowerMetrics(FollowerFigures, lambda: 0)
    totals = {"counter": "_total"}
    expected = {
        page: {metric.name + totals.get(metric.type, "") for metric in found}
        for page, found in {
            "service.md": Metrics().registry.collect(),
            "follow.md": followed.collect(),
        }.items()
    }
    assert expected == {
        page: set(re.findall(r"^\| `(policy_[a-z_]+)` \|", (DOCS / page).read_text(), re.MULTILINE))
        for page in expected
    }


def test_the_scheduler_calls_what_the_service_serves() -> None:
    """The extender of the scheduler's configuration asks for preempt alone."""
    (extender,) = yaml.safe_load((DEPLOY / "scheduler-config.yaml").read_text())["extenders"]
    assert extender["urlPrefix"].endswith("/extender/prod")
    assert {k: v for k, v in extender.items() if k.endswith("Verb")} == {"preemptVerb": "preempt"}
