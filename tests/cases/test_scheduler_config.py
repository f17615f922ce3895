"""A KubeSchedulerConfiguration as it is becomes a rule file, and what does not is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy import RuleSet
from policy.rules.scheduler_config import (
    ConfigError,
    Translation,
    chosen,
    generation_of,
    profiles_of,
    translate,
)
from policy.rules.scheduler_config.extenders import duration

REAL = Path(__file__).parents[1] / "data" / "scheduler-config"
FILES = sorted(f for d in ("kube-scheduler", "extender") for f in (REAL / d).iterdir())
REFUSED = {
    "scheduler-plugins-docs__capacityscheduling-1.yaml": "it holds ElasticQuota",
    "scheduler-plugins-docs__capacityscheduling-2.yaml": "check the indentation",
    "scheduler-plugins-docs__capacityscheduling-3.yaml": "check the indentation",
    "scheduler-plugins-docs__capacityscheduling-4.yaml": "check the indentation",
    "scheduler-plugins-docs__preemptiontoleration-1.yaml": "it holds PriorityClass",
}
API = "kubescheduler.config.k8s.io/"


def translated(text: str, profile: str | None = None, base: str | None = None) -> Translation:
    wanted = chosen(profiles_of(text, "f.yaml"), profile, "f.yaml")
    extends = base or generation_of(wanted)
    return translate(wanted, base=RuleSet.load(extends), extends=extends, name=None)


def config(version: str = "v1", **parts: Any) -> str:
    kind = {"apiVersion": API + version, "kind": "KubeSchedulerConfiguration"}
    return json.dumps({**kind, **parts})


def of_profile(version: str = "v1", **parts: Any) -> Translation:
    return translated(config(version, profiles=[parts]))


def spec(found: Translation) -> dict[str, Any]:
    result: dict[str, Any] = found.rules.get("spec", {})
    return result


def loaded(found: Translation, folder: Path) -> RuleSet:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(found.rules, sort_keys=False))
    return RuleSet.load(path)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_every_real_file_is_read_or_refused_in_words_that_help(file: Path, tmp_path: Path) -> None:
    """What comes out is a rule file that loads; what holds no configuration says what it holds."""
    text = file.read_text()
    if file.name in REFUSED:
        with pytest.raises(ConfigError) as caught:
            profiles_of(text, file.name)
        assert REFUSED[file.name] in str(caught.value.problem)
        return
    for profile in profiles_of(text, file.name):
        extends = generation_of(profile)
        found = translate(profile, base=RuleSet.load(extends), extends=extends, name=None)
        assert loaded(found, tmp_path).filters


def test_a_configuration_in_a_config_map() -> None:
    """Koordinator's: resources of a strategy are taken over, each foreign plugin is named."""
    text = (REAL / "kube-scheduler" / "koordinator-scheduler-config.yaml").read_text()
    found = translated(text)
    where = "ConfigMap scheduler-config, key koord-scheduler-config: profiles[0]"
    assert found.rules == {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {
            "name": "koord-scheduler",
            "description": "Profile koord-scheduler of a KubeSchedulerConfiguration",
        },
        "extends": "kube-1.36",
        "spec": {
            "scoring": {
                "replace": [
                    {
                        "scorer": "least-allocated",
                        "weight": 1,
                        "cpu": 1,
                        "memory": 1,
                        "resources": [
                            {"name": "kubernetes.io/batch-cpu", "weight": 1},
                            {"name": "kubernetes.io/batch-memory", "weight": 1},
                        ],
                    }
                ]
            }
        },
    }
    assert f"{where}: plugins: `SchedulingHint` (preFilter) is not modelled" in found.notices
    assert f"{where}: pluginConfig[1]: arguments of `LoadAwareScheduling` are not modelled" in (
        found.notices
    )


def test_extenders_of_a_configuration() -> None:
    """Durations are seconds; what an extender's call does not have is said."""
    extender = {
        "urlPrefix": "http://e:1/s",
        "preemptVerb": "preempt",
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 2,
        "httpTimeout": "2s",
        "nodeCacheCapable": True,
        "tlsConfig": {"insecure": True},
        "managedResources": [{"name": "e.com/gpu", "ignoredByScheduler": True}],
    }
    found = translated(
        config(extenders=[extender, {"urlPrefix": "http://f", "httpTimeout": "500ms"}])
    )
    assert (spec(found), found.notices) == (
        {
            "extenders": [
                {
                    "urlPrefix": "http://e:1/s",
                    "prioritizeVerb": "prioritize",
                    "preemptVerb": "preempt",
                    "weight": 2,
                    "nodeCacheCapable": True,
                    "httpTimeoutSeconds": 2,
                    "managedResources": [{"name": "e.com/gpu", "ignoredByScheduler": True}],
                },
                {"urlPrefix": "http://f", "httpTimeoutSeconds": 1},
            ]
        },
        (
            "extenders[0].bindVerb: not modelled: the scheduler itself binds",
            "extenders[0].tlsConfig: not modelled: the system's certificates count",
            "extenders[1].httpTimeout: `500ms` becomes 1 s",
        ),
    )


