"""Dumps of real clusters are read, from Kubernetes 1.7 to today."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from policy.manifests import ManifestSet, read, resolve

DATA = Path(__file__).parents[1] / "data" / "manifests"
SHARED = Path(os.environ.get("POLICY_SHARED", Path(__file__).parents[3] / "shared"))
DUMPS = SHARED / "realdata" / "k8s-dumps"


def kinds(found: ManifestSet) -> Counter[str]:
    objects = resolve(found.objects, places=found.places)
    return Counter(type(obj).__name__ for obj in objects)


EXPECTED = {
    "aaheiev-pods.json.gz": {"Pod": 135},
    "cloudability-pods.json": {"Pod": 6},
    "honeycomb-nodes.json": {"Node": 2},
    "insights-operator-events.json": {},
    "insights-operator-node.json": {"Node": 1},
    "insights-operator-pdb.json": {"PodDisruptionBudget": 1},
    "insights-operator-pod.json": {"Pod": 1},
    "insights-operator-version.json": {},
    "k9s-ev.json": {},
    "k9s-pdb.json": {"PodDisruptionBudget": 1},
    "k9s-po_sidecar.json": {"Pod": 1},
    "nri-1_22-nodes.yaml": {"Node": 1},
    "nri-1_35-pods.yaml.gz": {"Pod": 25},
    "renku-gpu-node.json": {"Node": 1},
    "sonobuoy-0.9-nodes.json": {"Node": 3},
    "sonobuoy-0.9-pods.json": {"Pod": 1},
    "sonobuoy-priorityclasses.json": {"PriorityClass": 2},
    "troubleshoot-pending-pod.json": {"Pod": 1},
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_dump_is_read(name: str) -> None:
    """Every used object of a real dump is found, with or without `kind`."""
    assert kinds(read([DATA / name])) == Counter(EXPECTED[name])


def test_every_shipped_dump_is_expected() -> None:
    """No file of the folder is left untested."""
    names = {file.name for file in DATA.iterdir()} - {"README.md"}
    assert names == EXPECTED.keys()


def dumps() -> list[Path]:
    """All real dumps at hand: the shipped ones, and the collection beside the checkout."""
    files = [DATA / name for name in EXPECTED]
    if DUMPS.is_dir():
        files.extend(
            file for file in DUMPS.rglob("*") if ".json" in file.name or ".yaml" in file.name
        )
    return sorted(files)


def test_no_real_dump_is_refused() -> None:
    """Real dumps hold every oddity, and nothing in them stops an import."""
    refused = {}
    for file in dumps():
        try:
            kinds(read([file]))
        except Exception as exc:  # noqa: BLE001  # any failure is a finding of this test
            refused[str(file)] = str(exc)
    assert refused == {}
