"""From a profile of kube-scheduler to an overlay over the rule set of its generation.

What a rule set cannot express, or what no filter or scorer models, is noticed: never dropped
silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policy.filters.registry import FILTERS
from policy.rules.ruleset import RuleSet, UnmentionedNodes
from policy.rules.scheduler_config import extenders
from policy.rules.scheduler_config.arguments import Given, read
from policy.rules.scheduler_config.plugins import (
    MULTI,
    POINTS,
    Enabled,
    PluginSet,
    effective,
    plugin_sets,
)
from policy.rules.scheduler_config.reading import KIND, POLICY, Profile
from policy.rules.versions import VersionRange

_FIT: Final = "NodeResourcesFit"
_RATIO: Final = "RequestedToCapacityRatio"
SCORERS: Final[Mapping[str, str]] = {
    "TaintToleration": "taints",
    "NodeAffinity": "node-affinity",
    "PodTopologySpread": "topology-spread",
    "InterPodAffinity": "pod-affinity",
    "NodeResourcesBalancedAllocation": "balanced-allocation",
    "ImageLocality": "image-locality",
    "NodeResourcesLeastAllocated": "least-allocated",
    "NodeResourcesMostAllocated": "most-allocated",
    _RATIO: "requested-to-capacity-ratio",
}
"""Scorers by plugin; those of NodeResourcesFit depend on its strategy."""

#: default plugins whose part in a decision is elsewhere, or which have none
_QUIET: Final = frozenset(
    {
        "PrioritySort",
        "DefaultBinder",
        "DefaultPreemption",
        "SchedulingGates",
        "NodePreferAvoidPods",
        "SelectorSpread",
    }
)
#: limits of in-tree volumes, of which volume-limits models none
_IN_TREE: Final = frozenset({"EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"})

GENERATIONS: Final[Mapping[str, str]] = {
    "v1alpha1": "kube-1.14",
    "v1alpha2": "kube-1.20",
    "v1beta1": "kube-1.20",
    "v1beta2": "kube-1.27",
    "v1beta3": "kube-1.28",
    "v1": "kube-1.36",
}
"""The newest generation that reads a version of the configuration's API."""

_UNRESOLVABLE: Final = (1, 32, 0)
"""From here on a node that no answer of the filter verb mentions is unresolvable."""
_VIOLATIONS: Final = (1, 24, 0)
"""From here on the violated budgets of an answer to the preempt verb are read."""
_BEFORE_VIOLATIONS: Final = frozenset({"v1alpha1", "v1alpha2", "v1beta1"})
"""Versions of the API that no scheduler reads from 1.23 on."""

_WITHOUT_GENERAL: Final = frozenset({"v1alpha1", "v1alpha2", "v1beta1", "v1beta2"})
"""Versions of the API whose defaults stand at each extension point, without `multiPoint`."""

_WITHOUT_PART: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "metadata",
        "profiles",
        "extenders",
        "plugins",
        "pluginConfig",
        "schedulerName",
        "leaderElection",
        "clientConnection",
        "healthzBindAddress",
        "metricsBindAddress",
        "enableProfiling",
        "enableContentionProfiling",
        "parallelism",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "delayCacheUntilActive",
        "disablePreemption",
        "hardPodAffinitySymmetricWeight",
        "algorithmSource",
        "bindTimeoutSeconds",
        "failureDomains",
    }
)
"""Keys that are read, or that say how a scheduler runs and not what it decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A rule file, and what of the configuration is not in it."""

    rules: dict[str, Any]
    notices: tuple[str, ...]


def generation_of(profile: Profile) -> str:
    """The rule set that a configuration is laid over where nobody says which."""
    return GENERATIONS.get("v1alpha1" if profile.is_policy else profile.version, "kube-1.36")


def translate(profile: Profile, *, base: RuleSet, extends: str, name: str | None) -> Translation:
    """The rule file of one profile.

    base: the rule set of the generation, which `extends` names; name: of the new rule set, after
    the profile where it is None.
    """
    return _Translator(profile, base).run(extends=extends, name=name)


