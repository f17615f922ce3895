"""Cases beside rules: how they are found, read, decided, and what their authors are told."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from policy.cases import beside, run, run_beside, suites
from policy.cases.reading import read_cases
from policy.cases.running import snapshot_of
from policy.cli.app import cli
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.preemption.denials import denials
from policy.rules import RulesError, RuleSet
from policy.rules.diff import compare
from policy.rules.diff_table import PHRASES, diff_rows
from policy.rules.explain import effective_rules

RULES = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: gold}
extends: kube-1.35
spec:
  victims:
    eligible:
      insert:
        - at: start
          rule:
            id: protect-fresh-gold
            why: gold pods get ten undisturbed minutes
            when: victim.labels['tier'] == 'gold' && victim.runtimeSeconds < 600
            verdict: deny
            reason: a gold pod in its first ten minutes
"""

CASES = """\
- note: a gold pod just short of ten minutes is not taken
  nodes: {n1: {cpu: 4}}
  pods:
    gold: {node: n1, priority: 0, cpu: 4, labels: {tier: gold}, started: 9m59s}
    urgent: {priority: 10, cpu: 4}
  want: {node: null, victims: [], denied: {gold: protect-fresh-gold}}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A rule in a folder of its own, with its cases."""
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "rules.yaml").write_text(RULES)
    (tmp_path / "gold" / "cases.yaml").write_text(CASES)
    return tmp_path / "gold"


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    status = result.return_value if result.exception is None else 1
    return status, result.stdout, str(result.exception or result.stderr)


def test_a_folder_of_rules_is_tested(rules: Path) -> None:
    """Below a folder every pair of rules and cases is found, in folders and side by side."""
    (rules.parent / "silver.yaml").write_text(RULES.replace("name: gold", "name: silver"))
    (rules.parent / "silver.cases.yaml").write_text(CASES)
    found = [suite.shown for suite in suites([str(rules.parent)])]
    assert found == [f"{rules}/cases.yaml", f"{rules.parent}/silver.cases.yaml"]
    assert invoke("rules", "test", str(rules.parent))[::2] == (0, "2 cases in 2 files hold\n")


def test_a_failing_case_says_what_it_wanted(rules: Path) -> None:
    """Place, rule set, note, and each difference; the exit status is 1."""
    file = rules / "rules.yaml"
    file.write_text(RULES.replace("< 600", "< 599"))
    status, out, err = invoke("rules", "test", str(rules))
    assert (status, err) == (1, "1 case, 1 fails\n")
    assert out == (
        f"{rules}/cases.yaml:1: `gold` fails: a gold pod just short of ten minutes is not taken\n"
        "      node: wanted none, got `n1`\n"
        "      victims: wanted none, got `default/gold`\n"
        "      denied: `default/gold`: wanted denied by `protect-fresh-gold`, got allowed\n"
    )


def test_rules_without_cases_are_told_so(rules: Path) -> None:
    """Whoever asks for the cases of a file gets them, or the name that they should have."""
    (rules / "cases.yaml").unlink()
    assert beside(str(rules)) is None
    assert run_beside(str(rules)) == []
    with pytest.raises(RulesError) as refused:
        suites([str(rules)])
    assert str(refused.value) == (
        f"{rules}: there are no cases beside these rules\n"
        f"  help: write them to `{rules}/cases.yaml`"
    )
    with pytest.raises(RulesError, match="no shipped rule set `goldd`"):
        suites(["goldd"])


