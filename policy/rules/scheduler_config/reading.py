"""The profiles of a KubeSchedulerConfiguration, wherever it stands in a file.

A file may hold the configuration itself, several of them, a ConfigMap or a List around one, an
export of a simulator, or a Policy of kube-scheduler up to 1.22.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.manifests import yaml_values
from policy.text.problems import Problem
from policy.text.yaml12 import YamlError

GROUP: Final = "kubescheduler.config.k8s.io/"
KIND: Final = "KubeSchedulerConfiguration"
POLICY: Final = "Policy"
VERSIONS: Final = ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1", "")
"""Of the configuration's API; "" where it stands in another file, which names none."""

DEFAULT_NAME: Final = "default-scheduler"
_GROUPS: Final = (GROUP, "componentconfig/")
_DEEPEST: Final = 5


class ConfigError(Exception):
    """A file without a configuration, or without the profile that is wanted."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One profile with the configuration around it."""

    name: str  #: schedulerName
    path: str  #: of the profile in the file: `ConfigMap system/config, key a.yaml: profiles[0]`
    outer: str  #: of the configuration
    config: Mapping[str, Any]
    value: Mapping[str, Any]  #: the profile itself; the configuration where it has none

    @property
    def version(self) -> str:
        """Version of the configuration's API: `v1`, `v1beta3`; "" where it names none."""
        return str(self.config.get("apiVersion") or "").rpartition("/")[2]

    @property
    def is_policy(self) -> bool:
        """A Policy, as kube-scheduler up to 1.22 read it."""
        return self.config.get("kind") == POLICY


def profiles_of(text: str, file: str) -> list[Profile]:
    """Every profile of every configuration in a file. Raises ConfigError where there is none."""
    found: list[Profile] = []
    kinds: list[str] = []
    try:
        for number, value in enumerate(_documents(text), start=1):
            found += _profiles(value, f"document {number}" if number > 1 else "", kinds, 0)
    except YamlError as exc:
        raise ConfigError(
            Problem(
                source=file, line=exc.line, column=exc.column, message=exc.message, help=exc.help
            )
        ) from exc
    if not found:
        there = ", ".join(dict.fromkeys(kinds)) or "nothing that has a kind"
        raise ConfigError(
            Problem(source=file, message=f"no {KIND} in this file", help=f"it holds {there}")
        )
    for profile in found:
        wrong = () if profile.is_policy else _misshaped(profile)
        for message in wrong:
            raise ConfigError(Problem(source=file, message=message))
        if profile.version not in VERSIONS and not profile.is_policy:
            raise ConfigError(
                Problem(
                    source=file,
                    message=f"unknown version `{profile.version}` of {KIND}",
                    help=f"known: {', '.join(filter(None, VERSIONS))}",
                )
            )
    return found


def _misshaped(profile: Profile) -> Iterator[str]:
    """What is no list or no object where kube-scheduler reads one; absent parts are fine."""

    def objects(of: Mapping[str, Any], key: str, path: str) -> Iterator[str]:
        listed, field = of.get(key), _within(path, key)
        if listed is None:
            return
        if not isinstance(listed, list):
            yield f"{field}: must be a list"
            return
        for index, one in enumerate(listed):
            if not isinstance(one, Mapping):
                yield f"{field}[{index}]: must be an object"

    yield from objects(profile.config, "profiles", profile.outer)
    yield from objects(profile.config, "extenders", profile.outer)
    yield from objects(profile.value, "pluginConfig", profile.path)
    configs = profile.value.get("pluginConfig")
    for index, one in enumerate(configs if isinstance(configs, list) else ()):
        args = one.get("args") if isinstance(one, Mapping) else None
        if args is not None and not isinstance(args, Mapping):
            yield f"{_within(profile.path, f'pluginConfig[{index}].args')}: must be an object"
    plugins, field = profile.value.get("plugins"), _within(profile.path, "plugins")
    if plugins is not None and not isinstance(plugins, Mapping):
        yield f"{field}: must be an object"
        return
    for point, lists in (plugins or {}).items():
        if lists is not None and not isinstance(lists, Mapping):
            yield f"{field}.{point}: must be an object"
            continue
        for key in ("enabled", "disabled"):
            yield from objects(lists or {}, key, f"{field}.{point}")


