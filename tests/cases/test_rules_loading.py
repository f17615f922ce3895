"""Loading: shipped sets, files, mappings, overrides, overlays, canonical text and digest."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType
from typing import Any

import pytest

from policy.audit.rule_sets import single_pod_names
from policy.filters.base import Parameter
from policy.rules import RulesError, RuleSet, files, loading
from policy.rules.ruleset import (
    BudgetRules,
    CandidateNodes,
    CandidateRules,
    EffectRules,
    Extender,
    ManagedResource,
    NodesWithoutVictims,
    OnNoCandidate,
    StartAt,
    UnmentionedNodes,
    Verdict,
)
from policy.rules.schema import json_schema

ROOT = Path(__file__).parents[2]
SHIPPED = (
    "kube-1.14",
    "kube-1.20",
    "kube-1.27",
    "kube-1.28",
    "kube-1.28.10",
    "kube-1.29",
    "kube-1.29.10",
    "kube-1.29.4",
    "kube-1.30",
    "kube-1.30.6",
    "kube-1.31",
    "kube-1.31.2",
    "kube-1.32",
    "kube-1.33",
    "kube-1.33.6",
    "kube-1.34",
    "kube-1.34.1",
    "kube-1.35",
    "kube-1.36",
)


def an_overlay(spec: dict[str, Any], base: str = "kube-1.35") -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {"name": "mine"},
        "extends": base,
        "spec": spec,
    }


def load(spec: dict[str, Any]) -> RuleSet:
    return RuleSet.load(an_overlay(spec))


def ids(rules: Any) -> list[str]:
    return [rule.id for rule in rules]


# -- shipped rule sets -------------------------------------------------------------------------


def test_the_compatible_rule_sets_are_shipped() -> None:
    """One rule set per recorded generation of kube-scheduler, found by name."""
    assert set(SHIPPED) <= set(RuleSet.names())


@pytest.mark.parametrize("name", RuleSet.names())
def test_a_shipped_rule_set_is_called_as_its_file(name: str) -> None:
    """The name inside a shipped file is the name by which it is found."""
    assert RuleSet.load(name).name == name


def settings(name: str) -> tuple[Any, ...]:
    rules = RuleSet.load(name)
    victims, effects = rules.victims, rules.effects
    return (
        {rule.id: str(rule.when) for rule in rules.eligibility if rule.when},
        [(key.descending, str(key.expression)) for key in victims.importance],
        (victims.nodes_without_victims.value, victims.sorted_again),
        (victims.budgets.decrement, victims.budgets.skip_disrupted),
        (rules.candidates.nodes.value, rules.candidates.min_percentage),
        ids(rules.ranking),
        (
            effects.clear_lower_nominations,
            effects.disruption_condition,
            effects.delete_terminating_victims,
            effects.on_no_candidate.value,
        ),
    )


NEVER = {"policy-never": "preemptor.preemptionPolicy == 'Never'"}
LOST = {"nominated-node-lost": "nominated.status == 'UnschedulableAndUnresolvable'"}
BY_PRIORITY = [(True, "victim.priority")]
BY_START = [*BY_PRIORITY, (False, "victim.startTime")]
BY_KEY = [(False, "victim.key")]
RANKING = ["fewest-pdb-violations", "lowest-top-priority", "lowest-priority-sum", "fewest-victims"]


def leaving(variable: str) -> dict[str, str]:
    return {"victims-still-leaving": f"nominated.{variable} > 0"}


GENERATIONS = {
    "kube-1.14": (
        leaving("lowerPriorityTerminating"),
        BY_PRIORITY + BY_KEY,
        ("tried", False),
        (False, False),
        ("not-unresolvable", 100),
        ["needs-no-victim", *RANKING, "by-name"],
        (True, False, True, "clear-if-no-potential-node"),
    ),
    "kube-1.20": (
        NEVER | LOST | leaving("lowerPriorityTerminating"),
        BY_START + BY_KEY,
        ("skipped", False),
        (True, True),
        ("not-unresolvable", 100),
        [*RANKING, "latest-start", "by-name"],
        (True, False, True, "leave"),
    ),
    "kube-1.28": (
        NEVER | LOST | leaving("preemptedLowerPriorityTerminating"),
        BY_START + BY_KEY,
        ("skipped", False),
        (True, True),
        ("not-unresolvable", 10),
        [*RANKING, "latest-start", "by-name"],
        (True, True, True, "clear"),
    ),
    "kube-1.35": (
        NEVER | LOST | leaving("preemptedPodsTerminating"),
        BY_START + BY_KEY,
        ("skipped", True),
        (True, True),
        ("unschedulable", 10),
        [*RANKING, "latest-start", "by-name"],
        (True, True, False, "clear"),
    ),
}
OLD, NEW = GENERATIONS["kube-1.28"], GENERATIONS["kube-1.35"]
NARROWED = (*OLD[:4], ("unschedulable", 10), *OLD[5:])
RELISTED = (*NARROWED[:2], ("skipped", True), *NARROWED[3:])
GENERATIONS |= dict.fromkeys(["kube-1.27", "kube-1.29.4"], OLD)
GENERATIONS |= dict.fromkeys(
    ["kube-1.28.10", "kube-1.29.10", "kube-1.30.6", "kube-1.31.2"], NARROWED
)
GENERATIONS |= dict.fromkeys(
    ["kube-1.29", "kube-1.30", "kube-1.31", "kube-1.32", "kube-1.33", "kube-1.33.6"], RELISTED
)
GENERATIONS["kube-1.34"] = (*NEW[:6], (True, True, True, "clear"))
GENERATIONS |= dict.fromkeys(["kube-1.34.1", "kube-1.36"], NEW)


@pytest.mark.parametrize("name", SHIPPED)
def test_generations_differ_as_specified(name: str) -> None:
    """Eligibility, order, budgets, candidate nodes, ranking and effects of each generation."""
    assert settings(name) == GENERATIONS[name]


# -- overlays ----------------------------------------------------------------------------------


def test_scalars_and_mappings_merge_by_key() -> None:
    """What an overlay does not mention stays as in the base."""
    rules = load({"candidates": {"minAbsolute": 5}, "effects": {"onNoCandidate": "leave"}})
    assert (rules.candidates, rules.effects) == (
        CandidateRules(
            nodes=CandidateNodes.UNSCHEDULABLE,
            min_percentage=10,
            min_absolute=5,
            start=StartAt.RANDOM,
        ),
        EffectRules(
            clear_lower_nominations=True,
            clear_without_eviction=False,
            disruption_condition=True,
            repeat_condition=False,
            delete_terminating_victims=False,
            on_no_candidate=OnNoCandidate.LEAVE,
            preemption_message=True,
            claims_message=True,
        ),
    )


def test_a_list_given_whole_replaces_the_base_list() -> None:
    """A list of rules is not appended to."""
    rules = load({"ranking": [{"id": "drawn", "pick": "seeded"}]})
    assert ids(rules.ranking) == ["drawn"]


def a_deny(name: str, when: str = "victim.terminating") -> dict[str, str]:
    return {"id": name, "when": when, "verdict": "deny", "reason": "protected"}


def test_rules_are_removed_replaced_and_inserted_by_id() -> None:
    """Each operation finds its place by id; insertions at one place keep their order."""
    rules = load(
        {
            "eligibility": {
                "remove": ["nominated-node-lost"],
                "replace": [{"id": "policy-never", "verdict": "deny", "reason": "closed"}],
                "insert": [
                    {"after": "policy-never", "rule": {"id": "a", "verdict": "allow"}},
                    {"after": "policy-never", "rule": {"id": "b", "verdict": "allow"}},
                    {"before": "otherwise", "rule": {"id": "c", "verdict": "allow"}},
                    {"before": "otherwise", "rule": {"id": "d", "verdict": "allow"}},
                    {"at": "start", "rule": {"id": "e", "verdict": "allow"}},
                    {"at": "start", "rule": {"id": "f", "verdict": "allow"}},
                    {"at": "end", "rule": {"id": "g", "verdict": "allow"}},
                    {"at": "end", "rule": {"id": "h", "verdict": "allow"}},
                ],
            }
        }
    )
    expected = "e f policy-never a b victims-still-leaving c d otherwise g h"
    assert ids(rules.eligibility) == expected.split()
    assert rules.eligibility[2].reason == "closed"


def test_every_list_of_rules_can_be_changed_by_id() -> None:
    """Filters and scorers are named by their names, an importance key by its variable."""
    rules = load(
        {
            "filters": {"remove": ["resource-claims"], "replace": ["node-name"]},
            "victims": {
                "eligible": {"insert": [{"at": "start", "rule": a_deny("fresh")}]},
                "forbid": {
                    "insert": [{"at": "end", "rule": {"id": "keep", "when": "victim.pdbViolating"}}]
                },
                "importance": {
                    "remove": ["start-time"],
                    "insert": [{"before": "key", "rule": {"descending": "victim.runtimeSeconds"}}],
                },
            },
            "ranking": {
                "insert": [
                    {
                        "after": "fewest-pdb-violations",
                        "rule": {"id": "least-work", "minimize": "candidate.victimSeconds"},
                    }
                ]
            },
        }
    )
    found = (
        [use.name for use in rules.filters][-1],
        ids(rules.victims.eligible),
        [(rule.id, rule.verdict) for rule in rules.victims.forbid],
        ids(rules.victims.importance),
        ids(rules.ranking)[:3],
    )
    assert found == (
        "pod-affinity",
        ["fresh", "lower-priority"],
        [("keep", Verdict.FORBID)],
        ["priority", "runtime-seconds", "key"],
        ["fewest-pdb-violations", "least-work", "lowest-top-priority"],
    )


def test_overrides_lie_on_top_of_everything() -> None:
    """`load(overrides=...)` changes what the file and its base say."""
    rules = RuleSet.load(
        an_overlay({"candidates": {"minPercentage": 50}}), {"candidates": {"minPercentage": 100}}
    )
    assert rules.candidates.min_percentage == 100


def test_files_extend_files_beside_them(tmp_path: Path) -> None:
    """A relative path starts at the file that names it; each rule knows its own line."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "site.yaml").write_text(
        dedent("""\
        apiVersion: policy/v1
        kind: PreemptionRules
        metadata: {name: site, description: The site}
        extends: kube-1.35
        spec:
          victims:
            eligible:
              insert:
                - at: start
                  rule: {id: not-system, when: victim.namespace == 'kube-system', verdict: deny}
        """)
    )
    top = tmp_path / "top.yaml"
    top.write_text(
        dedent("""\
        apiVersion: policy/v1
        kind: PreemptionRules
        metadata: {name: top}
        extends: base/site.yaml
        spec:
          victims: {maxVictims: 3}
        """)
    )
    rules = RuleSet.load(top)
    found = (
        rules.name,
        rules.description,
        rules.victims.max_victims,
        rules.origins["not-system"],
        rules.origins["lower-priority"].rpartition(":")[0],
    )
    assert found == (
        "top",
        "",
        3,
        f"{tmp_path}/base/site.yaml:10",
        "rules/kube-1.35.yaml",
    )


