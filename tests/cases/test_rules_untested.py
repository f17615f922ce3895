"""Lint names the rules that no case beside their file touches."""

from __future__ import annotations

from pathlib import Path

from policy import RuleSet
from policy.batch.rules import BatchRules
from policy.cases.untested import untested, untested_session

RULES = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: mine}
extends: kube-1.35
spec:
  victims:
    eligible:
      insert:
        - at: start
          rule: {id: web, when: "victim.labels['app'] == 'web'", verdict: deny}
        - at: start
          rule: {id: db, when: "victim.labels['app'] == 'db'", verdict: deny}
        - at: start
          rule: {id: ranked, when: "int(victim.labels['rank']) > 3", verdict: deny, onError: skip}
  ranking:
    insert:
      - {at: start, rule: {id: least-work, minimize: candidate.victimSeconds}}
"""
CASES = """\
- note: a web pod stays
  nodes: {n1: {cpu: 2}}
  pods:
    web: {node: n1, priority: 0, cpu: 1, labels: {app: web}}
    other: {node: n1, priority: 0, cpu: 1}
    urgent: {priority: 10, cpu: 1}
  want: {node: n1, victims: [other]}
"""


def found(file: Path) -> list[tuple[str, str]]:
    return [(w.rule, w.message) for w in untested(str(file), RuleSet.load(file))]


def test_a_rule_that_no_case_touches_is_named(tmp_path: Path) -> None:
    """Own rules and criteria that decide in no case are named; having no value is no decision."""
    file = tmp_path / "mine.yaml"
    file.write_text(RULES)
    (tmp_path / "mine.cases.yaml").write_text(CASES)
    assert found(file) == [
        (name, f"no case touches `{name}`") for name in ("db", "ranked", "least-work")
    ]


def test_a_file_without_cases_is_named_once(tmp_path: Path) -> None:
    """Where there are no cases at all, one warning says so; shipped names are left out."""
    file = tmp_path / "mine.yaml"
    file.write_text(RULES)
    assert found(file) == [("", "there are no cases beside these rules")]
    assert list(untested("kube-1.35", RuleSet.load("kube-1.35"))) == []


BATCH = """\
apiVersion: policy/v1
kind: BatchRules
metadata: {name: mine}
spec:
  actions: [allocate, preempt]
  tiers: [{plugins: [{name: gang}, {name: priority}]}]
"""
BATCH_CASES = """\
- note: a pod is placed
  nodes: {n1: {cpu: 2}}
  queues: {default: 1}
  gangs: {one: {minimum: 1, cpu: 2, waiting: 1}}
  want: {mine: {binds: {one-0: n1}}}
"""


def test_an_action_that_no_case_shows_is_named(tmp_path: Path) -> None:
    """Of batch rules: the actions that do nothing in the cases, or that there are no cases."""
    file = tmp_path / "mine.yaml"
    file.write_text(BATCH)
    rules = BatchRules.load(file)

    def warnings() -> list[tuple[str, str]]:
        return [(w.rule, w.message) for w in untested_session(str(file), rules)]

    assert warnings() == [("", "there are no cases beside these rules")]
    (tmp_path / "mine.cases.yaml").write_text(BATCH_CASES)
    assert warnings() == [("preempt", "`preempt` does nothing in any of the cases")]
