"""Kubeconfig files, merged as kubectl merges them.

Source: the rules of `kubectl config`: of the files that `KUBECONFIG` names, the first one that sets
a value or defines a name wins; paths are relative to the file that holds them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

_DEFAULT: Final = Path("~/.kube/config")
_LISTS: Final = ("clusters", "contexts", "users")
_PATHS: Final = {
    "clusters": ("certificate-authority",),
    "contexts": (),
    "users": ("client-certificate", "client-key", "tokenFile"),
}


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used; the message says why."""


def files(named: str | None) -> list[Path]:
    """The one that is named; else those of `KUBECONFIG` that exist; else `~/.kube/config`."""
    if named:
        return [Path(named).expanduser()]
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not listed:
        return [_DEFAULT.expanduser()]
    found = [Path(part).expanduser() for part in listed]
    return [file for file in found if file.exists()] or found[:1]


def read(named: str | None) -> dict[str, Any]:
    """The merged content of `files(named)`. Raises KubeconfigError, OSError."""
    merged: dict[str, Any] = {name: [] for name in _LISTS}
    for file in files(named):
        if not file.is_file():
            raise KubeconfigError(f"kubeconfig {file} does not exist")
        content = _content(file)
        if content.get("current-context"):
            merged.setdefault("current-context", content["current-context"])
        for name in _LISTS:
            known = {entry["name"] for entry in merged[name]}
            merged[name] += [e for e in _entries(file, content, name) if e["name"] not in known]
    return merged


def entry(config: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    """A cluster, context or user. kind: as in `clusters`. Raises KubeconfigError."""
    inner = kind.removesuffix("s")
    for one in config[kind]:
        if one["name"] == name:
            return dict(one.get(inner) or {})
    known = ", ".join(f"`{one['name']}`" for one in config[kind]) or "none"
    raise KubeconfigError(f"the kubeconfig holds no {inner} `{name}`; it holds {known}")


def current(config: dict[str, Any], named: str | None) -> str:
    """The context that is meant. Raises KubeconfigError where none is."""
    found = named or config.get("current-context")
    if not found:
        raise KubeconfigError("the kubeconfig sets no current context")
    return str(found)


def _content(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise KubeconfigError(f"kubeconfig {file} is no YAML: {exc}") from exc
    if not isinstance(content, dict):
        raise KubeconfigError(f"kubeconfig {file} is no mapping")
    return content


def _entries(file: Path, content: dict[str, Any], name: str) -> Sequence[dict[str, Any]]:
    found = []
    for place, one in enumerate(content.get(name) or ()):
        inner = name.removesuffix("s")
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise KubeconfigError(f"kubeconfig {file}: `{name}[{place}]` has no name")
        value = one.get(inner) or {}
        if not isinstance(value, dict):
            raise KubeconfigError(f"kubeconfig {file}: `{name}[{place}].{inner}` is no mapping")
        absolute = {
            key: str(file.absolute().parent / value[key]) for key in _PATHS[name] if value.get(key)
        }
        found.append({"name": one["name"], inner: {**value, **absolute}})
    return found