def test_a_long_chain_is_refused(tmp_path: Path) -> None:
    """More than twenty files one after the other are taken for a mistake."""
    for number in range(22):
        base = f"./{number + 1}.yaml" if number < 21 else "kube-1.36"
        text = json.dumps(an_overlay({}, base))
        (tmp_path / f"{number}.yaml").write_text(text)
    with pytest.raises(RulesError) as refused:
        RuleSet.load(tmp_path / "0.yaml")
    assert refused.value.problems[0].message == (
        "`./21.yaml` extends more than 20 files one after the other"
    )


# -- files ---------------------------------------------------------------------------------------


def test_json_text_is_a_rule_file_too(tmp_path: Path) -> None:
    """The same content as JSON, which YAML contains, and as a mapping is the same rule set."""
    content = an_overlay({"victims": {"eligible": [a_deny("dia", "victim.name == '😀'")]}})
    path = tmp_path / "rules.yaml"
    path.write_text("\ufeff" + json.dumps(content, ensure_ascii=False))
    loaded, mapping = RuleSet.load(path), RuleSet.load(content)
    assert (str(loaded.victims.eligible[0].when), loaded) == ("victim.name == '😀'", mapping)


@pytest.mark.parametrize(
    "text",
    ["victim.started ? true : false", ">-\n          victim.started ?\n          true : false"],
)
def test_an_expression_may_stand_quoted_or_in_a_block(text: str, tmp_path: Path) -> None:
    """YAML's quoting styles carry the same expression."""
    shown = text if text.startswith(">-") else f"'{text}'"
    path = tmp_path / "rules.yaml"
    path.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: mine}\n"
        "extends: kube-1.35\nspec:\n  victims:\n    eligible:\n      - id: started\n"
        f"        when: {shown}\n        verdict: allow\n"
    )
    assert str(RuleSet.load(path).victims.eligible[0].when) == "victim.started ? true : false"