def chosen(profiles: Sequence[Profile], name: str | None, file: str) -> Profile:
    """The profile of that name; without one the only one, or that of the default scheduler."""
    wanted = [p for p in profiles if name is None or p.name == name]
    if len(wanted) > 1 and name is None:
        wanted = [p for p in profiles if p.name == DEFAULT_NAME]
    if wanted:
        if sum(p.outer == wanted[-1].outer for p in wanted) > 1:
            message = f"profile `{wanted[-1].name}` is listed twice"
            advice = "kube-scheduler refuses that: give each profile a `schedulerName` of its own"
            raise ConfigError(Problem(source=file, message=message, help=advice))
        return wanted[-1]
    names = ", ".join(f"`{p.name}`" for p in profiles)
    message = f"no profile `{name}`" if name is not None else "several profiles"
    raise ConfigError(
        Problem(source=file, message=message, help=f"choose one with `--profile`: {names}")
    )


def _documents(text: str) -> Iterator[Any]:
    return yaml_values.documents(io.BytesIO(text.encode()))


def _profiles(value: Any, where: str, kinds: list[str], depth: int) -> Iterator[Profile]:
    if not isinstance(value, Mapping) or depth > _DEEPEST:
        return
    kind, version = value.get("kind"), str(value.get("apiVersion") or "")
    if isinstance(kind, str):
        kinds.append(kind)
    if kind == KIND or (kind is None and version.startswith(_GROUPS)):
        yield from _of_config(value, where)
    elif kind == POLICY and (
        "predicates" in value or "priorities" in value or "extenders" in value
    ):
        yield Profile(name=DEFAULT_NAME, path=where, outer=where, config=value, value={})
    elif kind == "ConfigMap":
        yield from _wrapped(value, where, kinds, depth)
    elif isinstance(value.get("items"), list):
        for index, item in enumerate(value["items"]):
            yield from _profiles(item, _within(where, f"items[{index}]"), kinds, depth + 1)
    elif isinstance(value.get("schedulerConfig"), Mapping):
        config = {"kind": KIND, **value["schedulerConfig"]}
        yield from _profiles(config, _within(where, "schedulerConfig"), kinds, depth + 1)


def _of_config(value: Mapping[str, Any], where: str) -> Iterator[Profile]:
    listed = value.get("profiles")
    if not isinstance(listed, list) or not listed:
        # v1alpha1 has one scheduler, and its plugins stand in the configuration itself.
        name = str(value.get("schedulerName") or DEFAULT_NAME)
        yield Profile(name=name, path=where, outer=where, config=value, value=value)
        return
    for index, profile in enumerate(listed):
        of = profile if isinstance(profile, Mapping) else {}
        yield Profile(
            name=str(of.get("schedulerName") or DEFAULT_NAME),
            path=_within(where, f"profiles[{index}]"),
            outer=where,
            config=value,
            value=of,
        )


def _wrapped(
    value: Mapping[str, Any], where: str, kinds: list[str], depth: int
) -> Iterator[Profile]:
    meta = value.get("metadata")
    name = meta.get("name") if isinstance(meta, Mapping) else None
    data = value.get("data")
    for key, text in data.items() if isinstance(data, Mapping) else ():
        if not isinstance(text, str):
            continue
        inner = _within(where, f"ConfigMap {name}, key {key}")
        try:
            for document in _documents(text):
                yield from _profiles(document, inner, kinds, depth + 1)
        except YamlError:
            continue  # a script, or the configuration of another program


def _within(where: str, part: str) -> str:
    return f"{where}: {part}" if where else part
