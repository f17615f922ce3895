"""Reading many at once, and checking replicas once, changes neither objects nor messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policy.cluster.objects import Pod
from policy.manifests import Limits, ManifestError, json_texts, read
from policy.manifests.alike import Alike
from policy.manifests.json_texts import Items, Parts
from policy.manifests.sources import find, opened

SMALL = Limits(object_bytes=2000)


def a_pod(number: int, **changed: Any) -> dict[str, Any]:
    """A replica; changed: dotted paths with `__` for the dots."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number}", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "nodeName": f"n-{number}",
        },
        "status": {"phase": "Running", "startTime": "2026-11-21T00:00:00Z"},
    }
    for path, value in changed.items():
        part = pod
        *outer, last = path.split("__")
        for key in outer:
            part = part.setdefault(key, {})
        part[last] = value
    return pod


def text_of(pods: list[dict[str, Any]], indent: int | None = None) -> str:
    return json.dumps({"apiVersion": "v1", "items": pods, "kind": "List"}, indent=indent)


def outcome(file: Path) -> object:
    """All that reading gives: objects, places and counts, or every problem."""
    # Less than the whole, so that it is read item by item, and more than the middle is away.
    limits = Limits(object_bytes=max(SMALL.object_bytes, file.stat().st_size * 9 // 10))
    try:
        found = read([file], limits=limits)
    except ManifestError as error:
        return error.problems
    return found.objects, found.places, found.skipped, found.repeated


PODS = [a_pod(n) for n in range(60)]
GOOD = text_of(PODS)


def with_one(item: str) -> str:
    """The list with another text in the place of the item in its middle."""
    return GOOD.replace(json.dumps(PODS[40]), item)


CHANGED = json.dumps(a_pod(40, metadata__resourceVersion="7"))
TEXTS = {
    "compact": GOOD.replace(", ", ",").replace(": ", ":"),
    "indented": text_of(PODS, indent=4),
    "a key twice": with_one(CHANGED.replace('"resourceVersion": "7"', '"name": "web-40"')),
    "a key twice, and an escaped colon": with_one(
        CHANGED.replace('"resourceVersion": "7"', r'"name": "web-40", "x": "\u003a"')
    ),
    "a NUL": with_one(CHANGED.replace('"7"', r'"\u0000"')),
    "half of a surrogate pair": with_one(CHANGED.replace('"7"', r'"\ud800"')),
    "no number": with_one(CHANGED.replace('"7"', "1e999")),
    "not JSON": with_one(CHANGED.replace('"7"', "7x")),
    "cut off": GOOD[: GOOD.index("web-45")],
    "a text": with_one('"pod"'),
    "a list": with_one(text_of([a_pod(101), a_pod(102, spec__priority="high")])),
    "another list": with_one(json.dumps([a_pod(101), a_pod(102)])),
    "no kind": with_one(CHANGED.replace('"kind": "Pod", ', "")),
    "no kind in any": GOOD.replace('"kind": "Pod", ', "").replace('"List"', '"PodList"'),
    "the kind of the list first": GOOD.replace('"kind": "Pod", ', "").replace(
        '{"apiVersion"', '{"kind": "PodList", "apiVersion"', 1
    ),
    "a kind that is no text": with_one(CHANGED.replace('"Pod"', "7")),
    "a line of a watch": with_one(json.dumps({"type": "ADDED", "object": a_pod(40)})),
    "the same twice": with_one(json.dumps(PODS[3])),
    "one name twice": with_one(json.dumps(a_pod(3, spec__priority=9))),
    "looks like the end of an item": with_one(
        json.dumps(a_pod(40, x=[{"apiVersion": "v1"}, {"apiVersion": "v1"}], y='}, {"kind":'))
    ),
    "another kind": with_one(json.dumps({"kind": "Node", "metadata": {"name": "n-40"}})),
    "no API version": with_one(CHANGED.replace('"apiVersion": "v1", ', "")),
    "a number where a text belongs": with_one(json.dumps(a_pod(40, spec__nodeName=7))),
    "no name": with_one(json.dumps(a_pod(40, metadata__name=""))),
    "no name, twice, behind a list": with_one(
        json.dumps({"kind": "PodList", "items": [a_pod(101), a_pod(102)]})
    )
    .replace('"web-43"', '""')
    .replace('"web-44"', '""'),
    "a field of our own": with_one(json.dumps(a_pod(40, rest={"x": 1}))),
    "nested deeply": with_one("[" * 2000 + "]" * 2000),
    "two lists": GOOD + GOOD,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_many_at_once_are_read_as_one_by_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects, places, counts and every message are the same."""
    file = tmp_path / "dump.json"
    file.write_text(text)
    together = outcome(file)
    monkeypatch.setattr(json_texts, "_PIECE", 1500)
    assert outcome(file) == together, "in pieces of a few items"
    monkeypatch.setattr(Parts, "_many", lambda *_: [])
    assert outcome(file) == together, "one by one"


@pytest.mark.parametrize("piece", [1500, json_texts._PIECE])
@pytest.mark.parametrize("form", ["compact", "indented", "the kind of the list first"])
def test_most_items_of_a_long_list_are_decoded_together(
    form: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 pods hardly one is decoded alone, whatever the size of the pieces."""
    monkeypatch.setattr(json_texts, "_PIECE", piece)
    file = tmp_path / "dump.json"
    file.write_text(TEXTS[form])
    limits = Limits(object_bytes=len(TEXTS[form]) - 1000)
    with opened(find([file]).sources[0], None, limits=limits) as text:
        parts = list(Parts(text, most=limits.object_bytes))
    assert sum(len(part.values) for part in parts if isinstance(part, Items)) > 50


WRONG: list[dict[str, Any]] = [
    {"metadata__name": "Web"},
    {"metadata__name": ""},
    {"metadata__name": "a/b"},
    {"metadata__namespace": "Shop"},
    {"metadata__namespace": "a/b"},
    {"metadata__labels": {"app": "?"}},
    {"metadata__annotations": {"?": "x"}},
    {"metadata__creationTimestamp": "yesterday"},
    {"metadata__deletionTimestamp": "tomorrow"},
    {"metadata__ownerReferences": [{"controller": True}, {"controller": True}]},
    {"metadata__uid": "u-1"},
    {"spec__nodeName": "N"},
    {"spec__priorityClassName": "?"},
    {"spec__preemptionPolicy": "Maybe"},
    {"spec__containers": [{"name": "c"}, {"name": "c"}]},
    {"spec__containers": [{"name": "c", "resources": {"requests": {"cpu": "one"}}}]},
    {"spec__containers": [{"name": "c", "resources": {"limits": {"?": "1"}}}]},
    {"spec__containers": [{"name": "c", "ports": [{"protocol": "IP"}]}]},
    {"spec__initContainers": [{"name": "C"}]},
    {"spec__overhead": {"cpu": "-1"}},
    {"spec__resources": {"requests": {"cpu": "one"}}},
    {"spec__nodeSelector": {"a": "?"}},
    {"spec__affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "?"}]}}},
    {"spec__tolerations": [{"operator": "Some"}]},
    {"spec__topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone"}]},
    {"spec__terminationGracePeriodSeconds": 2**62},
    {"status__startTime": "noon"},
    {"status__nominatedNodeName": "N"},
    {"status__conditions": [{"type": "Ready", "lastTransitionTime": "noon"}]},
    {"status__containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "one"}}]},
    {"status__initContainerStatuses": [{"resources": {"requests": {"cpu": "one"}}}]},
    {"status__resources": {"requests": {"cpu": "one"}}},
    {"status__allocatedResources": {"cpu": "one"}},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_what_is_wrong_about_one_replica_is_found_behind_good_ones(
    wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good replicas before and after it hide nothing, and add nothing."""
    file = tmp_path / "dump.json"
    pods = [a_pod(1, metadata__uid="u-1"), a_pod(2), a_pod(3, **wrong), a_pod(4, **wrong), a_pod(5)]
    file.write_text(text_of(pods))
    found = outcome(file)
    monkeypatch.setattr(Alike, "is_good", lambda *_: False)
    assert outcome(file) == found
    assert isinstance(found, tuple)
    assert all(problem.object.startswith("Pod") for problem in found)


def test_replicas_share_what_is_equal_about_them(tmp_path: Path) -> None:
    """Parts of equal text are one object; those that differ stay apart, and so does the rest."""
    changed = [a_pod(58, metadata__labels={"app": "db"}), a_pod(59, spec__containers=[])]
    file = tmp_path / "dump.json"
    file.write_text(text_of([*PODS[:58], *changed]))
    pods = [pod for pod in read([file]).objects if isinstance(pod, Pod)]
    assert [msgspec.to_builtins(pod)["metadata"] for pod in pods] == [
        pod["metadata"] for pod in (*PODS[:58], *changed)
    ]
    assert len({id(pod.metadata.labels) for pod in pods}) == 3, "a template of its own each"
    assert len({id(pod.spec.containers) for pod in pods}) == 3
    assert pods[58].spec.containers == pods[0].spec.containers
    assert [pod.spec.node_name for pod in pods] == [f"n-{n}" for n in range(60)]


def test_an_escaped_colon_hides_no_key_that_stands_twice(tmp_path: Path) -> None:
    """Colons are counted to find such keys: one that is escaped does not stand in for another."""
    file = tmp_path / "dump.json"
    file.write_text(TEXTS["a key twice, and an escaped colon"])
    with pytest.raises(ManifestError, match="the key stands more than once"):
        read([file])
