"""The canonical JSON of everything that is hashed, held by literal values."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest

from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cluster import canonical
from policy.cluster.digest import chain_state, object_digest, snapshot_digest
from policy.cluster.objects import Node, NodeStatus, ObjectMeta, encode
from policy.cluster.snapshot import Snapshot
from policy.rules.ruleset import RuleSet
from tests.contract.builders import a_decision

#: The keys of RFC 8785, section 3.2.3, in the order that it gives.
RFC_KEYS = ["\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33"]


def test_keys_are_ordered_as_the_standard_orders_them() -> None:
    """By UTF-16 code units, at every depth: a smiley comes before a Hebrew letter."""
    shuffled = {key: {key: 1} for key in sorted(RFC_KEYS, reverse=True)}
    text = canonical.text([shuffled])
    expected = json.dumps(
        [{key: {key: 1} for key in RFC_KEYS}], ensure_ascii=False, separators=(",", ":")
    )
    assert text == expected


def test_texts_are_escaped_as_the_standard_escapes_them() -> None:
    """The string of RFC 8785, section 3.2.2.2, and what lies around it."""
    value = "\u20ac$\x0f\x0aA'\x42\x22\x5c\\\"/\x08\x0c\x0d\x09\x7f\u2028"
    assert canonical.encode(value) == (
        b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/\\b\\f\\r\\t\x7f\xe2\x80\xa8"'
    )


def test_integers_are_written_in_full() -> None:
    """No power of ten, however large."""
    assert canonical.text([0, -1, 2**53 + 1, 10**25, True, None]) == (
        "[0,-1,9007199254740993,10000000000000000000000000,true,null]"
    )


@pytest.mark.parametrize(
    "text", ['{"b":1,"a":2}', "[1, 2]", "[1.0]", "[-0]", "[1e3]", "[NaN]", '["\\u0041"]', "", "["]
)
def test_other_text_is_not_canonical(text: str) -> None:
    """What a digest could not stand for is refused, also numbers that are no integers."""
    with pytest.raises(ValueError, match=r"canonical|integer|Expecting"):
        canonical.parse(text)


def test_canonical_text_is_read_back() -> None:
    """A value, its text, and the value again."""
    value = {"\U0001f600": [1, "x"], "\ufb33": {"a": None}}
    assert canonical.parse(canonical.text(value)) == value


def test_all_that_is_hashed_is_this_json() -> None:
    """Objects, rule sets, decisions and sessions give the canonical text of their own value."""
    odd = {"\U0001f600": 1, "z": 2, "\ufb33": 3}
    node = Node(
        metadata=ObjectMeta(name="n1", labels=dict.fromkeys(odd, "1")),
        status=NodeStatus(allocatable={"pods": "1", "cpu": "2"}),
    )
    decided = a_decision()
    fired = msgspec.structs.replace(decided.trace.rules[0], inputs=odd)
    session = run_session(Snapshot.from_objects([node], now_ms=0), BatchRules.load("kube-batch"))
    texts = [
        encode(node).decode(),
        RuleSet.load("kube-1.35").canonical,
        replace(decided, trace=replace(decided.trace, rules=(fired,))).canonical.decode(),
        session.canonical,
    ]
    assert [canonical.text(json.loads(text)) for text in texts] == texts


def test_digests_keep_their_values() -> None:
    """What was hashed once has the same digest for ever: literal values, computed by hand."""
    node = Node(metadata=ObjectMeta(name="n1", labels={"b": "1", "a": "2"}))
    assert (
        encode(node)
        == b'{"metadata":{"labels":{"a":"2","b":"1"},"name":"n1"},"spec":{},"status":{}}'
    )
    digest = object_digest(node)
    state = chain_state("", [("Node", "n1", digest), ("Pod", "a/b", None)])
    figures = {"preemptedCount/3600": {"shop/Deployment/web": 2}}
    found = [digest, state, snapshot_digest(state, now_ms=1000, history=figures)]
    assert found == [
        "c6e4866da10e67e71d7564c577fe3384a031af39eabd8256bf135a09f4c0015c",
        "sha256:6f29b3f7b12ac3aa2bd4917df30b5729ae0b7824a834c8afa1161c78dcded722",
        "sha256:9afdf30d060652075b6a0af175d98d3f464314520f048d2b98a167c7a2450de7",
    ]
