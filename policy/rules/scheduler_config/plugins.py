"""Which plugins of a profile are in effect at an extension point, in which order and weight.

Source: the framework's expandMultiPointPlugins, and mergePluginSet of the configuration's
defaults (v1); earlier versions have no `multiPoint`, which then adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

MULTI: Final = "multiPoint"
POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
#: v1alpha1's names
_OLD: Final = {"unreserve": "reserve"}


@dataclass(frozen=True, slots=True)
class Enabled:
    """A plugin that is enabled, and with which weight (of `score`)."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What a profile enables and disables at one extension point."""

    enabled: tuple[Enabled, ...] = ()
    disabled: frozenset[str] = frozenset()

    @property
    def none_by_default(self) -> bool:
        return "*" in self.disabled


def plugin_sets(profile: Mapping[str, Any]) -> dict[str, PluginSet]:
    """The sets of a profile by extension point."""
    plugins = profile.get("plugins")
    found: dict[str, PluginSet] = {}
    for point, value in plugins.items() if isinstance(plugins, Mapping) else ():
        if isinstance(value, Mapping):
            enabled = tuple(Enabled(name, weight) for name, weight in _entries(value, "enabled"))
            disabled = frozenset(name for name, _ in _entries(value, "disabled"))
            name = str(point)
            found[_OLD.get(name, name)] = PluginSet(enabled, disabled)
    return found


def _entries(value: Mapping[str, Any], key: str) -> Iterator[tuple[str, int]]:
    for entry in value.get(key) or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            weight = entry.get("weight")
            yield entry["name"], weight if type(weight) is int else 0


def effective(
    sets: Mapping[str, PluginSet], point: str, defaults: Sequence[Enabled], *, general: bool
) -> list[Enabled]:
    """The plugins of one extension point, in their order.

    defaults: those of the generation that implement the point, with their weights. general: they
    stand in `multiPoint` (v1beta3 and v1), not at the point itself. A plugin that is named without
    a weight has the weight 1, whatever its default.
    """
    own = sets.get(point, PluginSet())
    if not general:
        ordered = _merged(defaults, own)
    elif own.none_by_default:
        ordered = list(own.enabled)
    else:
        explicit = {entry.name for entry in own.enabled}
        everywhere = [
            entry
            for entry in _merged(defaults, sets.get(MULTI, PluginSet()))
            if entry.name not in own.disabled
        ]
        again = {entry.name for entry in everywhere} & explicit
        # Named here and everywhere: first, in the order that is given here.
        ordered = [entry for entry in own.enabled if entry.name in again]
        ordered += [entry for entry in everywhere if entry.name not in again]
        ordered += [entry for entry in own.enabled if entry.name not in again]
    return [Enabled(entry.name, entry.weight or 1) for entry in ordered]


def _merged(defaults: Sequence[Enabled], given: PluginSet) -> list[Enabled]:
    """The defaults in their places, then what is new."""
    explicit = {entry.name: entry for entry in given.enabled}
    kept = [] if given.none_by_default else [d for d in defaults if d.name not in given.disabled]
    places = {entry.name for entry in kept}
    return [explicit.get(d.name, d) for d in kept] + [
        entry for entry in given.enabled if entry.name not in places
    ]
