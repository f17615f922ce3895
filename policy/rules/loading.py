"""Finding and reading rule files: the one place in this package that touches the disk."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from policy.filters.registry import FILTERS
from policy.rules.building import build
from policy.rules.canonical import canonical_json
from policy.rules.checks import Checker, Registry
from policy.rules.documents import MAX_BYTES, Branch, Leaf, Series, from_mapping, parse
from policy.rules.overlays import Merger, needs_base, normalised
from policy.rules.problems import Problem, RulesError
from policy.rules.ruleset import RuleSet
from policy.rules.stored import complete
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


ENVIRONMENTS = "environments"
"""Folder of the shipped overlays for environments, and the first part of their names."""


@cache
def _shipped() -> Mapping[str, Traversable]:
    """Shipped files by the name that asks for them: in an installed wheel, else in the checkout.

    `kube-1.35.yaml` is `kube-1.35`, `environments/prod.yaml` is `environments/prod`, and a rule
    with its cases in a folder, `cooldown/rules.yaml`, is `cooldown`.
    """
    root = shipped_folder()
    found: dict[str, Traversable] = {}
    for entry in root.iterdir():
        if entry.name.endswith(".yaml"):
            found[entry.name.removesuffix(".yaml")] = entry
        elif entry.is_dir() and (entry / "rules.yaml").is_file():
            found[entry.name] = entry / "rules.yaml"
        elif entry.name == ENVIRONMENTS:
            for file in entry.iterdir():
                if file.name.endswith(".yaml") and not file.name.endswith(".cases.yaml"):
                    found[f"{ENVIRONMENTS}/{file.name.removesuffix('.yaml')}"] = file
    return {name: file for name, file in found.items() if not name.endswith(".cases")}


def shipped_folder() -> Traversable:
    """The folder of the shipped rule files."""
    root: Traversable = resources.files("policy") / "_data" / "rules"
    return root if root.is_dir() else Path(__file__).resolve().parents[2] / "rules"


def shipped_file(name: str) -> Traversable | None:
    """The shipped file of that name, None where there is none."""
    return _shipped().get(name)


_KIND = re.compile(r"^kind: *PreemptionRules\b", re.MULTILINE)


@cache
def shipped_names() -> tuple[str, ...]:
    """Names of the shipped rule sets that stand for themselves, sorted."""
    return _sorted(lambda name, file: "/" not in name and file.name != "rules.yaml")


@cache
def shipped_rules() -> tuple[str, ...]:
    """Names of the shipped rules that overlays include, sorted."""
    return _sorted(lambda _, file: file.name == "rules.yaml")


@cache
def shipped_environments() -> tuple[str, ...]:
    """Names of the shipped overlays for environments, sorted: `environments/prod`."""
    return _sorted(lambda name, _: name.startswith(f"{ENVIRONMENTS}/"))


def _sorted(wanted: Callable[[str, Traversable], bool]) -> tuple[str, ...]:
    """Names of shipped files; files of other kinds are left out."""
    return tuple(
        name
        for name, file in sorted(_shipped().items())
        if wanted(name, file) and _KIND.search(file.read_text("utf-8"))
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
        every = (*shipped_names(), *shipped_rules(), *shipped_environments())
        close = difflib.get_close_matches(name, every, n=1)
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
    problems: list[Problem] = []
    root = _read(shipped, _shown(name, shipped), problems)
    return _File(f"shipped:{name}", root, None, problems)


def _shown(name: str, shipped: Traversable) -> str:
    suffix = f"/{shipped.name}" if shipped.name == "rules.yaml" else ".yaml"
    return f"rules/{name}{suffix}"


def file_of(source: str) -> str:
    """The file of a shipped name or a path, as places in it are written."""
    shipped = shipped_file(source)
    if shipped is not None:
        return _shown(source, shipped)
    inner = Path(source) / "rules.yaml"
    return str(inner if inner.is_file() else Path(source))


def _open_path(path: Path) -> _File:
    if path.is_dir() and (path / "rules.yaml").is_file():
        path = path / "rules.yaml"
    problems: list[Problem] = []
    root = _read(path, str(path), problems)
    return _File(str(path.resolve()), root, path.parent, problems)


def _open(source: str | Path | Mapping[str, Any]) -> _File:
    if isinstance(source, Mapping):
        problems: list[Problem] = []
        root = from_mapping(source, "<mapping>", problems)
        return _File("", root, Path(), problems)
    if isinstance(source, Path) or (source not in _shipped() and _is_path(source)):
        return _open_path(Path(source))
    return _open_named(source)


def _open_beside(file: _File, named: Leaf, word: str) -> _File:
    """The file that another one extends or includes; complaints about it point at that line."""
    text = named.text
    try:
        if text in _shipped() or not _is_path(text):
            return _open_named(text)
        if file.folder is None:
            return _open_named(text.removeprefix("./").removesuffix(".yaml"))
        return _open_path(file.folder / text)
    except RulesError as exc:
        first = exc.problems[0]
        if first.line:
            raise
        message = f"cannot {word} `{text}`: {first.message}"
        path = "extends" if word == "extend" else word
        raise RulesError([named.place.problem(path, message, first.help)]) from exc


@dataclass(slots=True)
class _Layers:
    """A file and everything that it stands on, the topmost layer first."""

    found: list[tuple[_File, Branch]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: dict[str, Leaf | None] = field(default_factory=dict)  #: file to where it is named

    def walk(self, file: _File) -> None:
        """The file with what it includes, then what it extends, down to the base."""
        self.seen[file.key] = None
        chain = [file.key]
        current = file
        while True:
            self.own(current)
            extends = current.root.get("extends")
            if extends is None:
                if current.root.get("include") is not None:
                    message = "`include` needs a rule set to be laid over"
                    place = current.root.keys["include"]
                    advice = "add `extends: kube-1.35`"
                    self.problems.append(place.problem("include", message, advice))
                return
            if not isinstance(extends, Leaf) or not extends.text.strip():
                message = "`extends` must be the name of a rule set or a path"
                self.problems.append(extends.place.problem("extends", message))
                return
            base = _open_beside(current, extends, "extend")
            wrong = self._unfit_below(base.key, chain)
            if wrong:
                message = f"`{extends.text}` {wrong}"
                self.problems.append(extends.place.problem("extends", message))
                return
            if not self._fitting(base, extends, "extends"):
                return
            self.seen[base.key] = extends
            chain.append(base.key)
            current = base

    def _unfit_below(self, base: str, chain: Sequence[str]) -> str:
        """What is wrong with a base below files that extend one another; "" where nothing is."""
        if base == chain[-1]:
            return "extends itself"
        if base in chain:
            return "extends this file in turn, in a circle"
        if base in self.seen:
            named = self.seen[base]
            assert named is not None  # the file that was asked for, the head of the chain
            return f"is included already, at {named.place}"
        if len(chain) > MAX_EXTENDS:
            return f"extends more than {MAX_EXTENDS} files one after the other"
        return ""

    def own(self, file: _File) -> None:
        """The file's own rules, and below them those that it includes."""
        self.found.append((file, _spec(file)))
        for leaf in reversed(list(self._included(file))):
            other = _open_beside(file, leaf, "include")
            if other.key in self.seen:
                # The upper of the two is the one that can be left out.
                upper = self.seen[other.key] or leaf
                message = f"`{upper.text}` is part of this rule set already"
                advice = f"the other one is at {leaf.place}" if upper is not leaf else None
                self.problems.append(upper.place.problem("include", message, advice))
            elif self._fitting(other, leaf, "include"):
                self.seen[other.key] = leaf
                self.own(other)

    def _included(self, file: _File) -> Iterator[Leaf]:
        include = file.root.get("include")
        if include is None:
            return
        for item in include.items if isinstance(include, Series) else (include,):
            if isinstance(include, Series) and isinstance(item, Leaf) and item.text.strip():
                yield item
            else:
                message = "`include` must be a list of names or paths"
                self.problems.append(item.place.problem("include", message))

    def _fitting(self, file: _File, leaf: Leaf, path: str) -> bool:
        kind = file.root.get("kind")
        if isinstance(kind, Leaf) and kind.text == "PreemptionRules":
            return True
        message = f"`{leaf.text}` is not of `kind: PreemptionRules`"
        self.problems.append(leaf.place.problem(path, message))
        return False


