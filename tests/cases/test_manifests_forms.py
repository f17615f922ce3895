"""Every form in which people have their manifests gives the same objects."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from policy.cluster.objects import Node, Pod, PriorityClass, key_of
from policy.manifests import ManifestSet, from_dicts, read

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "shop"},
    "spec": {
        "nodeName": "n1",
        "priority": 10,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}],
    },
    "status": {"startTime": "2026-11-20T08:00:00Z"},
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
}
LIST: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": [NODE, POD]}

YAML_NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "4", memory: 16Gi, pods: "110"}
"""
YAML_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec:
  nodeName: n1
  priority: 10
  containers:
  - name: c
    resources: {requests: {cpu: 250m, memory: 1Gi}}
status:
  startTime: 2026-11-20T08:00:00Z
"""


def without_kind(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def indented(text: str) -> str:
    return "- " + text.replace("\n", "\n  ").rstrip()


FORMS: dict[str, str] = {
    "list.json": json.dumps(LIST, indent=2),
    "array.json": json.dumps([NODE, POD]),
    "array-without-kind.json": json.dumps([without_kind(NODE), without_kind(POD)]),
    "items-without-kind.json": json.dumps({"items": [without_kind(NODE), without_kind(POD)]}),
    "lines.jsonl": f"{json.dumps(NODE)}\n\n{json.dumps(POD)}\n",
    "one-after-the-other.json": json.dumps(NODE, indent=1) + "\n" + json.dumps(POD, indent=1),
    "lists-after-each-other.json": "".join(
        json.dumps({"kind": f"{o['kind']}List", "items": [without_kind(o)]}, indent=1)
        for o in (NODE, POD)
    ),
    "list-of-lists.json": json.dumps({"kind": "List", "items": [LIST]}),
    "nulls.json": json.dumps(
        [NODE, {**POD, "spec": {**POD["spec"], "hostNetwork": None, "tolerations": None}}]
    ),
    "documents.yaml": f"---\n{YAML_NODE}---\n# nothing here\n---\n{YAML_POD}---\n",
    "list.yaml": f"kind: List\nitems:\n{indented(YAML_NODE)}\n{indented(YAML_POD)}\n",
    "flow.yaml": f"{{kind: List, items: [{json.dumps(NODE)}, {json.dumps(POD)}]}}",
    "watch.jsonl": "\n".join(
        json.dumps(event)
        for event in (
            {"type": "ADDED", "object": {**NODE, "spec": {"unschedulable": True}}},
            {"type": "ADDED", "object": {**POD, "metadata": {"name": "gone"}}},
            {"type": "ADDED", "object": POD},
            {"type": "DELETED", "object": {**POD, "metadata": {"name": "gone"}}},
            {"type": "MODIFIED", "object": NODE},
            {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {}}},
        )
    ),
}


def plain(found: ManifestSet) -> list[Any]:
    return sorted(found.objects, key=lambda obj: type(obj).__name__)


@pytest.fixture
def expected(tmp_path: Path) -> list[Any]:
    return plain(read_text(tmp_path, "expected.json", json.dumps(LIST)))


def read_text(folder: Path, name: str, text: str | bytes) -> ManifestSet:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read([file])


def test_a_list_gives_typed_objects(expected: list[Any]) -> None:
    """A kubectl List is read into typed objects with their exact fields."""
    node, pod = expected
    assert isinstance(node, Node)
    assert isinstance(pod, Pod)
    assert node.status.allocatable == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    assert (key_of(pod), pod.spec.priority, pod.status.start_time) == (
        "shop/web-1",
        10,
        "2026-11-20T08:00:00Z",
    )


@pytest.mark.parametrize("name", FORMS)
def test_each_form_gives_the_same_objects(tmp_path: Path, expected: list[Any], name: str) -> None:
    """A form of writing manifests does not change what is read."""
    assert plain(read_text(tmp_path, name, FORMS[name])) == expected


@pytest.mark.parametrize("name", ["list.json", "lines.jsonl", "documents.yaml"])
def test_gzip_is_known_by_its_magic_bytes(tmp_path: Path, expected: list[Any], name: str) -> None:
    """A gzipped file is unpacked, whatever its name, also when it was packed twice."""
    packed = gzip.compress(gzip.compress(FORMS[name].encode()))
    assert plain(read_text(tmp_path, "some.data", packed)) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks_are_understood(
    tmp_path: Path, expected: list[Any], encoding: str
) -> None:
    """What a Windows shell writes with `>` is read like any other file."""
    assert plain(read_text(tmp_path, "dump.json", FORMS["list.json"].encode(encoding))) == expected


def test_a_dash_is_standard_input(expected: list[Any]) -> None:
    """`-` reads the given stream, gzipped or not."""
    packed = io.BytesIO(gzip.compress(FORMS["list.json"].encode()))
    found = read(["-"], stdin=packed)
    assert (plain(found), found.sources) == (expected, ("<stdin>",))


def test_a_folder_is_read_recursively_by_name(tmp_path: Path, expected: list[Any]) -> None:
    """Manifests of a folder are read, other files are counted."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "nodes.yml").write_text(YAML_NODE)
    (tmp_path / "sub" / "pods.json.gz").write_bytes(gzip.compress(json.dumps(POD).encode()))
    (tmp_path / "notes.txt").write_text("not: [a manifest")
    (tmp_path / "numbers.json").write_text("[1, 2]")
    (tmp_path / "empty.yaml").write_text("")
    found = read([tmp_path])
    assert plain(found)[1:] == expected[1:]
    assert found.skipped == Counter({"(other files)": 1, "(no kind)": 2, "(empty file)": 1})


