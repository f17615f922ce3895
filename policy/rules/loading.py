"""Finding and reading rule files: the one place in this package that touches the disk."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from policy.filters.registry import FILTERS
from policy.rules.building import build
from policy.rules.canonical import canonical_json
from policy.rules.checks import Checker, Registry
from policy.rules.documents import MAX_BYTES, Branch, Leaf, from_mapping, parse
from policy.rules.overlays import Merger, needs_base, normalised
from policy.rules.problems import Problem, RulesError
from policy.rules.ruleset import RuleSet
from policy.scoring.registry import SCORERS

MAX_EXTENDS = 10
_SUFFIXES = (".yaml", ".yml", ".json")


def known_filters() -> Registry:
    """Filters that rule files may name, with their parameters."""
    return FILTERS


def known_scorers() -> Registry:
    """Scorers that rule files may name, with their parameters."""
    return SCORERS


# -- shipped rule sets -----------------------------------------------------------------------


@cache
def _shipped() -> Mapping[str, Traversable]:
    """Shipped rule sets by name: inside an installed wheel, else in the checkout."""
    root: Traversable = resources.files("policy") / "_data" / "rules"
    if not root.is_dir():
        root = Path(__file__).resolve().parents[2] / "rules"
    files = (entry for entry in root.iterdir() if entry.name.endswith(".yaml"))
    return {entry.name.removesuffix(".yaml"): entry for entry in files}


_KIND = re.compile(r"^kind: *PreemptionRules\b", re.MULTILINE)


@cache
def shipped_names() -> tuple[str, ...]:
    """Names of the shipped rule sets, sorted; files of other kinds are left out."""
    return tuple(
        name for name, file in sorted(_shipped().items()) if _KIND.search(file.read_text("utf-8"))
    )


# -- files -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """One parsed rule file and where its relative paths start."""

    key: str  #: the same for the same file
    root: Branch
    folder: Path | None
    problems: list[Problem]  #: what the reader could read past


def _is_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.endswith(_SUFFIXES)


def _read(path: Traversable, shown: str, problems: list[Problem]) -> Branch:
    def refuse(message: str, advice: str | None = None) -> RulesError:
        return RulesError(
            [Problem(file=shown, line=0, column=0, path="", message=message, help=advice)]
        )

    try:
        with path.open("rb") as file:
            # One byte more than allowed tells a file that is too large; its size does not matter.
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise refuse("no such file") from exc
    except IsADirectoryError as exc:
        raise refuse("is a folder, not a rule file") from exc
    except OSError as exc:
        raise refuse(f"cannot be read: {(exc.strerror or str(exc)).lower()}") from exc
    if len(raw) > MAX_BYTES:
        raise refuse(f"larger than {MAX_BYTES} bytes")
    try:
        return parse(raw.decode("utf-8-sig"), shown, problems)
    except UnicodeDecodeError as exc:
        raise refuse(f"not UTF-8: byte {exc.start + 1}") from exc


def _open_named(name: str) -> _File:
    shipped = _shipped().get(name)
    if shipped is None:
        close = difflib.get_close_matches(name, shipped_names(), n=1)
        known = ", ".join(f"`{known}`" for known in shipped_names())
        advice = f"did you mean `{close[0]}`?" if close else f"shipped: {known}; a file needs `./`"
        raise RulesError(
            [
                Problem(
                    file=name,
                    line=0,
                    column=0,
                    path="",
                    message=f"no shipped rule set `{name}`",
                    help=advice,
                )
            ]
        )
    shown = f"rules/{shipped.name}"
    problems: list[Problem] = []
    return _File(f"shipped:{name}", _read(shipped, shown, problems), None, problems)


def _open_path(path: Path) -> _File:
    problems: list[Problem] = []
    root = _read(path, str(path), problems)
    return _File(str(path.resolve()), root, path.parent, problems)


def _open(source: str | Path | Mapping[str, Any]) -> _File:
    if isinstance(source, Mapping):
        problems: list[Problem] = []
        root = from_mapping(source, "<mapping>", problems)
        return _File("", root, Path(), problems)
    if isinstance(source, Path) or _is_path(source):
        return _open_path(Path(source))
    return _open_named(source)


def _open_base(file: _File, extends: Leaf) -> _File:
    """The file that another one extends; complaints about it point at the `extends` line."""
    text = extends.text
    try:
        if not _is_path(text):
            return _open_named(text)
        if file.folder is None:
            return _open_named(text.removeprefix("./").removesuffix(".yaml"))
        return _open_path(file.folder / text)
    except RulesError as exc:
        first = exc.problems[0]
        if first.line:
            raise
        message = f"cannot extend `{text}`: {first.message}"
        raise RulesError([extends.place.problem("extends", message, first.help)]) from exc


def _chain(file: _File) -> list[tuple[_File, Branch]]:
    """The file and everything that it extends, with their specs; the file comes first."""
    chain: list[tuple[_File, Branch]] = []
    problems: list[Problem] = []
    seen = {file.key}
    current = file
    while True:
        chain.append((current, _spec(current)))
        extends = current.root.get("extends")
        if extends is None:
            break
        if not isinstance(extends, Leaf) or not extends.text.strip():
            message = "`extends` must be the name of a rule set or a path"
            problems.append(extends.place.problem("extends", message))
            break
        base = _open_base(current, extends)
        if base.key in seen or len(seen) > MAX_EXTENDS:
            what = (
                "extends itself"
                if base.key in seen
                else f"extends more than {MAX_EXTENDS} files one after the other"
            )
            problems.append(extends.place.problem("extends", f"`{extends.text}` {what}"))
            break
        kind = base.root.get("kind")
        if not isinstance(kind, Leaf) or kind.text != "PreemptionRules":
            message = f"`{extends.text}` is not of `kind: PreemptionRules`"
            problems.append(extends.place.problem("extends", message))
            break
        seen.add(base.key)
        current = base
    if problems:
        raise RulesError(problems)
    return chain


def _spec(file: _File) -> Branch:
    """The file's own spec, an empty one where it only extends."""
    spec = file.root.get("spec")
    if isinstance(spec, Branch):
        return normalised(spec)
    nothing = spec is None or (isinstance(spec, Leaf) and spec.value() is None)
    if spec is not None and not nothing:
        file.problems.append(spec.place.problem("spec", "`spec` must be a mapping"))
    return Branch(file.root.place, {}, {})


