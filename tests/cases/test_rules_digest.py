"""The canonical text of a rule set and its digest: what counts, and what only explains."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import fields
from typing import Any

import pytest

from policy.rules import RulesError, RuleSet


def an_overlay(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {"name": "mine"},
        "extends": "kube-1.35",
        "spec": spec,
    }


def load(spec: dict[str, Any]) -> RuleSet:
    return RuleSet.load(an_overlay(spec))


def a_deny(name: str, when: str = "victim.terminating") -> dict[str, str]:
    return {"id": name, "when": when, "verdict": "deny", "reason": "protected"}


@pytest.mark.parametrize("name", RuleSet.names())
def test_the_canonical_text_rebuilds_the_rule_set(name: str) -> None:
    """Reading the canonical text gives an equal rule set with the same digest."""
    rules = RuleSet.load(name)
    again = RuleSet.from_canonical(rules.canonical)
    assert again == rules
    assert [getattr(again, f.name) for f in fields(again) if f.compare] == [
        getattr(rules, f.name) for f in fields(rules) if f.compare
    ]


def test_the_digest_is_the_hash_of_the_canonical_text() -> None:
    """`sha256:` and the hexadecimal hash of sorted JSON without white space."""
    rules = RuleSet.load("kube-1.35")
    sorted_json = json.dumps(
        json.loads(rules.canonical), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    digest = "sha256:" + hashlib.sha256(sorted_json.encode()).hexdigest()
    assert (rules.canonical, rules.digest) == (sorted_json, digest)


def digest(**changes: Any) -> str:
    return load(changes).digest


def test_explanations_do_not_change_the_digest() -> None:
    """`why`, descriptions, white space around expressions and written-out defaults are no rules."""
    plain = digest(victims={"eligible": [a_deny("a")]})
    talkative = an_overlay({"victims": {"eligible": [a_deny("a") | {"why": "because"}]}})
    talkative["metadata"]["description"] = "words"
    talkative["spec"]["victims"]["eligible"][0]["when"] = "  victim.terminating\n"
    talkative["spec"]["candidates"] = {"minAbsolute": 100}
    assert RuleSet.load(talkative).digest == plain


@pytest.mark.parametrize(
    "changes",
    [
        {"victims": {"eligible": [a_deny("b")]}},
        {"victims": {"eligible": [a_deny("a", "victim.started")]}},
        {"victims": {"eligible": [a_deny("a") | {"reason": "other"}]}},
        {"victims": {"eligible": [a_deny("a") | {"verdict": "allow"}]}},
        {"victims": {"eligible": [a_deny("a")], "maxVictims": 1}},
        {"victims": {"eligible": [a_deny("a")]}, "candidates": {"minAbsolute": 99}},
        {"victims": {"eligible": [a_deny("a")]}, "audit": {"candidates": 11}},
        {"victims": {"eligible": [a_deny("a")]}, "effects": {"disruptionCondition": False}},
        {"victims": {"eligible": [a_deny("a")]}, "filters": ["resources"]},
    ],
)
def test_everything_that_decides_changes_the_digest(changes: dict[str, Any]) -> None:
    """Each rule, setting and reason counts."""
    assert digest(**changes) != digest(victims={"eligible": [a_deny("a")]})


def test_the_name_changes_the_digest() -> None:
    """Two rule sets of different names are two rule sets."""
    renamed = an_overlay({})
    renamed["metadata"]["name"] = "yours"
    assert RuleSet.load(renamed).digest != load({}).digest


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"b":1,"a":2}', '{"a": 1}', '{"a":1.5}', "[" * 9999]
)
def test_only_canonical_text_is_read_back(text: str) -> None:
    """Text that is not canonical JSON would hide what its digest covers, and is refused."""
    with pytest.raises(RulesError) as refused:
        RuleSet.from_canonical(text)
    assert str(refused.value) == "<canonical>: not the canonical text of a rule set"


def test_a_rule_set_travels_between_processes() -> None:
    """A pickled rule set is equal, evaluates, and still knows its lines."""
    rules = RuleSet.load("kube-1.35")
    copy = pickle.loads(pickle.dumps(rules))
    assert (copy, copy.origins, copy.description) == (rules, rules.origins, rules.description)


def test_history_needs_are_collected_from_all_rules() -> None:
    """The engine learns from the rule set which figures to freeze."""
    rules = load(
        {
            "victims": {
                "eligible": {
                    "insert": [
                        {
                            "at": "start",
                            "rule": a_deny(
                                "again", "history.preemptedCount(victim.owner, duration('1h')) > 2"
                            ),
                        }
                    ]
                },
                "importance": {
                    "insert": [
                        {
                            "at": "start",
                            "rule": {
                                "ascending": "history.secondsSinceLastPreempted(victim.owner)",
                                "id": "recently-hit",
                            },
                        }
                    ]
                },
            }
        }
    )
    assert rules.history_needs == {("preemptedCount", 3600), ("secondsSinceLastPreempted", None)}