# -- whole shape ---------------------------------------------------------------------------------


def test_sections_that_may_be_left_out_have_defaults() -> None:
    """A minimal rule file gets the documented defaults."""
    rules = RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "small"},
            "spec": {
                "eligibility": [{"id": "all", "verdict": "allow"}],
                "filters": ["resources"],
                "victims": {
                    "eligible": [{"id": "anyone", "verdict": "allow"}],
                    "importance": [{"ascending": "victim.key"}],
                },
                "ranking": [{"id": "by-name", "pick": "first-by-name"}],
            },
        }
    )
    victims = rules.victims
    found = (
        (victims.forbid, victims.max_victims, victims.nodes_without_victims, victims.sorted_again),
        (victims.budgets, victims.reprieve),
        rules.candidates,
        (rules.scoring, rules.extenders, rules.audit_candidates),
    )
    assert found == (
        ((), None, NodesWithoutVictims.SKIPPED, True),
        (BudgetRules(decrement=True, skip_disrupted=True), ("pdb-violating", "others")),
        CandidateRules(
            nodes=CandidateNodes.UNSCHEDULABLE,
            min_percentage=10,
            min_absolute=100,
            start=StartAt.RANDOM,
        ),
        ((), (), 10),
    )


def test_extenders_are_validated_data() -> None:
    """An extender of a rule file arrives with all its settings."""
    rules = load(
        {
            "extenders": [
                {
                    "urlPrefix": "http://extender:8080/",
                    "preemptVerb": "preempt",
                    "ignorable": True,
                    "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
                }
            ],
            "audit": {"candidates": "chosen"},
        }
    )
    assert (rules.extenders, rules.audit_candidates) == (
        (
            Extender(
                url_prefix="http://extender:8080/",
                filter_verb="",
                prioritize_verb="",
                preempt_verb="preempt",
                weight=0,
                http_timeout_seconds=5,
                node_cache_capable=False,
                ignorable=True,
                managed_resources=(
                    ManagedResource(name="example.com/gpu", ignored_by_scheduler=True),
                ),
                unmentioned_nodes=UnmentionedNodes.UNRESOLVABLE,
            ),
        ),
        "chosen",
    )


