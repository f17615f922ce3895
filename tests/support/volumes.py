"""Manifests of pods with volumes, and of what stands behind them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DRIVER = "disk.example.com"
Manifest = dict[str, Any]


def node(name: str, *, conditions: dict[str, str] | None = None, **labels: str) -> Manifest:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": {k.replace("_", "/"): v for k, v in labels.items()}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": k, "status": v} for k, v in (conditions or {}).items()],
        },
    }


def pod(
    name: str,
    *claims: str,
    on: str = "",
    priority: int = 0,
    cpu: str | None = "1",
    volumes: list[Manifest] | None = None,
    nominated: str = "",
) -> Manifest:
    own = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    requests = {} if cpu is None else {"resources": {"requests": {"cpu": cpu}}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": on,
            "priority": priority,
            "containers": [{"name": "main", **requests}],
            "volumes": [*own, *(volumes or [])],
        },
        "status": {
            "phase": "Running" if on else "Pending",
            "nominatedNodeName": nominated,
            "startTime": "2026-11-20T00:00:00Z" if on else None,
        },
    }


def claim(name: str, volume: str = "", *, mode: str = "ReadWriteOnce", **more: Any) -> Manifest:
    meta = {"name": name, "namespace": "shop", **more.pop("metadata", {})}
    spec: Manifest = {"accessModes": [mode], **more.pop("spec", {})}
    if volume:
        meta.setdefault("annotations", {"pv.kubernetes.io/bind-completed": "yes"})
        spec["volumeName"] = volume
    else:
        spec.setdefault("storageClassName", "waiting")
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": meta,
        "spec": spec,
        **more,
    }


def volume(name: str, *, labels: dict[str, str] | None = None, nodes: str = "") -> Manifest:
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [nodes]}]}]
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if nodes else {}
    return {
        "kind": "PersistentVolume",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"}, **affinity},
    }


def storage_class(
    name: str, *, waits: bool = True, provisioner: str = "maker.example.com", **more: Any
) -> Manifest:
    return {
        "kind": "StorageClass",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **more,
    }


WAITING = storage_class("waiting")
"""The class of claims without a volume."""


def csi_node(name: str, count: int) -> Manifest:
    return {
        "kind": "CSINode",
        "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": DRIVER, "allocatable": {"count": count}}]},
    }