def _merged(file: _File, overrides: Mapping[str, Any] | None) -> tuple[Branch, list[Problem]]:
    """The file with its bases below and the overrides on top."""
    chain = _chain(file)
    merger = Merger()
    base, spec = chain[-1]
    merger.problems += [*base.problems, *needs_base(spec)]
    for part, over in reversed(chain[:-1]):
        merger.problems += part.problems
        spec = merger.merge(spec, over)
    if overrides is not None:
        over = from_mapping(overrides, "<overrides>", merger.problems)
        spec = merger.merge(spec, normalised(over))
    entries = {key: item for key, item in file.root.entries.items() if key != "extends"}
    keys = dict(file.root.keys)
    if "spec" in entries or len(chain) > 1 or overrides is not None:
        entries["spec"] = spec
        keys.setdefault("spec", file.root.place)
    return Branch(file.root.place, entries, keys), merger.problems


def _load(
    file: _File,
    overrides: Mapping[str, Any] | None,
    canonical: str | None,
) -> RuleSet:
    merged, problems = _merged(file, overrides)
    checker = Checker(merged, known_filters(), known_scorers())
    model = checker.run()
    # What could not be read as meant has other complaints in its train.
    places = {(problem.file, problem.line, problem.column) for problem in problems}
    problems += [p for p in checker.problems if (p.file, p.line, p.column) not in places]
    if problems or model is None:
        raise RulesError(_ordered(problems, file))
    return build(checker, model, canonical)


def _ordered(problems: list[Problem], file: _File) -> list[Problem]:
    """By file, the one that was asked for first, then by position."""
    own = file.root.place.source.file
    return sorted(problems, key=lambda p: (p.file != own, p.file, p.line, p.column))


def load_rule_set(
    source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> RuleSet:
    """Read a shipped rule set by name, a file by path, or a mapping; raises `RulesError`."""
    return _load(_open(source), overrides, None)


def rule_set_from_canonical(text: str) -> RuleSet:
    """The rule set whose canonical text this is; raises `RulesError`."""
    name = "<canonical>"
    try:
        value = json.loads(text)
        canonical = isinstance(value, dict) and canonical_json(value) == text
    except (ValueError, AssertionError, RecursionError):
        canonical = False
    if not canonical:
        message = "not the canonical text of a rule set"
        raise RulesError([Problem(file=name, line=0, column=0, path="", message=message)])
    problems: list[Problem] = []
    file = _File("", from_mapping(value, name, problems), None, problems)
    return _load(file, None, text)