@pytest.mark.parametrize(
    "prefix", ["https://extender:secret@e:1/s", "https://secret@e:1/s", "https://a@secret@e:1/s"]
)
def test_credentials_of_an_extender_are_not_taken_over(prefix: str) -> None:
    """A rule set is recorded, and shown to everyone who may read the record."""
    found = translated(config(extenders=[{"urlPrefix": prefix, "preemptVerb": "preempt"}]))
    assert (spec(found), found.notices) == (
        {"extenders": [{"urlPrefix": "https://e:1/s", "preemptVerb": "preempt"}]},
        ("extenders[0].urlPrefix: the credentials before `@` are left out",),
    )


@pytest.mark.parametrize(
    ("version", "base", "said"),
    [
        ("v1", "kube-1.36", {}),
        ("v1", "kube-1.31", {"unmentionedNodes": "without-status"}),
        ("v1beta2", "kube-1.27", {"unmentionedNodes": "without-status"}),
        (
            "v1beta1",
            "kube-1.20",
            {"unmentionedNodes": "without-status", "answeredViolations": "forgotten"},
        ),
    ],
)
def test_what_a_generation_makes_of_answers(version: str, base: str, said: dict[str, str]) -> None:
    """Nodes that are not mentioned (1.32), and violated budgets (1.24)."""
    extender = {"urlPrefix": "http://e", "filterVerb": "f", "preemptVerb": "p"}
    found = translated(config(version, extenders=[extender]), base=base)
    assert spec(found) == {"extenders": [{**extender, **said}]}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2), ("1m30s", 90), ("1.5h", 5400), (5_000_000_000, 5), ("2", None), (True, None)],
)
def test_durations_as_go_writes_them(text: Any, seconds: int | None) -> None:
    """Numbers with units, or nanoseconds."""
    assert duration(text) == seconds