def _chain(file: _File) -> list[tuple[_File, Branch]]:
    """The file and all that it includes and extends, with their specs; the file comes first."""
    layers = _Layers()
    layers.walk(file)
    if layers.problems:
        raise RulesError(layers.problems)
    return layers.found


def _spec(file: _File) -> Branch:
    """The file's own spec, an empty one where it only extends."""
    spec = file.root.get("spec")
    if isinstance(spec, Branch):
        return normalised(spec)
    nothing = spec is None or (isinstance(spec, Leaf) and spec.value() is None)
    if spec is not None and not nothing:
        file.problems.append(spec.place.problem("spec", "`spec` must be a mapping"))
    return Branch(file.root.place, {}, {})


_LINKS = frozenset({"extends", "include"})


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
    entries = {key: item for key, item in file.root.entries.items() if key not in _LINKS}
    keys = dict(file.root.keys)
    if "spec" in entries or len(chain) > 1 or overrides is not None:
        entries["spec"] = spec
        keys.setdefault("spec", file.root.place)
    return Branch(file.root.place, entries, keys), merger.problems


def _refuse_sessions(file: _File) -> None:
    """Rules of batch sessions are whole and sound, only not what was asked for."""
    kind = file.root.get("kind")
    if isinstance(kind, Leaf) and kind.text == "BatchRules":
        message = "these are rules of batch sessions, not of single decisions"
        advice = "`policy batch run --rules` takes them; `policy rules list` shows which is which"
        raise RulesError([kind.place.problem("kind", message, advice)])


def _load(
    file: _File,
    overrides: Mapping[str, Any] | None,
    canonical: str | None,
) -> RuleSet:
    _refuse_sessions(file)
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
    unknown = complete(value, {"filters": known_filters(), "scoring": known_scorers()})
    if unknown:
        raise RulesError(unknown)
    problems: list[Problem] = []
    file = _File("", from_mapping(value, name, problems), None, problems)
    return _load(file, None, text)
