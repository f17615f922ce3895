"""A manifest that cannot be used is refused whole, with every problem named in one form."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policy.manifests import ManifestError, from_dicts, read
from tests.support.tried import Kind, Tried


def refused(folder: Path, name: str, text: str | bytes) -> str:
    """The error of reading one file, with the folder cut off."""
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ManifestError) as caught:
        read([file])
    return str(caught.value).replace(f"{folder}/", "")


def a_pod(**spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "web-1", "namespace": "shop"}, "spec": spec}


def containers(**resources: Any) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": resources}]


def test_every_problem_of_a_file_is_named_at_once(tmp_path: Path) -> None:
    """Document, object, field, what is wrong and what to do: for all objects, in one error."""
    text = """\
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: four, "odd/key": -}}
---
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {zone: 3}, creationTimestamp: yesterday}
spec:
  priority: high
  containers: [{name: c, ports: {}, resources: {requests: {cpu: [1]}}}]
---
kind: Pod
metadata: {name: web-2}
spec: {priority: 3000000000, containers: [{resources: {limits: {memory: -1Gi}}}]}
status: {startTime: 2026-13-01T00:00:00Z}
---
kind: PriorityClass
metadata: {}
preemptionPolicy: Sometimes
---
just a text
"""
    assert refused(tmp_path, "dump.yaml", text) == (
        """\
dump.yaml: document 1: Node n1: status.allocatable.cpu: `four` is not a quantity
  help: for example `500m`, `2`, `1536Mi`, `1G`
dump.yaml: document 1: Node n1: status.allocatable["odd/key"]: `-` is not a quantity
  help: for example `500m`, `2`, `1536Mi`, `1G`
dump.yaml: document 2: Pod shop/web-1: metadata.labels.zone: expected a string, got the number `3`
  help: quote it: "3"
dump.yaml: document 2: Pod shop/web-1: spec.priority: expected a whole number, got the string `high`
dump.yaml: document 2: Pod shop/web-1: spec.containers[0].resources.requests.cpu: """
        """expected a string or a number, got a list
dump.yaml: document 2: Pod shop/web-1: spec.containers[0].ports: expected a list, got a mapping
dump.yaml: document 3: Pod web-2: spec.priority: `3000000000` is out of range
  help: from -2147483648 to 2147483647
dump.yaml: document 3: Pod default/web-2: """
        """spec.containers[0].resources.limits.memory: `-1Gi` is negative
dump.yaml: document 3: Pod default/web-2: """
        """status.startTime: `2026-13-01T00:00:00Z` is not an RFC 3339 time
  help: write it as `2026-11-21T00:00:00Z`