BROKEN: dict[str, tuple[str, str]] = {
    "no-list": ("note: x\n", "c.yaml:1:1: a file of cases is a list of cases"),
    "no-note": (
        "- {pods: {a: {}}, want: {node: null}}\n",
        "c.yaml:1:3: missing key `note`",
    ),
    "no-want": ("- {note: x, pods: {a: {}}}\n", "c.yaml:1:3: missing key `want`"),
    "empty-want": ("- {note: x, pods: {a: {}}, want: {}}\n", "c.yaml:1:34: `want` says nothing"),
    "unknown-key": (
        "- {note: x, pods: {a: {priorty: 1}}, want: {node: null}}\n",
        "c.yaml:1:24: unknown key `priorty` in `[0].pods.a`",
    ),
    "no-preemptor": (
        "- {note: x, nodes: {n: {}}, pods: {a: {node: n}}, want: {node: null}}\n",
        "c.yaml:1:3: no pod waits for a node",
    ),
    "two-preemptors": (
        "- {note: x, pods: {a: {}, b: {}}, want: {node: null}}\n",
        "c.yaml:1:3: several pods wait for a node",
    ),
    "other-preemptor": (
        "- {note: x, pods: {a: {}}, decide: b, want: {node: null}}\n",
        "c.yaml:1:36: no pod `default/b` waits for a node in this case",
    ),
    "no-such-node": (
        "- {note: x, nodes: {n1: {}}, pods: {a: {node: n2}, b: {}}, want: {node: null}}\n",
        "c.yaml:1:47: no node `n2` in this case",
    ),
    "no-such-class": (
        "- {note: x, pods: {a: {class: gold}}, want: {node: null}}\n",
        "c.yaml:1:31: no class `gold` in this case",
    ),
    "no-quantity": (
        "- {note: x, pods: {a: {cpu: much}}, want: {node: null}}\n",
        "c.yaml:1:29: `much` is no quantity",
    ),
    "no-time": (
        "- {note: x, pods: {a: {created: ago}}, want: {node: null}}\n",
        "c.yaml:1:33: `ago` is no length of time",
    ),
    "no-owner": (
        "- {note: x, pods: {a: {owner: web}}, want: {node: null}}\n",
        "c.yaml:1:31: `web` is no owner",
    ),
    "no-taint": (
        "- {note: x, nodes: {n: {taints: [red]}}, pods: {a: {}}, want: {node: null}}\n",
        "c.yaml:1:34: `red` is no taint",
    ),
    "no-figure": (
        "- {note: x, pods: {a: {}}, history: {preemptedCount: {w: 1}}, want: {node: null}}\n",
        "c.yaml:1:38: `preemptedCount` is no figure of history",
    ),
    "no-number": (
        "- {note: x, pods: {a: {priority: high}}, want: {node: null}}\n",
        "c.yaml:1:34: `priority` must be a whole number, not `high`",
    ),
    "no-mapping": (
        "- {note: x, pods: [a], want: {node: null}}\n",
        "c.yaml:1:19: `[0].pods` must be a mapping of keys to values",
    ),
    "no-word": (
        "- {note: x, pods: {a: {}}, want: {outcome: evict}}\n",
        "c.yaml:1:44: unknown `outcome` `evict`",
    ),
    "no-yaml": ("- {note: x\n", "c.yaml:2:1: not YAML"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_case_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    """File, line, column and what is wrong, in the form of all rule files."""
    text, message = BROKEN[name]
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(RulesError) as refused:
        read_cases(file.read_text(), "c.yaml")
    assert str(refused.value).startswith(message)


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """Two broken cases are two messages."""
    file = tmp_path / "c.yaml"
    file.write_text(BROKEN["no-quantity"][0] + BROKEN["no-number"][0])
    with pytest.raises(RulesError) as refused:
        read_cases(file.read_text(), "c.yaml")
    assert len(refused.value.problems) == 2


def test_every_part_of_a_case_reaches_the_decision(tmp_path: Path) -> None:
    """Labels, taints, owners, times, classes, budgets, namespaces and history are all there."""
    file = tmp_path / "c.yaml"
    file.write_text(
        dedent("""\
        - note: everything
          now: '2026-01-02T00:00:00Z'
          seed: 7
          nodes:
            n1: {cpu: 4, memory: 8Gi, pods: 5, allocatable: {gpu: 1}, labels: {zone: a}}
            n2: {cpu: 4, taints: ['team=red:NoSchedule'], unschedulable: true}
          namespaces: {shop: {labels: {tier: gold}}}
          classes: {low: {priority: 3, annotations: {a: b}}}
          pdbs: {shop/web: {selector: {app: web}, allowed: 1}}
          history: {preemptedCount(1h30m): {shop/ReplicaSet/web: 2}, secondsSinceLastPreempted: {}}
          pods:
            shop/web:
              {node: n1, class: low, cpu: 500m, memory: 1Gi, requests: {gpu: 1}, labels: {app: web},
               annotations: {x: y}, owner: ReplicaSet/web, started: 2h, created: 3h,
               terminating: by-preemption}
            high:
              {priority: 9, nominated: n1, preemptionPolicy: Never, cpu: 1,
               tolerations: ['team=red:NoSchedule']}
          decide: high
          want: {outcome: bind}
        """)
    )
    (case,) = read_cases(file.read_text(), "c.yaml")
    snapshot = Snapshot.from_objects(case.objects, now_ms=case.now_ms, history=case.history)
    web, high = snapshot.pod("shop/web"), snapshot.pod("default/high")
    assert web is not None
    assert high is not None
    assert (
        web.spec.priority,
        web.spec.priority_class_name,
        web.status.start_time,
        web.metadata.creation_timestamp,
        web.metadata.deletion_timestamp,
        [c.reason for c in web.status.conditions or ()],
        [f"{o.kind}/{o.name}" for o in web.metadata.owner_references or ()],
        web.metadata.annotations,
    ) == (
        3,
        "low",
        "2026-01-01T22:00:00Z",
        "2026-01-01T21:00:00Z",
        "2026-01-02T00:00:00Z",
        ["PreemptionByScheduler"],
        ["ReplicaSet/web"],
        {"x": "y"},
    )
    assert (high.status.nominated_node_name, high.spec.preemption_policy) == ("n1", "Never")
    assert snapshot.nodes.nodes[1].spec.unschedulable
    assert (case.seed, case.history) == (
        7,
        {"preemptedCount/5400": {"shop/ReplicaSet/web": 2}, "secondsSinceLastPreempted": {}},
    )
    assert run(case, RuleSet.load("kube-1.35")) is None


# -- who denies whom -----------------------------------------------------------------------------

GUARDED = """\
- note: one of each
  nodes: {n1: {cpu: 4}}
  pdbs: {web: {selector: {app: web}, allowed: 0}}
  pods:
    equal: {node: n1, priority: 10, cpu: 1}
    web: {node: n1, priority: 0, cpu: 1, labels: {app: web}}
    kept: {node: n1, priority: 0, cpu: 1, labels: {preemption: never}}
    free: {node: n1, priority: 0, cpu: 1}
    urgent: {priority: 10, cpu: 1}
  want: {node: n1, victims: [free], denied: {equal: null, web: pdb-hard-limit}}
"""


def test_each_denied_pod_has_its_rule(tmp_path: Path) -> None:
    """No rule allows it, a rule denies it, or a budget holds it back: each is told apart."""
    file = tmp_path / "c.yaml"
    file.write_text(GUARDED)
    (case,) = read_cases(file.read_text(), "c.yaml")
    rules = RuleSet.load("environments/prod")
    assert run(case, rules) is None
    snapshot = snapshot_of(case, rules)
    found = denials(snapshot, rules, case.preemptor)
    assert {pod: (denial.section, denial.rule) for pod, denial in found.items()} == {
        "default/equal": ("victims.eligible", ""),
        "default/kept": ("victims.eligible", "protected-label"),
        "default/web": ("victims.forbid", "pdb-hard-limit"),
    }


def test_the_trace_counts_what_forbidding_rules_hold_back(tmp_path: Path) -> None:
    """Beside the rules that allowed or denied stand those that forbade, each with its pods."""
    file = tmp_path / "c.yaml"
    file.write_text(GUARDED)
    (case,) = read_cases(file.read_text(), "c.yaml")
    rules = RuleSet.load("environments/prod")
    decision = decide(snapshot_of(case, rules), rules, case.preemptor)
    counted = [
        (fired.section, fired.rule, fired.inputs)
        for fired in decision.trace.rules
        if fired.section != "eligibility"
    ]
    assert counted == [
        ("victims.eligible", "protected-label", {"pods": 1}),
        ("victims.eligible", "lower-priority", {"pods": 2}),
        ("victims.eligible", "", {"pods": 1}),
        ("victims.forbid", "pdb-hard-limit", {"pods": 1}),
    ]


# -- differences and settings --------------------------------------------------------------------


def test_generations_side_by_side() -> None:
    """The table of `policy rules diff` says what the specification's tables say."""
    old, new = RuleSet.load("kube-1.14"), RuleSet.load("kube-1.35")
    rows = {
        f"{row.section}/{row.rule}": (row.old, row.new, row.meaning)
        for row in diff_rows(old, new, compare(old, new))
    }
    assert {
        name: rows[name]
        for name in (
            "eligibility/policy-never",
            "eligibility/victims-still-leaving",
            "victims.importance/start-time",
            "ranking/needs-no-victim",
            "ranking/latest-start",
            "filters/resources",
            "/messages",
            "victims.budgets/count",
            "effects/deleteTerminatingVictims",
        )
    } == {
        "eligibility/policy-never": (
            "-",
            "1. deny when preemptor.preemptionPolicy == 'Never'",
            "the pod's class gives it a place in the queue, but no right to remove others",
        ),
        "eligibility/victims-still-leaving": (
            "1. deny when nominated.lowerPriorityTerminating > 0",
            "3. deny when nominated.preemptedPodsTerminating > 0",
            "room is already being made; a second preemption would remove pods needlessly",
        ),
        "victims.importance/start-time": (
            "-",
            "2. ascending victim.startTime",
            "the longer a pod runs, the more work would be lost",
        ),
        "ranking/needs-no-victim": (
            "1. maximize candidate.needsNoVictim ? 1 : 0",
            "-",
            "no longer: a node that takes the pod as it is wins at once",
        ),
        "ranking/latest-start": (
            "-",
            "5. maximize candidate.earliestStartOfTopPriority",
            "the victims that started last lose the least work",
        ),
        "filters/resources": ("-", "yes", rows["filters/resources"][2]),
        "/messages": ("1.14", "1.34.2", "filters give the texts of kube-scheduler 1.34.2"),
        "victims.budgets/count": (
            "static",
            "decrement",
            "each potential victim uses up a disruption of its budgets",
        ),
        "effects/deleteTerminatingVictims": (
            "yes",
            "no",
            "a victim that is leaving already gets no second delete",
        ),
    }
    assert [name for name, row in rows.items() if not row[2]] == []


def test_every_setting_has_a_sentence() -> None:
    """No setting of a rule file differs without words for it."""
    settings = {
        rule.id
        for rule in effective_rules(RuleSet.load("kube-1.35"))
        if rule.section == "settings" and rule.id != "extenders"
    }
    assert settings <= set(PHRASES)


def test_settings_are_explained_with_their_lines() -> None:
    """A setting names the line of the file that gives it, the overlay's before the base's."""
    found = {
        rule.id: (rule.text, rule.origin)
        for rule in effective_rules(RuleSet.load("environments/prod"))
        if rule.section == "settings"
    }
    assert found["victims.maxVictims"] == ("5", "rules/max-victims/rules.yaml:11")
    assert found["victims.order"][1].startswith("rules/kube-1.35.yaml:")
    assert found["effects.preemptionMessage"] == ("true", "default")
