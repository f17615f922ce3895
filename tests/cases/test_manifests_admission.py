"""What an API server would refuse is refused at the border, with object and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.manifests import ManifestError, read, read_dicts

NAME = (
    "lower case letters, digits, `-` and `.`, a letter or digit first and last,"
    " at most 253 characters"
)
LABEL = (
    "lower case letters, digits and `-`, a letter or digit first and last, at most 63 characters"
)
VALUE = "letters, digits, `-`, `_` and `.`, a letter or digit first and last, at most 63 characters"
KEY = f"{VALUE}; before it a DNS name and `/` where wanted"
OPERATORS = "one of `In`, `NotIn`, `Exists`, `DoesNotExist`"


def a_pod(spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", **meta},
        "spec": spec or {},
    }


def a_budget(**spec: Any) -> dict[str, Any]:
    return {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}


def a_class(name: str, value: int) -> dict[str, Any]:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def selecting(**requirement: Any) -> dict[str, Any]:
    return a_budget(selector={"matchExpressions": [requirement]})


def refused(*objects: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """(object, field, message, help) of everything for which the objects are refused."""
    with pytest.raises(ManifestError) as caught:
        read_dicts(objects)
    return [(p.object, p.field, p.message, p.help) for p in caught.value.problems]


CASES: list[tuple[dict[str, Any], tuple[str, str, str, str]]] = [
    (
        a_pod(name="Web_1"),
        ("Pod shop/Web_1", "metadata.name", "`Web_1` is not a valid name", NAME),
    ),
    (
        a_pod(name="n3\nfake"),
        ("Pod shop/n3\\nfake", "metadata.name", "`n3\\nfake` is not a valid name", NAME),
    ),
    (
        a_pod(namespace="a.b"),
        ("Pod a.b/p", "metadata.namespace", "`a.b` is not a valid name", LABEL),
    ),
    (
        a_pod(labels={"-x": "v"}),
        ("Pod shop/p", "metadata.labels", "`-x` is not a valid label key", KEY),
    ),
    (
        a_pod(labels={"x": "\u0663"}),
        ("Pod shop/p", "metadata.labels.x", "`\u0663` is not a valid label value", VALUE),
    ),
    (
        a_pod(annotations={"a": "x" * 262144}),
        (
            "Pod shop/p",
            "metadata.annotations",
            "262145 bytes of annotations; an object may have 262144",
            "",
        ),
    ),
    (
        a_pod({"nodeName": "N 1"}),
        ("Pod shop/p", "spec.nodeName", "`N 1` is not a valid name", NAME),
    ),
    (
        a_pod({"containers": [{"name": "c"}, {"name": "c"}]}),
        (
            "Pod shop/p",
            "spec.containers[1].name",
            "another container of the pod is named `c`",
            "",
        ),
    ),
    (
        a_pod({"containers": [{"resources": {"requests": {"c p u": 1}}}]}),
        (
            "Pod shop/p",
            "spec.containers[0].resources.requests",
            "`c p u` is not a valid resource name",
            KEY,
        ),
    ),
    (
        a_pod({"tolerations": [{"key": "a", "operator": "Maybe"}]}),
        (
            "Pod shop/p",
            "spec.tolerations[0].operator",
            "`Maybe` is not a toleration operator",
            "one of `Equal`, `Exists`, `Lt`, `Gt`",
        ),
    ),
    (
        a_pod({"tolerations": [{"key": "a", "operator": "Lt", "value": "05"}]}),
        (
            "Pod shop/p",
            "spec.tolerations[0].value",
            "`05` is not a whole number",
            "`Lt` compares numbers as `950`",
        ),
    ),
    (
        a_pod({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone"}]}),
        (
            "Pod shop/p",
            "spec.topologySpreadConstraints[0].maxSkew",
            "`0` is out of range",
            "from 1 to 2147483647",
        ),
    ),
    (
        a_pod({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 101, "preference": {}}]}}}),
        (
            "Pod shop/p",
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            "`101` is out of range",
            "from 1 to 100",
        ),
    ),
    (
        selecting(key="app", operator="Is", values=["a"]),
        (
            "PodDisruptionBudget default/b",
            "spec.selector.matchExpressions[0].operator",
            "`Is` is not an operator",
            OPERATORS,
        ),
    ),
    (
        selecting(key="app", operator="In"),
        (
            "PodDisruptionBudget default/b",
            "spec.selector.matchExpressions[0].values",
            "`In` needs at least one value",
            "",
        ),
    ),
    (
        a_budget(minAvailable=1, maxUnavailable=1),
        (
            "PodDisruptionBudget default/b",
            "spec",
            "`minAvailable` and `maxUnavailable` cannot both be set",
            "",
        ),
    ),
    (
        a_budget(maxUnavailable="\u0665\u0660%"),
        (
            "PodDisruptionBudget default/b",
            "spec.maxUnavailable",
            "`\u0665\u0660%` is not a percentage from `0%` to `100%`",
            "",
        ),
    ),
    (
        a_class("gold", 1_000_000_001),
        (
            "PriorityClass gold",
            "value",
            "`1000000001` is out of range",
            "from -2147483648 to 1000000000",
        ),
    ),
    (
        a_class("system-node-critical", 5),
        (
            "PriorityClass system-node-critical",
            "value",
            "`5` is not the value of `system-node-critical`",
            "it is 2000001000 in every cluster",
        ),
    ),
    (
        a_pod({"terminationGracePeriodSeconds": 252_000_000_000}),
        (
            "Pod shop/p",
            "spec.terminationGracePeriodSeconds",
            "`252000000000` is out of range",
            "from 0 to 9223372036",
        ),
    ),
    (
        a_pod({"containers": [{"resources": {"requests": {"memory": "8Pi"}}}]}),
        (
            "Pod shop/p",
            "spec.containers[0].resources.requests.memory",
            "`8Pi` is out of range",
            "at most 9007199254740991",
        ),
    ),
    (
        a_pod({"containers": [{"resources": {"requests": {"cpu": "\u0664"}}}]}),
        (
            "Pod shop/p",
            "spec.containers[0].resources.requests.cpu",
            "`\u0664` is not a quantity",
            "for example `500m`, `2`, `1536Mi`, `1G`",
        ),
    ),
    (
        a_pod({"priority": 2**31}),
        (
            "Pod shop/p",
            "spec.priority",
            "`2147483648` is out of range",
            "from -2147483648 to 2147483647",
        ),
    ),
    (
        a_pod(uid="a\0b"),
        ("Pod shop/p", "metadata.uid", "`a\\x00b` holds a NUL character", ""),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("obj", "problem"), CASES, ids=lambda case: str(case)[-50:])
def test_it_is_refused(obj: dict[str, Any], problem: tuple[str, str, str, str]) -> None:
    """One mistake, one problem that names object and field."""
    assert refused(obj) == [problem]


def test_what_was_recorded_of_a_scheduler_is_taken() -> None:
    """Without admission, names and operators are taken as the scheduler itself took them."""
    objects = [a_pod(name="podA"), selecting(key="app", operator="Is")]
    assert len(read_dicts(objects, admission=False).objects) == 2


def test_one_uid_twice_is_refused() -> None:
    """No two objects of a cluster have one uid; both are named."""
    assert refused(a_pod(uid="u"), a_pod(uid="u", name="q")) == [
        ("Pod shop/q", "metadata.uid", "`u` is also the uid of Pod shop/p", "")
    ]


POD = '{"kind":"Pod","metadata":{"name":"p","namespace":"shop"%s},"spec":{"priority":%s}}'
ODD = [
    (POD % (',"name":"p"', 1), "metadata.name", "the key stands more than once"),
    (POD % (',"uid":"\\ud800"', 1), "metadata.uid", "`\\ud800` holds half of a surrogate pair"),
    (POD % (',"uid":"a\\u0000b"', 1), "metadata.uid", "`a\\x00b` holds a NUL character"),
    (POD % ("", "1e400"), "spec.priority", "`1e400` is out of range"),
    (POD % ("", "NaN"), "spec.priority", "`NaN` is not JSON"),
    (POD % ("", "-Infinity"), "spec.priority", "`-Infinity` is not JSON"),
    (POD % ("", "9" * 5000), "spec.priority", "a number of 5000 digits"),
]


@pytest.mark.parametrize("many", [False, True], ids=["alone", "in-a-list"])
@pytest.mark.parametrize(("text", "field", "message"), ODD, ids=[m for *_, m in ODD])
def test_odd_json_names_object_and_field(
    tmp_path: Path, text: str, field: str, message: str, *, many: bool
) -> None:
    """What is JSON by its form and still no value is named like every other mistake."""
    file = tmp_path / "dump.json"
    file.write_text(f'{{"items": [{text}], "kind": "List"}}' if many else text)
    with pytest.raises(ManifestError) as caught:
        read([file])
    assert str(caught.value) == f"{file}: Pod shop/p: {field}: {message}"


def test_a_yaml_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """The later value does not win silently; what `<<` brings may be overridden."""
    file = tmp_path / "pod.yaml"
    file.write_text(
        "x: &x {priority: 1}\nkind: Pod\nmetadata: {name: p}\nspec: {<<: *x, priority: 2}\n"
    )
    assert len(read([file]).objects) == 1
    file.write_text("kind: Pod\nmetadata: {name: p, name: q}\n")
    with pytest.raises(ManifestError) as caught:
        read([file])
    assert str(caught.value) == (f"{file}: Pod q: metadata.name: the key stands more than once")


def test_an_escaped_colon_is_no_key_that_stands_twice(tmp_path: Path) -> None:
    """The quick test for repeated keys is only a hint; the exact one decides."""
    file = tmp_path / "pod.json"
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": {"a": "b:c"}}}
    file.write_text(json.dumps(pod).replace("b:c", "b\\u003ac"))
    assert len(read([file]).objects) == 1
