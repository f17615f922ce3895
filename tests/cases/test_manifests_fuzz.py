"""Whatever stands in a file, reading it ends in objects or in a message."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policy.manifests import ManifestError, Problem, read, resolve

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-11-20T08:00:00Z",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "controller": True}],
    },
    "spec": {
        "nodeName": "x",
        "priorityClassName": "system-node-critical",
        "containers": [
            {
                "name": "c",
                "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            }
        ],
        "overhead": {"cpu": "10m"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "hostNetwork": True,
    },
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
NODE: dict[str, Any] = {
    "kind": "Node",
    "metadata": {"name": "x"},
    "status": {"allocatable": {"cpu": "4"}, "conditions": []},
}
BUDGET: dict[str, Any] = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "maxUnavailable": "25%"},
    "status": {"disruptionsAllowed": 1, "disruptedPods": {"p": None}},
}
LIST: dict[str, Any] = {"kind": "List", "items": [POD, NODE, BUDGET]}

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["-", "1e999999", "9" * 400, "Pod", "PodList", "2026-11-20T08:00:00", "a/b"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a value."""
    found = [path] if path else []
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        found.extend(places(item, (*path, key)))
    return found


PLACES = places(LIST)


def problems(text: bytes) -> tuple[Problem, ...]:
    """What is wrong with a text; nothing where it was read."""
    try:
        found = read(["-"], stdin=io.BytesIO(text))
        resolve(found.objects, places=found.places)
    except ManifestError as error:
        return tuple(error.problems)
    return ()


def attempt(text: bytes) -> None:
    assert all(problem.message and problem.source for problem in problems(text))


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
def test_any_value_anywhere_is_read_or_refused(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    """A manifest with anything in any field gives objects or problems, nothing else."""
    value = copy.deepcopy(LIST)
    for path, new in changes:
        inside: Any = value
        try:
            for key in path[:-1]:
                inside = inside[key]
            inside[path[-1]] = new
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    attempt(json.dumps(value).encode())


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text is read as JSON or YAML, or refused with its place."""
    attempt(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from([b"", b"\x1f\x8b", b"\xff\xfe", b"\xef\xbb\xbf{"]))
def test_any_bytes_are_read_or_refused(data: bytes, start: bytes) -> None:
    """Any bytes end in objects or problems, whatever they pretend to be."""
    attempt(start + data)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["kind: Pod\n", "metadata:\n", "  name: a\n", "---\n", "- ", "{", "}", "[", "]", "&a ",
             "*a ", "<<: ", "? ", "|\n", "\t", "'", '"', "#", "!x ", ": ", "a", "\n", "%YAML 1.2\n"]
        ),
        max_size=25,
    ).map("".join)
)  # fmt: skip
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    """Pieces of YAML in any order end in objects or problems."""
    attempt(text.encode())