def enabled(*names: str, **weights: int) -> list[dict[str, Any]]:
    return [{"name": n} for n in names] + [{"name": n, "weight": w} for n, w in weights.items()]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ({}, {}),
        (
            {"score": {"disabled": enabled("ImageLocality"), "enabled": enabled(NodeAffinity=7)}},
            {
                "scoring": {
                    "remove": ["image-locality"],
                    "replace": [{"scorer": "node-affinity", "weight": 7}],
                }
            },
        ),
        (
            # Named without a weight it is 1, not the default of 3.
            {"score": {"enabled": enabled("TaintToleration")}},
            {"scoring": {"replace": [{"scorer": "taints", "weight": 1}]}},
        ),
        ({"score": {"disabled": enabled("*")}}, {"scoring": []}),
        (
            {"score": {"disabled": enabled("*"), "enabled": enabled(ImageLocality=3)}},
            {
                "scoring": {
                    "remove": [
                        "taints",
                        "node-affinity",
                        "topology-spread",
                        "pod-affinity",
                        "least-allocated",
                        "balanced-allocation",
                    ],
                    "replace": [{"scorer": "image-locality", "weight": 3}],
                }
            },
        ),
        (
            {"multiPoint": {"disabled": enabled("InterPodAffinity")}},
            {"filters": {"remove": ["pod-affinity"]}, "scoring": {"remove": ["pod-affinity"]}},
        ),
        (
            {"multiPoint": {"enabled": enabled(ImageLocality=9)}},
            {"scoring": {"replace": [{"scorer": "image-locality", "weight": 9}]}},
        ),
        ({"filter": {"disabled": enabled("NodePorts")}}, {"filters": {"remove": ["node-ports"]}}),
    ],
)
def test_plugins_that_are_enabled_and_disabled(
    plugins: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """Sets of plugins, also `*` and the general point, are what is removed and replaced."""
    found = of_profile(plugins=plugins)
    assert spec(found) == expected
    loaded(found, tmp_path)


def test_filters_in_another_order_are_listed(tmp_path: Path) -> None:
    """What a profile names itself comes first, and the first filter that fails gives the reason."""
    found = of_profile(plugins={"filter": {"enabled": enabled("InterPodAffinity", "NodePorts")}})
    names = [use.name for use in loaded(found, tmp_path).filters]
    before = [use.name for use in RuleSet.load("kube-1.36").filters]
    rest = [name for name in before if name not in {"pod-affinity", "node-ports"}]
    assert names == ["pod-affinity", "node-ports", *rest]


@pytest.mark.parametrize(
    "parts",
    [
        {"plugins": {"postFilter": {"disabled": enabled("DefaultPreemption")}}},
        {"plugins": {"postFilter": {"disabled": enabled("*")}}},
        {"plugins": {"multiPoint": {"disabled": enabled("DefaultPreemption")}}},
    ],
)
def test_without_default_preemption_no_pod_may_preempt(
    parts: dict[str, Any], tmp_path: Path
) -> None:
    """The first eligibility rule denies."""
    first = loaded(of_profile(**parts), tmp_path).eligibility[0]
    assert (first.id, first.verdict.value) == ("preemption-disabled", "deny")


def test_the_old_switch_of_preemption() -> None:
    """v1alpha1 has one scheduler, with `disablePreemption`."""
    text = config("v1alpha1", schedulerName="old", disablePreemption=True)
    found = translated(text)
    assert (found.rules["extends"], list(spec(found))) == ("kube-1.14", ["eligibility"])


@pytest.mark.parametrize(
    ("plugin", "args", "expected"),
    [
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 50, "minCandidateNodesAbsolute": 100},
            {"candidates": {"minPercentage": 50}},
        ),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": 5},
            {
                "scoring": {
                    "replace": [{"scorer": "pod-affinity", "weight": 2, "requiredWeight": 5}]
                }
            },
        ),
        (
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            },
            {
                "filters": {
                    "replace": [
                        {
                            "filter": "topology-spread",
                            "defaultConstraints": [
                                {
                                    "maxSkew": 2,
                                    "topologyKey": "rack",
                                    "whenUnsatisfiable": "DoNotSchedule",
                                }
                            ],
                        }
                    ]
                },
                "scoring": {
                    "replace": [
                        {
                            "scorer": "topology-spread",
                            "weight": 2,
                            "defaultingType": "list",
                            "defaultConstraints": [
                                {
                                    "maxSkew": 2,
                                    "topologyKey": "rack",
                                    "whenUnsatisfiable": "DoNotSchedule",
                                }
                            ],
                        }
                    ]
                },
            },
        ),
        ("PodTopologySpread", {"defaultingType": "System"}, {}),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}],
                }
            },
            {
                "scoring": {
                    "remove": ["least-allocated"],
                    "insert": [
                        {
                            "at": "end",
                            "rule": {
                                "scorer": "most-allocated",
                                "weight": 1,
                                "cpu": 1,
                                "memory": 0,
                                "resources": [{"name": "nvidia.com/gpu", "weight": 5}],
                            },
                        }
                    ],
                }
            },
        ),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [
                            {"utilization": 0, "score": 10},
                            {"utilization": 100, "score": 0},
                        ]
                    },
                }
            },
            {
                "scoring": {
                    "remove": ["least-allocated"],
                    "insert": [
                        {
                            "at": "end",
                            "rule": {
                                "scorer": "requested-to-capacity-ratio",
                                "weight": 1,
                                "shape": [
                                    {"utilization": 0, "score": 10},
                                    {"utilization": 100, "score": 0},
                                ],
                            },
                        }
                    ],
                }
            },
        ),
    ],
)
def test_arguments_of_plugins(
    plugin: str, args: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    """Arguments become parameters; what says nothing new is left out."""
    found = of_profile(pluginConfig=[{"name": plugin, "args": args}])
    assert (spec(found), found.notices) == (expected, ())
    loaded(found, tmp_path)


def test_scorers_of_v1beta1_stand_for_strategies(tmp_path: Path) -> None:
    """NodeResourcesMostAllocated was a plugin of its own, with a weight."""
    plugins = {
        "score": {
            "disabled": enabled("NodeResourcesLeastAllocated"),
            "enabled": enabled(NodeResourcesMostAllocated=4),
        }
    }
    found = of_profile("v1beta1", plugins=plugins)
    rules = loaded(found, tmp_path)
    assert found.rules["extends"] == "kube-1.20"
    names = {use.name: use.weight for use in rules.scoring}
    assert ("least-allocated" in names, names["most-allocated"]) == (False, 4)


def test_everything_that_is_not_modelled_is_said() -> None:
    """Keys, arguments, extension points and plugins, each with its place."""
    found = translated(
        config(
            percentageOfNodesToScore=50,
            newKey=1,
            podMaxBackoffSeconds=20,
            profiles=[
                {
                    "schedulerName": "s",
                    "percentageOfNodesToScore": 5,
                    "plugins": {
                        "preFilter": {"disabled": enabled("NodePorts")},
                        "queueSort": {"enabled": enabled("Mine"), "disabled": enabled("*")},
                        "nowhere": {},
                    },
                    "pluginConfig": [
                        {"name": "NodeAffinity", "args": {"addedAffinity": {"x": 1}}},
                        {"name": "NodeResourcesFit", "args": {"ignoredResources": ["a/b"]}},
                    ],
                }
            ],
        )
    )
    assert spec(found) == {"queue": {"maxBackoffSeconds": 20}}
    assert found.notices == (
        "percentageOfNodesToScore: not modelled: every node that fits is scored",
        "newKey: not modelled",
        "profiles[0]: percentageOfNodesToScore: not modelled",
        "profiles[0]: pluginConfig[0].args.addedAffinity: `addedAffinity` of `NodeAffinity` is not "
        "modelled",
        "profiles[0]: pluginConfig[1].args.ignoredResources: `ignoredResources` of "
        "`NodeResourcesFit` is not modelled",
        "profiles[0]: plugins.nowhere: not a known extension point",
        "profiles[0]: plugins: `Mine` (queueSort) is not modelled",
        "profiles[0]: plugins.preFilter: disabling `NodePorts` there alone is not modelled",
        "profiles[0]: plugins.queueSort: not modelled: pods are tried by priority",
    )


def test_one_of_several_profiles_is_chosen() -> None:
    """By name, else that of the default scheduler; an unknown name lists those there are."""
    text = config(profiles=[{"schedulerName": "a"}, {"schedulerName": "default-scheduler"}])
    profiles = profiles_of(text, "f")
    assert [chosen(profiles, name, "f").name for name in (None, "a")] == ["default-scheduler", "a"]
    with pytest.raises(ConfigError) as caught:
        chosen(profiles, "b", "f")
    assert str(caught.value.problem) == (
        "f: no profile `b`\n  help: choose one with `--profile`: `a`, `default-scheduler`"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            config().replace("/v1", "/v2"),
            "f: unknown version `v2` of KubeSchedulerConfiguration\n"
            "  help: known: v1alpha1, v1alpha2, v1beta1, v1beta2, v1beta3, v1",
        ),
        (
            config(profiles=[{"schedulerName": "a"}, {"schedulerName": "a"}]),
            "f: profile `a` is listed twice\n  help: kube-scheduler refuses that: give each "
            "profile a `schedulerName` of its own",
        ),
        (config(profiles=3), "f: profiles: must be a list"),
        (config(profiles=[{}, 7]), "f: profiles[1]: must be an object"),
        (config(extenders={}), "f: extenders: must be a list"),
        (config(profiles=[{"plugins": 3}]), "f: profiles[0]: plugins: must be an object"),
        (
            config(profiles=[{"plugins": {"score": ["x"]}}]),
            "f: profiles[0]: plugins.score: must be an object",
        ),
        (
            config(profiles=[{"plugins": {"score": {"disabled": ["x"]}}}]),
            "f: profiles[0]: plugins.score: disabled[0]: must be an object",
        ),
        (
            config(profiles=[{"pluginConfig": {"name": "a"}}]),
            "f: profiles[0]: pluginConfig: must be a list",
        ),
        (
            config(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": 3}]}]),
            "f: profiles[0]: pluginConfig[0].args: must be an object",
        ),
    ],
)
def test_what_kube_scheduler_would_not_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chosen(profiles_of(text, "f"), "a" if "twice" in said else None, "f")
    assert str(caught.value.problem) == said


def test_arguments_that_kube_scheduler_refuses_are_left_out() -> None:
    """They are named; what is printed loads."""
    given = [
        {
            "name": "DefaultPreemption",
            "args": {"minCandidateNodesPercentage": 200, "minCandidateNodesAbsolute": -3},
        },
        {"name": "DefaultPreemption", "args": {"minCandidateNodesAbsolute": 7}},
    ]
    found = translated(config(profiles=[{"schedulerName": "s", "pluginConfig": given}]))
    assert spec(found) == {"candidates": {"minAbsolute": 7}}
    assert found.notices == (
        "profiles[0]: pluginConfig[0].args.minCandidateNodesPercentage: kube-scheduler refuses "
        "`200`: a whole number from 0 to 100; left out",
        "profiles[0]: pluginConfig[0].args.minCandidateNodesAbsolute: kube-scheduler refuses "
        "`-3`: a whole number from 0 to 2147483647; left out",
        "profiles[0]: pluginConfig[1]: `DefaultPreemption` is listed twice, which kube-scheduler "
        "refuses; the last counts",
    )