def test_other_kinds_are_counted(tmp_path: Path) -> None:
    """Kinds that decide nothing, and kinds of other API groups, are skipped and counted."""
    objects = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        {"apiVersion": "rabbitmq.com/v1beta1", "kind": "Queue", "metadata": {"name": "q"}},
        {"metadata": {"name": "e"}, "involvedObject": {"name": "x"}},
        {"kind": "EventList", "items": [{}, {}]},
        {"gitVersion": "v1.30.0"},
        POD,
    ]
    found = read_text(tmp_path, "dump.json", json.dumps(objects))
    assert [key_of(obj) for obj in found.objects] == ["shop/web-1"]
    assert found.skipped == Counter(
        {"ConfigMap": 1, "Queue (rabbitmq.com/v1beta1)": 1, "Event": 3, "(no kind)": 1}
    )


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ({"spec": {"containers": []}}, "Pod"),
        ({"status": {"nodeInfo": {}}}, "Node"),
        ({"spec": {"podCIDR": "10.0.0.0/24"}}, "Node"),
        ({"value": 5}, "PriorityClass"),
        ({"spec": {"minAvailable": 1}}, "PodDisruptionBudget"),
        ({"spec": {"maxUnavailable": "25%"}}, "PodDisruptionBudget"),
        ({"status": {"disruptionsAllowed": 0}}, "PodDisruptionBudget"),
        ({"spec": {"finalizers": ["kubernetes"]}}, "Namespace"),
        ({"spec": {"minMember": 3}}, "PodGroup"),
        ({"spec": {"drivers": []}}, "CSINode"),
        ({"spec": {"clusterIP": "10.0.0.1"}}, "Service"),
        ({"spec": {"accessModes": [], "capacity": {}}}, "PersistentVolume"),
        ({"spec": {"accessModes": []}}, "PersistentVolumeClaim"),
    ],
)
def test_the_shape_tells_a_missing_kind(tmp_path: Path, shape: dict[str, Any], kind: str) -> None:
    """An object without kind is known by the fields that only its kind has."""
    text = json.dumps({"metadata": {"name": "x"}, **shape})
    assert [type(o).__name__ for o in read_text(tmp_path, "x.json", text).objects] == [kind]


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
def test_old_api_versions_are_read(tmp_path: Path, version: str) -> None:
    """A budget is a budget in every version of its API group."""
    budget = {"apiVersion": version, "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    assert [key_of(o) for o in read_text(tmp_path, "b.json", json.dumps(budget)).objects] == [
        "default/b"
    ]


def test_of_two_versions_the_later_counts(tmp_path: Path) -> None:
    """An object that stands twice is taken once, as it stood last, and that is told."""
    classes = [
        {"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": value}
        for value in (1, 1, 2)
    ]
    found = read_text(tmp_path, "classes.json", json.dumps(classes))
    assert [o.value for o in found.objects if isinstance(o, PriorityClass)] == [2]
    assert found.repeated == {"PriorityClass gold": 1}


def test_progress_ends_at_the_size_of_the_files(tmp_path: Path) -> None:
    """Progress counts the bytes of all files, never backwards, and ends at their sum."""
    (tmp_path / "a.json").write_text(FORMS["list.json"])
    (tmp_path / "b.yaml").write_text(FORMS["documents.yaml"])
    steps: list[tuple[int, int]] = []
    read([tmp_path], progress=lambda done, total: steps.append((done, total)))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert steps[-1] == (size, size)
    assert steps == sorted(steps)


def test_decoded_objects_are_read_like_files(expected: list[Any]) -> None:
    """`from_dicts` gives what a file of the same objects gives, with admission's defaults."""
    pod = from_dicts([NODE, POD])[1]
    assert isinstance(pod, Pod)
    assert pod.spec.scheduler_name == "default-scheduler"
    assert pod.metadata == expected[1].metadata