@dataclass(slots=True)
class _Translator:
    profile: Profile
    base: RuleSet
    notices: list[str] = field(default_factory=list)
    given: Given = field(default_factory=Given)

    def run(self, *, extends: str, name: str | None) -> Translation:
        profile, config = self.profile, self.profile.config
        self._unknown_keys()
        self._arguments()
        sets = plugin_sets(profile.value)
        spec: dict[str, Any] = {}
        if profile.is_policy:
            self._policy()
        else:
            self._not_modelled(sets)
        _put(spec, "eligibility", self._preemption(sets))
        _put(spec, "filters", self._filters(sets))
        scoring = self._scoring(sets)
        if scoring is not None:
            spec["scoring"] = scoring
        _put(spec, "candidates", self._candidates())
        _put(spec, "queue", self._queue())
        listed = config.get("extenders")
        if isinstance(listed, list):
            path = f"{profile.outer}: extenders" if profile.outer else "extenders"
            found = [
                extenders.extender(value, f"{path}[{i}]", self.notices)
                for i, value in enumerate(listed)
                if isinstance(value, Mapping)
            ]
            _put(spec, "extenders", [{**one, **self._heeded(one)} for one in found])
        rules = {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {
                "name": name or _identifier(profile.name),
                "description": f"Profile {profile.name} of a "
                + (POLICY if profile.is_policy else KIND),
            },
            "extends": extends,
        }
        if spec:
            rules["spec"] = spec
        return Translation(rules=rules, notices=tuple(dict.fromkeys(self.notices)))

    def _heeded(self, extender: Mapping[str, Any]) -> dict[str, str]:
        """What schedulers of the generation make of an extender's answers.

        Source: pkg/scheduler/extender.go and preemption.go; kubernetes#105853 (1.24).
        """
        versions = self.base.versions
        if not versions:
            return {}
        last = VersionRange.parse(versions).end
        found = {}
        if "filterVerb" in extender and last <= _UNRESOLVABLE:
            found["unmentionedNodes"] = UnmentionedNodes.WITHOUT_STATUS.value
        old = self.profile.is_policy or self.profile.version in _BEFORE_VIOLATIONS
        if "preemptVerb" in extender and (old or last <= _VIOLATIONS):
            found["answeredViolations"] = "forgotten"
        return found

    def _notice(self, field: str, text: str, *, outer: bool = False) -> None:
        where = self.profile.outer if outer else self.profile.path
        parts = [part for part in (where, field, text) if part]
        self.notices.append(": ".join(parts))

    # --- keys ------------------------------------------------------------------------------------

    def _unknown_keys(self) -> None:
        config, value = self.profile.config, self.profile.value
        for key, content in config.items():
            if key in {"percentageOfNodesToScore"}:
                if content not in (None, 0, 100):
                    text = "not modelled: every node that fits is scored"
                    self._notice(key, text, outer=True)
            elif key in {"predicates", "priorities"} and self.profile.is_policy:
                continue
            elif key not in _WITHOUT_PART:
                self._notice(key, "not modelled", outer=True)
        if value is not config:
            for key, content in value.items():
                if key == "percentageOfNodesToScore" and content in (None, 0, 100):
                    continue
                if key not in {"schedulerName", "plugins", "pluginConfig"}:
                    self._notice(key, "not modelled")

    def _arguments(self) -> None:
        value = self.profile.value
        seen: set[str] = set()
        for index, entry in enumerate(value.get("pluginConfig") or ()):
            if not isinstance(entry, Mapping):
                continue
            plugin, args = str(entry.get("name") or ""), entry.get("args")
            path = f"pluginConfig[{index}]"
            if plugin in seen:
                text = f"`{plugin}` is listed twice, which kube-scheduler refuses; the last counts"
                self._notice(path, text)
            seen.add(plugin)

            def notice(key: str, text: str, path: str = path) -> None:
                self._notice(f"{path}.args.{key}" if key else path, text)

            if isinstance(args, Mapping):
                read(plugin, args, self.given, notice)
        weight = self.profile.config.get("hardPodAffinitySymmetricWeight")
        if type(weight) is int:
            self.given.scorers.setdefault("pod-affinity", {})["requiredWeight"] = weight

    def _policy(self) -> None:
        for key in ("predicates", "priorities"):
            if self.profile.config.get(key) is not None:
                text = "not modelled: the filters and scorers of the generation stay"
                self._notice(key, text, outer=True)

    def _candidates(self) -> dict[str, int]:
        base = self.base.candidates
        before = {"minPercentage": base.min_percentage, "minAbsolute": base.min_absolute}
        return {n: v for n, v in self.given.candidates.items() if v != before[n]}

    def _queue(self) -> dict[str, int]:
        found = {}
        for key, name in (
            ("podInitialBackoffSeconds", "initialBackoffSeconds"),
            ("podMaxBackoffSeconds", "maxBackoffSeconds"),
        ):
            value = self.profile.config.get(key)
            if type(value) is int and value != getattr(self.base.queue, _snake(name)):
                found[name] = value
        return found

    # --- plugins ---------------------------------------------------------------------------------

    def _effective(
        self, sets: Mapping[str, PluginSet], point: str, defaults: list[Enabled]
    ) -> list[Enabled]:
        general = self.profile.version not in _WITHOUT_GENERAL
        return effective(sets, point, defaults, general=general)

    def _not_modelled(self, sets: Mapping[str, PluginSet]) -> None:
        """Plugins that no part of a rule set stands for, each once with its extension points."""
        points: dict[str, list[str]] = {}
        for point, found in sets.items():
            if point not in POINTS and point != MULTI:
                self._notice(f"plugins.{point}", "not a known extension point")
                continue
            for entry in found.enabled:
                if not _is_known(entry.name) or entry.name in _IN_TREE:
                    points.setdefault(entry.name, []).append(point)
        for name, where in points.items():
            self._notice("plugins", f"`{name}` ({', '.join(where)}) is not modelled")
        for point in ("preFilter", "preScore"):
            main = "filter" if point == "preFilter" else "score"
            for name in sorted(sets.get(point, PluginSet()).disabled - {"*"}):
                if _is_known(name) and name not in sets.get(main, PluginSet()).disabled:
                    text = f"disabling `{name}` there alone is not modelled"
                    self._notice(f"plugins.{point}", text)
        sort = sets.get("queueSort", PluginSet())
        if any(entry.name != "PrioritySort" for entry in sort.enabled):
            self._notice("plugins.queueSort", "not modelled: pods are tried by priority")

    def _preemption(self, sets: Mapping[str, PluginSet]) -> dict[str, Any]:
        after = self._effective(sets, "postFilter", [Enabled("DefaultPreemption")])
        enabled = any(entry.name == "DefaultPreemption" for entry in after)
        if self.profile.config.get("disablePreemption") is True:
            enabled = False
        if enabled:
            return {}
        others = [entry.name for entry in after]
        if others:
            text = f"`{', '.join(others)}` decides instead of DefaultPreemption: no preemption here"
            self._notice("plugins.postFilter", text)
        rule = {
            "id": "preemption-disabled",
            "when": "true",
            "verdict": "deny",
            "reason": "preemption is disabled",
            "why": "the profile has no DefaultPreemption",
        }
        return {"insert": [{"at": "start", "rule": rule}]}

    def _filters(self, sets: Mapping[str, PluginSet]) -> dict[str, Any] | list[Any]:
        by_plugin = {FILTERS[use.name].plugin: use for use in self.base.filters}
        defaults = [Enabled(plugin) for plugin in by_plugin]
        wanted = [
            by_plugin[entry.name].name
            for entry in self._effective(sets, "filter", defaults)
            if entry.name in by_plugin
        ]
        # What a profile of an older API lists in full has no filters that came later.
        before = [use.name for use in self.base.filters]
        changed = {n: p for n, p in self.given.filters.items() if n in wanted}
        entry = {
            use.name: {"filter": use.name, **use.parameters, **changed.get(use.name, {})}
            for use in self.base.filters
        }
        if wanted and wanted != [name for name in before if name in wanted]:
            return [entry[name] for name in wanted]
        found: dict[str, Any] = {}
        if not wanted:
            self._notice("plugins.filter", "without any filter every node fits; they stay enabled")
        else:
            _put(found, "remove", [name for name in before if name not in wanted])
        _put(found, "replace", [{"filter": name, **p} for name, p in changed.items()])
        return found

    # --- scorers ---------------------------------------------------------------------------------

    def _scoring(self, sets: Mapping[str, PluginSet]) -> dict[str, Any] | list[Any] | None:
        before = {use.name: use for use in self.base.scoring}
        fit = "least-allocated" if "least-allocated" in before else ""
        plugin_of = {scorer: plugin for plugin, scorer in SCORERS.items()}
        old = self._has_old_scorers(sets)
        if fit and not old:
            plugin_of[fit] = _FIT
        defaults = [Enabled(plugin_of[name], use.weight) for name, use in before.items()]
        weights: dict[str, int] = {}
        for entry in self._effective(sets, "score", defaults):
            scorer = self.given.fit if entry.name == _FIT else SCORERS.get(entry.name)
            if entry.name == _FIT and old:
                scorer = None  # a filter alone in that API
            if scorer is not None:
                weights[scorer] = entry.weight
        if not weights:
            self._notice("plugins.score", "no scorer is left: the first node by name is taken")
            return []
        found: dict[str, Any] = {}
        _put(found, "remove", [name for name in before if name not in weights])
        replaced, inserted = [], []
        for name, weight in weights.items():
            parameters = self.given.scorers.get(name, {})
            rule = {"scorer": name, "weight": weight, **parameters}
            if name not in before:
                inserted.append({"at": "end", "rule": rule})
            elif weight != before[name].weight or not _same(parameters, before[name].parameters):
                replaced.append(rule)
        _put(found, "replace", replaced)
        _put(found, "insert", inserted)
        return found or None

    def _has_old_scorers(self, sets: Mapping[str, PluginSet]) -> bool:
        """Do plugins of v1beta1 stand for the strategies of NodeResourcesFit?"""
        if self.profile.version in {"v1alpha1", "v1alpha2", "v1beta1"}:
            return True
        named = {e.name for s in sets.values() for e in s.enabled}
        named |= {name for s in sets.values() for name in s.disabled}
        stale = sorted(named & {"NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"})
        if stale:
            version = self.profile.version
            text = (
                f"`{', '.join(stale)}` is no plugin of {version}: NodeResourcesFit has its strategy"
            )
            self._notice("plugins.score", text)
        return False


def _is_known(name: str) -> bool:
    filters = {info.plugin for info in FILTERS.values()}
    return name in filters or name in SCORERS or name in _QUIET or name in _IN_TREE or name == "*"


def _put(into: dict[str, Any], key: str, value: Any) -> None:
    if value:
        into[key] = value


def _same(parameters: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Do the parameters say what is so already?"""
    return all(
        list(value) == list(before[name]) if isinstance(value, list) else value == before.get(name)
        for name, value in parameters.items()
    )


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda m: "_" + m[1].lower(), name)


def _identifier(name: str) -> str:
    """A rule set's name made of a scheduler's."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:100].strip("-") or "scheduler"