class AFilter:
    """A filter with one parameter of each type."""

    parameters = MappingProxyType(
        {
            "mode": Parameter(doc="", default="soft", choices=("soft", "hard")),
            "limit": Parameter(doc="", default=3),
            "strict": Parameter(doc="", default=False),
        }
    )


@pytest.fixture
def a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """`a-filter` is the only filter there is."""
    monkeypatch.setattr(loading, "FILTERS", {"a-filter": AFilter()})


@pytest.mark.usefixtures("a_filter")
def test_filter_parameters_get_their_defaults() -> None:
    """Parameters that a rule file leaves out have the registry's defaults."""
    rules = load({"filters": [{"filter": "a-filter", "mode": "hard"}]})
    assert [(use.name, dict(use.parameters)) for use in rules.filters] == [
        ("a-filter", {"mode": "hard", "limit": 3, "strict": False})
    ]


@pytest.mark.usefixtures("a_filter")
@pytest.mark.parametrize(
    ("parameters", "expected", "advice"),
    [
        ({"mod": "hard"}, "`a-filter` has no parameter `mod`", "did you mean `mode`?"),
        ({"mode": "hrad"}, "unknown `mode` `hrad` of `a-filter`", "did you mean `hard`?"),
        ({"limit": True}, "`limit` of `a-filter` must be a whole number", ""),
        ({"strict": 1}, "`strict` of `a-filter` must be true or false", ""),
        ({"mode": ["hard"]}, "`mode` of `a-filter` must be text, not a list", ""),
    ],
)
def test_filter_parameters_are_checked(
    parameters: dict[str, Any], expected: str, advice: str
) -> None:
    """A parameter that the filter does not know, or of another type, is refused."""
    with pytest.raises(RulesError) as refused:
        load({"filters": [{"filter": "a-filter", **parameters}]})
    problem = refused.value.problems[0]
    assert (problem.message.startswith(expected), problem.help) == (True, advice)


