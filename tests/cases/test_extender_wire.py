"""What a scheduler sends, in every spelling that Go reads, and what it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.server.extender.brought import preemptor_brought, victims_brought
from policy.server.extender.folding import folded
from policy.server.extender.wire import BadRequest, all_equal, read_nodes, read_preempt
from tests.support.builders import NOW_MS, a_node, objects
from tests.support.serving import preempts, recorded_calls


def a_pod(name: str, *, node: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": {"A": "b"}},
        "spec": {
            "nodeName": node,
            "priority": 5,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def full(**offers: Any) -> dict[str, Any]:
    return {"Pod": a_pod("new"), "NodeNameToVictims": offers, "NodeNameToMetaVictims": None}


def meta(**offers: Any) -> dict[str, Any]:
    return {"Pod": a_pod("new"), "NodeNameToVictims": None, "NodeNameToMetaVictims": offers}


FULL = full(n1={"Pods": [a_pod("one", node="n1"), a_pod("two", node="n1")], "NumPDBViolations": 3})
META = meta(n1={"Pods": [{"UID": "uid-one"}, {"UID": "uid-two"}], "NumPDBViolations": 3})
OFFERED = {"n1": {"Pods": [{"UID": "uid-one"}, {"UID": "uid-two"}], "NumPDBViolations": 3}}
NAMES = frozenset({"A", "n1", "cpu"})
"""Keys that are names: a label, a node, a resource."""


def respelt(value: Any, spell: Callable[[str], str], *, only: str = "") -> Any:
    """The same with its keys in another case: all of them, or one."""
    if isinstance(value, list):
        return [respelt(item, spell, only=only) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        (spell(k) if k not in NAMES and only in ("", k) else k): respelt(v, spell, only=only)
        for k, v in value.items()
    }


def answered(call: Any) -> Any:
    return json.loads(read_preempt(json.dumps(call).encode()).as_offered())["NodeNameToMetaVictims"]


def taken(call: Any) -> list[Pod]:
    """The pods of a call as they are taken over into a state that has none."""
    snapshot = Snapshot.from_objects(objects(a_node("n1").cpu(4)), now_ms=NOW_MS)
    body = json.dumps(call).encode()
    request = read_preempt(body)
    preemptor, _ = preemptor_brought(snapshot, request)
    victims = victims_brought(snapshot, request, body, gone=lambda pods: ())
    return [pod for _, _, pod in (*preemptor, *victims)]


def test_a_map_without_nodes_hides_no_other_one() -> None:
    """Go writes null there; whoever writes an empty map means no more by it."""
    both = {**META, "NodeNameToVictims": {}}
    assert read_preempt(json.dumps(both).encode()).as_offered() == (
        read_preempt(json.dumps(META).encode()).as_offered()
    )
    assert read_preempt(json.dumps({**FULL, "NodeNameToMetaVictims": {}}).encode()).full


KEYS = ("Pods", "NumPDBViolations", "UID", "NodeNameToVictims", "NodeNameToMetaVictims", "Pod")
OF_PODS = ("metadata", "name", "namespace", "uid", "labels", "spec", "containers", "requests")


@pytest.mark.parametrize("only", ["", *KEYS, *OF_PODS])
@pytest.mark.parametrize("spell", [str.lower, str.upper, str.swapcase], ids=lambda s: s.__name__)
def test_keys_are_read_in_any_case(spell: Callable[[str], str], only: str) -> None:
    """One of them while the others are as Go writes them, or all: the offer is answered unchanged.

    Also in the pods, which are taken over whole.
    """
    for call in (FULL, META):
        other = respelt(call, spell, only=only)
        assert answered(other) == OFFERED, other
        assert taken(other) == taken(call)
    assert len(taken(FULL)) == 3


def test_null_has_the_value_that_go_leaves() -> None:
    """A count, a list, a name, a whole offer."""
    null_count = meta(n1={"Pods": [{"UID": "a"}], "NumPDBViolations": None})
    assert answered(null_count) == {"n1": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}
    nobody = {"Pods": [], "NumPDBViolations": 0}
    offers = {"n1": None, "n2": {}, "n3": {"Pods": None, "NumPDBViolations": None}}
    assert answered(meta(**offers)) == dict.fromkeys(offers, nobody)
    assert answered(full(**offers)) == dict.fromkeys(offers, nobody)
    assert answered({"Pod": a_pod("new")}) == {}
    pod = a_pod("one", node="n1")
    unnamed = {**pod, "metadata": {**pod["metadata"], "uid": None, "namespace": None}}
    call = full(n1={"Pods": [unnamed], "NumPDBViolations": 0})
    assert answered(call) == {"n1": {"Pods": [{"UID": "default/one"}], "NumPDBViolations": 0}}


def test_of_two_spellings_the_right_one_counts() -> None:
    both = {"pods": [{"UID": "a"}], "Pods": [{"UID": "b"}], "numpdbviolations": 1}
    first = meta(n1={**both, "NumPDBViolations": 2})
    last = meta(n1={"NumPDBViolations": 2, **both})
    null = meta(n1={**both, "NumPDBViolations": None})
    found = [answered(call)["n1"] for call in (first, last, null)]
    assert found == [{"Pods": [{"UID": "b"}], "NumPDBViolations": n} for n in (2, 2, 1)]


def test_the_old_name_of_the_full_form_is_read() -> None:
    """The tagged package of 1.16 and before called it `nodeToVictims`."""
    old = {"pod": FULL["Pod"], "nodeToVictims": FULL["NodeNameToVictims"]}
    assert answered(old) == OFFERED


@pytest.mark.parametrize(
    "call",
    [
        meta(n1={"Pods": [], "NumPDBViolations": 2**63}),
        meta(n1={"Pods": [], "NumPDBViolations": "3"}),
        meta(n1={"Pods": [], "NumPDBViolations": False}),
        meta(n1={"Pods": {}, "NumPDBViolations": 0}),
        meta(n1={"Pods": [None], "NumPDBViolations": 0}),
        meta(n1=[]),
        full(n1={"Pods": [{"spec": {}}], "NumPDBViolations": 0}),
        {**META, "Pod": None},
        {**META, "Pod": []},
        {**META, "Pod": {"metadata": {"name": 3}}},
        {**META, "NodeNameToMetaVictims": []},
    ],
)
def test_what_go_does_not_decode_is_refused(call: dict[str, Any]) -> None:
    """A number that is no int64, text for a number, a list for an object."""
    with pytest.raises(BadRequest):
        read_preempt(json.dumps(call).encode())


def broken(call: dict[str, Any], text: str) -> bytes:
    """The call, with one byte in a text that is no UTF-8."""
    found = json.dumps(call).encode()
    assert text.encode() in found
    return found.replace(text.encode(), text.encode() + b"\xff")


@pytest.mark.parametrize("spell", [str, str.lower])
@pytest.mark.parametrize("text", ["uid-one", "n1", "NumPDBViolations"])
@pytest.mark.parametrize("call", [FULL, META], ids=["full", "meta"])
def test_texts_that_are_no_utf8_are_refused(
    call: dict[str, Any], text: str, spell: Callable[[str], str]
) -> None:
    with pytest.raises(BadRequest, match=r"^the body is not JSON: one of its texts is not UTF-8$"):
        read_preempt(broken(respelt(call, spell, only="Pod"), text))


def test_names_of_nodes_that_are_no_utf8_are_refused() -> None:
    asked = {"Pod": a_pod("new"), "Nodes": {"items": [{"metadata": {"name": "n1"}}]}}
    for call in ({**asked, "NodeNames": None}, {"Pod": a_pod("new"), "NodeNames": ["n1"]}):
        with pytest.raises(BadRequest, match=r"one of its texts is not UTF-8$"):
            all_equal(read_nodes(broken(call, "n1")))


def test_pods_with_texts_that_are_no_utf8_are_not_taken_over() -> None:
    """Of the pod that asks that is an error of the call; an unreadable victim stays unknown."""
    new = {**a_pod("new"), "metadata": {**a_pod("new")["metadata"], "annotations": {"a": "note"}}}
    snapshot = Snapshot.from_objects(objects(a_node("n1").cpu(4)), now_ms=NOW_MS)
    known = snapshot.apply([("Pod", "shop/new", msgspec.convert(a_pod("new"), Pod))])
    asks = broken({**META, "Pod": new}, "note")
    for state in (snapshot, known):
        with pytest.raises(BadRequest, match=r"^`Pod`: not a pod: one of its texts is not UTF-8$"):
            preemptor_brought(state, read_preempt(asks))
    victim = a_pod("one", node="n1")
    victim["metadata"]["annotations"] = {"a": "note"}
    offered = broken(full(n1={"Pods": [victim], "NumPDBViolations": 0}), "note")
    assert victims_brought(snapshot, read_preempt(offered), offered, gone=lambda pods: ()) == []


def test_recorded_calls_need_no_second_reading() -> None:
    """What real schedulers send is read as it came."""
    for run in recorded_calls():
        for call in preempts(run):
            request = read_preempt(call["request"].encode())
            assert not request.folded
            pods = json.loads(call["request"])["Pod"]
            assert folded(pods, Pod) == pods


def test_the_names_of_nodes_are_read_in_any_case() -> None:
    nodes = {"items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "N2"}}]}
    scores = [{"Host": "n1", "Score": 0}, {"Host": "N2", "Score": 0}]
    asked = {"Pod": a_pod("new"), "Nodes": nodes, "NodeNames": None}
    for spell in (str, str.lower, str.upper):
        for only in ("", "Nodes", "items", "metadata", "name", "NodeNames"):
            other = respelt(asked, spell, only=only)
            assert json.loads(all_equal(read_nodes(json.dumps(other).encode()))) == scores, other
    names = {"pod": a_pod("new"), "nodenames": ["n1", "N2"]}
    assert json.loads(all_equal(read_nodes(json.dumps(names).encode()))) == scores