dump.yaml: document 4: PriorityClass: value: missing
dump.yaml: document 5: object: expected a Kubernetes object, got the text `just a text`"""
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            json.dumps({"kind": "PodList", "items": [a_pod(containers=containers(requests=1))]}),
            "dump.json: Pod shop/web-1: spec.containers[0].resources.requests: expected a mapping,"
            " got the number `1`",
        ),
        (
            json.dumps([{"kind": "Pod", "metadata": {}}]),
            "dump.json: Pod (item 1): metadata.name: missing\n  help: every object needs a name",
        ),
        (
            json.dumps([{"kind": "Pod", "metadata": {"name": "a/b", "namespace": "c/d"}}]),
            "dump.json: Pod c/d/a/b: metadata.name: `a/b` holds a `/`\n"
            "dump.json: Pod c/d/a/b: metadata.namespace: `c/d` holds a `/`",
        ),
        (
            json.dumps(a_pod(preemptionPolicy="Maybe")),
            "dump.json: Pod shop/web-1: spec.preemptionPolicy: `Maybe` is not a preemption policy\n"
            "  help: one of `PreemptLowerPriority`, `Never`",
        ),
        (
            json.dumps(a_pod(containers=[{"name": "c", "ports": [{"hostPort": 70000}]}])),
            "dump.json: Pod shop/web-1: spec.containers[0].ports[0].hostPort:"
            " `70000` is out of range\n  help: from 0 to 65535",
        ),
        (
            json.dumps({"kind": 7, "metadata": {"name": "x"}}),
            "dump.json: object: kind: expected a string, got the number `7`",
        ),
        (
            json.dumps({"metadata": {"name": "x"}}),
            "dump.json: object x: no `kind`, and nothing tells which it is\n"
            "  help: add `kind` and `apiVersion`",
        ),
        (
            json.dumps({"Items": [{"Spec": {"NodeName": "n1"}}]}),
            "dump.json: object: capitalised field names (`Items`), as Kubernetes before 1.9 dumped"
            " them\n  help: export with `kubectl get nodes,pods,pdb,priorityclasses,namespaces,"
            "services,rc,rs,sts -A -o json`",
        ),
        (
            json.dumps({"type": "ERROR", "object": {"message": "too old resource version"}}),
            "dump.json: the watch ended in an error: too old resource version",
        ),
        (
            '{"kind": "List",\n "items": [{"kind": "Pod"',
            "dump.json:2:26: the text ends in the middle of a JSON value\n"
            "  help: the file was cut off; export or copy it again",
        ),
        (
            '{"kind": "List",\n "items": [}',
            "dump.json:2:12: not valid JSON: expecting value",
        ),
        ("[" * 100_000, "dump.json:1:1: nested too deeply"),
        (
            "",
            "dump.json: the file is empty\n  help: did the export fail?",
        ),
        (
            "a: [1\nb: 2",
            "dump.json:2:2: not YAML: did not find expected ',' or ']'",
        ),
        (
            "a:\n\t- b",
            "dump.json:2:1: not YAML: found character that cannot start any token\n"
            "  help: indent with spaces, and quote values that start with a sign",
        ),
        (
            gzip.compress(b"{}" * 100, mtime=0)[:-9],
            "dump.json: gzip data is damaged or cut off\n"
            "  help: `gzip --test` tells; copy or export the file again",
        ),
        (
            b"kind: Pod\nmetadata: {name: \xe9t\xe9}\n",
            "dump.json:2:18: not UTF-8 text\n  help: save it as UTF-8",
        ),
        (b"SQLite format 3\x00", "dump.json: a binary file, not a manifest"),
        (
            b"PK\x03\x04rest",
            "dump.json: an archive, not a manifest\n"
            "  help: unpack it and name the folder that holds the files",
        ),
    ],
)
def test_errors_say_where_and_what(
    tmp_path: Path, text: str | bytes, error: str, tried: Tried
) -> None:
    """Each mistake gets a message that a stranger can act on."""
    tried(Kind.BAD_MANIFEST)
    assert refused(tmp_path, "dump.json", text) == error


def test_a_missing_file_is_named_with_a_likely_one(tmp_path: Path) -> None:
    """A mistyped name gets a proposal, and no other file is read as if nothing had happened."""
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(ManifestError) as caught:
        read([tmp_path / "cluster.json", tmp_path / "clustre.json"])
    assert str(caught.value) == (
        f"{tmp_path}/clustre.json: no such file or folder\n"
        f"  help: did you mean `{tmp_path}/cluster.json`?"
    )


def test_a_single_document_needs_no_number(tmp_path: Path) -> None:
    """A file of one document names none."""
    text = "kind: Pod\nmetadata: {name: a}\nspec: {priority: x}\n"
    assert refused(tmp_path, "a.yaml", text) == (
        "a.yaml: Pod a: spec.priority: expected a whole number, got the string `x`"
    )


def test_twenty_problems_are_spelled_out(tmp_path: Path) -> None:
    """Of very many problems the first twenty are printed, the others counted."""
    pods = [a_pod(priority="x") for _ in range(33)]
    lines = refused(tmp_path, "dump.json", json.dumps(pods)).splitlines()
    assert (len(lines), lines[-1]) == (21, "and 13 more")


def test_problems_carry_fields(tmp_path: Path) -> None:
    """A program finds file, document, object, field and help without parsing the text."""
    file = tmp_path / "two.yaml"
    file.write_text("kind: Namespace\nmetadata: {name: a}\n---\nkind: Queue\nspec: {weight: 1.5}\n")
    with pytest.raises(ManifestError) as caught:
        read([file])
    fields = [(p.source, p.document, p.object, p.field, p.message) for p in caught.value.problems]
    assert fields == [
        (str(file), 2, "Queue", "metadata", "missing"),
        (str(file), 2, "Queue", "spec.weight", "expected a whole number, got the number `1.5`"),
    ]


def test_decoded_objects_name_their_position() -> None:
    """`from_dicts` counts objects from 1 in its errors."""
    with pytest.raises(ManifestError) as caught:
        from_dicts([a_pod(), a_pod(priority=[])])
    assert str(caught.value) == (
        "<objects>: document 2: Pod shop/web-1: spec.priority: expected a whole number, got a list"
    )