# -- includes ----------------------------------------------------------------------------------


def test_included_rules_lie_over_the_base_and_below_the_own_ones() -> None:
    """An overlay changes an included rule by its id, and each rule keeps the line it is from."""
    own = {"id": "protected-label", "when": "victim.terminating", "verdict": "deny"}
    rules = RuleSet.load(
        {
            **an_overlay({"victims": {"eligible": {"replace": [own]}}}, base="kube-1.28"),
            "include": ["cooldown", "protected"],
        }
    )
    assert [(rule.id, str(rule.when)) for rule in rules.victims.eligible] == [
        ("protected-label", "victim.terminating"),
        (
            "protected-namespace-label",
            "victim.namespaceLabels['preemption'] == 'never'",
        ),
        (
            "protected-namespace",
            "victim.namespace in ['kube-system', 'kube-public', 'kube-node-lease']",
        ),
        ("lower-priority", "victim.priority < preemptor.priority"),
    ]
    assert [rule.id for rule in rules.victims.forbid] == ["cooldown"]
    assert rules.origins["protected-namespace"].startswith("rules/protected/rules.yaml:")


def test_a_folder_stands_for_the_rules_in_it(tmp_path: Path) -> None:
    """A rule in its own folder is included by the path of the folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rules.yaml").write_text((ROOT / "rules" / "max-victims" / "rules.yaml").read_text())
    file = tmp_path / "prod.yaml"
    file.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: p}\n"
        "extends: kube-1.35\ninclude: [./mine]\n"
    )
    assert RuleSet.load(file).victims.max_victims == 5


@pytest.mark.parametrize("name", [*files.shipped_rules(), *files.shipped_environments()])
def test_shipped_rules_and_environments_are_called_as_their_files(name: str) -> None:
    """The name inside a file is the folder's, or the last part of `environments/NAME`."""
    assert RuleSet.load(name).name == name.removeprefix("environments/")


def test_environments_are_no_rule_sets_of_their_own() -> None:
    """An overlay for an environment is found under its folder's name only."""
    assert set(files.shipped_environments()) == {
        "environments/dev",
        "environments/prod",
        "environments/staging",
    }
    with pytest.raises(RulesError, match="no shipped rule set `prod`"):
        RuleSet.load("prod")


# -- editors -------------------------------------------------------------------------------------


def test_the_editor_schema_knows_overlays() -> None:
    """The JSON schema offers `extends`, and a list either whole or changed by id."""
    schema = json_schema()
    ranking = schema["$defs"]["SpecModel"]["properties"]["ranking"]["anyOf"]
    found = (
        sorted(schema["properties"]),
        schema["required"],
        [form["type"] for form in ranking],
        sorted(ranking[1]["properties"]),
    )
    assert found == (
        ["apiVersion", "extends", "include", "kind", "metadata", "spec"],
        ["apiVersion", "kind", "metadata"],
        ["array", "object"],
        ["insert", "remove", "replace"],
    )


def test_rule_sets_share_what_they_have_in_common() -> None:
    """A file is parsed once for all that stand on it, an expression compiled once in its place."""
    found = {name: RuleSet.load(name) for name in single_pod_names()}
    expressions = [e for rules in found.values() for e in rules.expressions()]
    assert len({id(e) for e in expressions}) == len({(e.source, e.context) for e in expressions})
    assert len(expressions) > 5 * len({id(e) for e in expressions})
    opened = [files.open_source("kube-1.36", kind=files.PREEMPTION_RULES) for _ in range(2)]
    assert opened[0].root is opened[1].root
    opened[0].problems.append(opened[0].root.place.problem("spec", "of this one alone"))
    assert opened[1].problems == []
