"""Finding and opening rule files: the one place in this package that touches the disk.

A rule file is a regular file with the ending `.yaml` or `.yml`, of at most MAX_BYTES. Whatever
else a path leads to is refused before it is read, and of a file that does not look like rules no
message quotes anything: paths may come from a rule file that somebody else wrote.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from policy.rules.documents import MAX_BYTES, Branch, Leaf, from_mapping, parse
from policy.rules.problems import RulesError
from policy.text.problems import Problem
from policy.text.system import explained

PREEMPTION_RULES: Final = "PreemptionRules"
BATCH_RULES: Final = "BatchRules"

SUFFIXES: Final = (".yaml", ".yml")
FOREIGN_SUFFIXES: Final = (".conf",)
"""Configuration files of other schedulers, which batch sessions take as they are."""

ENVIRONMENTS: Final = "environments"
"""Folder of the shipped overlays for environments, and the first part of their names."""

_LOOKED_AT: Final = 200
"""Files of a folder among which one is looked for that is meant."""

_KIND: Final = re.compile(r"^kind: *([A-Za-z]+)", re.MULTILINE)
_CONFIGURATION: Final = re.compile(r"^\s*[\"']?(actions|tiers)[\"']?\s*:", re.MULTILINE)
_LOOKS_LIKE_RULES: Final = re.compile(
    r"""^\s*["']?(apiVersion|kind|metadata|spec|extends|actions|tiers|cases)["']?\s*:""",
    re.MULTILINE,
)


# -- what is shipped -------------------------------------------------------------------------


@cache
def shipped() -> Mapping[str, Traversable]:
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


@cache
def _of_kind(kind: str) -> tuple[str, ...]:
    return tuple(
        name
        for name, file in sorted(shipped().items())
        if (found := _KIND.search(file.read_text("utf-8"))) and found[1] == kind
    )


def shipped_names(kind: str = PREEMPTION_RULES) -> tuple[str, ...]:
    """Names of the shipped rule sets of a kind that stand for themselves, sorted."""
    return tuple(
        name for name in _of_kind(kind) if "/" not in name and shipped()[name].name != "rules.yaml"
    )


def shipped_rules() -> tuple[str, ...]:
    """Names of the shipped rules that overlays include, sorted."""
    return tuple(n for n in _of_kind(PREEMPTION_RULES) if shipped()[n].name == "rules.yaml")


def shipped_environments() -> tuple[str, ...]:
    """Names of the shipped overlays for environments, sorted: `environments/prod`."""
    return tuple(n for n in _of_kind(PREEMPTION_RULES) if n.startswith(f"{ENVIRONMENTS}/"))


def own_name(name: str) -> str:
    """What a shipped file calls itself in `metadata.name`, under which decisions are recorded.

    It is the last part of the name that asks for it: `environments/prod` calls itself `prod`.
    """
    return name.rpartition("/")[2]


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The one that may be meant: what calls itself so, else what is spelt nearly so."""
    names = list(known)
    called = [one for one in names if own_name(one) == name]
    return called[:1] or difflib.get_close_matches(name, names, n=1)


# -- opening ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """One parsed rule file, and what counts for the files that it names."""

    key: str  #: the same for the same file
    root: Branch
    kind: str  #: of the rules that were asked for
    folder: Path | None = None  #: where relative paths start; None for a shipped file
    within: Path | None = None  #: no file outside of this folder is read
    problems: list[Problem] = field(default_factory=list)  #: what the reader could read past


def is_path(text: str) -> bool:
    """Is it a path and not a shipped name? `environments/prod` is a name all the same."""
    return "/" in text or "\\" in text or text.endswith((*SUFFIXES, *FOREIGN_SUFFIXES))


def open_source(
    source: str | Path | Mapping[str, Any], *, kind: str, within: Path | None = None
) -> RuleFile:
    """The file that somebody named: a shipped name, a path, a mapping, or the text of a file.

    Text differs from a path by its line break. Raises RulesError.
    """
    if isinstance(source, Mapping):
        problems: list[Problem] = []
        root = from_mapping(source, "<mapping>", problems)
        return RuleFile(
            key="", root=root, kind=kind, folder=Path(), within=within, problems=problems
        )
    if isinstance(source, str) and "\n" in source:
        problems = []
        root = parse(source, "<text>", problems)
        return RuleFile(
            key="", root=root, kind=kind, folder=Path(), within=within, problems=problems
        )
    if isinstance(source, Path) or (source not in shipped() and is_path(source)):
        return _open_path(Path(source), str(source), kind=kind, within=within)
    return _open_named(source, kind=kind, folder=Path(), within=within)


def open_beside(file: RuleFile, named: Leaf, word: str) -> RuleFile:
    """The file that another one extends or includes; complaints about it point at that line.

    word: `extend` or `include`. Raises RulesError.
    """
    text = named.text
    try:
        if text in shipped() or not is_path(text):
            return _open_named(text, kind=file.kind, folder=file.folder, within=file.within)
        if file.folder is None:
            name = text.removeprefix("./").removesuffix(".yaml")
            return _open_named(name, kind=file.kind, folder=None, within=file.within)
        return _open_path(file.folder / text, text, kind=file.kind, within=file.within)
    except RulesError as exc:
        first = exc.problems[0]
        if first.line:
            raise
        message = f"cannot {word} `{text}`: {first.message}"
        path = "extends" if word == "extend" else word
        raise RulesError([named.place.problem(path, message, first.help)]) from exc


def is_of_kind(source: str | Path, kind: str, *, within: Path | None = None) -> bool:
    """Is a shipped name or a file of that kind? What cannot be read is of none.

    The configuration that a batch scheduler has of its own is of BATCH_RULES, also in a ConfigMap.
    """
    if isinstance(source, str) and (source in shipped() or not is_path(source)):
        return source in _of_kind(kind)
    try:
        text = text_of(Path(source), str(source), within)
    except RulesError:
        return False
    found = _KIND.search(text)
    if found is None or found[1] == "ConfigMap":
        return kind == BATCH_RULES and _CONFIGURATION.search(text) is not None
    return found[1] == kind


def is_configuration(source: str, *, within: Path | None = None) -> bool:
    """Is it a file of a batch scheduler's own configuration, which names no kind of ours?"""
    if source in shipped() or not is_of_kind(source, BATCH_RULES, within=within):
        return False
    found = _KIND.search(text_of(Path(source), source, within))
    return found is None or found[1] != BATCH_RULES


def file_of(source: str) -> str:
    """The file of a shipped name or a path, as places in it are written."""
    file = shipped().get(source)
    if file is None:
        inner = Path(source) / "rules.yaml"
        return str(inner if inner.is_file() else Path(source))
    return f"rules/{source}" + ("/rules.yaml" if file.name == "rules.yaml" else ".yaml")


def _open_named(name: str, *, kind: str, folder: Path | None, within: Path | None) -> RuleFile:
    """folder: where a file lies that may be meant; None for nowhere."""
    file = shipped().get(name)
    if file is None:
        known = ", ".join(f"`{known}`" for known in shipped_names(kind))
        advice = _meant(close_names(name, _of_kind(kind)))
        if folder is not None:
            own = _rule_files(folder, within)
            advice = _meant([f"./{file}" for file in own if Path(file).stem == name]) or advice
        advice = advice or f"shipped: {known}; a file needs `./`"
        what = "rule set" if kind == PREEMPTION_RULES else "batch rules"
        raise _refusal(name, f"no shipped {what} `{name}`", advice)
    root, problems = _parsed(file.read_text("utf-8"), file_of(name))
    return RuleFile(
        key=f"shipped:{name}", root=root, kind=kind, within=within, problems=list(problems)
    )


@lru_cache(maxsize=128)
def _parsed(text: str, file: str) -> tuple[Branch, tuple[Problem, ...]]:
    """A shipped file as it is parsed, once for all that stand on it, and what is wrong with it."""
    problems: list[Problem] = []
    return parse(text, file, problems), tuple(problems)


def _open_path(path: Path, typed: str, *, kind: str, within: Path | None) -> RuleFile:
    """typed: the path as it was given."""
    if path.suffix not in SUFFIXES and _within(path, within) and _holds_rules(path):
        path = path / "rules.yaml"
    try:
        text = text_of(path, str(path), within)
    except RulesError as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            message = exc.problems[0].message
            raise _refusal(str(path), message, _instead(path, typed, within)) from exc
        raise
    problems: list[Problem] = []
    try:
        root = parse(text, str(path), problems)
    except RulesError as exc:
        if _LOOKS_LIKE_RULES.search(text):
            raise
        raise RulesError(map(_unquoted, exc.problems)) from None
    return RuleFile(
        key=str(path.resolve()),
        root=root,
        kind=kind,
        folder=path.parent,
        within=within,
        problems=problems,
    )


def _instead(path: Path, typed: str, within: Path | None) -> str:
    """What may be meant by a path that leads to nothing; "" where nothing is like it."""
    if not path.parent.is_dir():
        name = typed.removeprefix("./").removesuffix(path.suffix)
        return _meant(close_names(name, shipped())) or f"there is no folder `{path.parent}`"
    before = typed.removesuffix(path.name) or "./"
    # By what comes before the ending, which makes short names all alike.
    names = {Path(name).stem: name for name in _rule_files(path.parent, within)}
    return _meant([f"{before}{names[stem]}" for stem in close_names(path.stem, names)])


def _rule_files(folder: Path, within: Path | None) -> list[str]:
    """Names of the rule files, and of the folders of one, in a folder; of nothing else in it."""
    if not _within(folder, within):
        return []
    found: list[str] = []
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        file = path / "rules.yaml" if _holds_rules(path) else path
        if file.suffix in SUFFIXES and len(found) < _LOOKED_AT:
            try:
                kind = _KIND.search(text_of(file, path.name, within))
            except RulesError:
                continue
            if kind and kind[1] in (PREEMPTION_RULES, BATCH_RULES):
                found.append(path.name)
    return found


def _meant(found: Sequence[str]) -> str:
    return f"did you mean `{found[0]}`?" if found else ""


def _holds_rules(folder: Path) -> bool:
    try:
        return (folder / "rules.yaml").is_file()
    except OSError:  # opening the path itself says why, in its own name
        return False


def _within(path: Path, folder: Path | None) -> bool:
    """Does the path lead, symbolic links followed, to something inside of the folder?"""
    try:
        return folder is None or path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False  # a circle of links leads nowhere


def require_within(path: Path, folder: Path | None) -> None:
    """Raises RulesError for a path that leads out of the folder, symbolic links followed."""
    if not _within(path, folder):
        raise _refusal(str(path), f"is outside of the rules folder `{folder}`")


def text_of(path: Path, shown: str, within: Path | None = None) -> str:
    """The text of a rule file or a file of cases; nothing but a regular file is read.

    shown: how messages name the file. Raises RulesError.
    """
    require_within(path, within)
    if "\0" in str(path):
        raise _refusal(shown, "a path cannot hold a NUL character")
    try:
        # Not blocking: a FIFO would wait for its writer before it could be refused.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        said = explained(exc)
        raise _refusal(shown, said.message, said.help) from exc
    try:
        mode = os.fstat(opened).st_mode
        if stat.S_ISDIR(mode):
            raise _refusal(shown, "is a folder, not a rule file")
        if not stat.S_ISREG(mode):
            raise _refusal(shown, "is not a regular file")
        if path.suffix not in (*SUFFIXES, *FOREIGN_SUFFIXES):
            endings = " or ".join(f"`{suffix}`" for suffix in SUFFIXES)
            raise _refusal(shown, "is not a rule file", f"a rule file ends in {endings}")
        # One byte more than allowed tells a file that is too large; its size does not matter.
        with os.fdopen(opened, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    finally:
        os.close(opened)
    if len(raw) > MAX_BYTES:
        raise _refusal(shown, f"is larger than {MAX_BYTES} bytes, the limit of a rule file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise _refusal(shown, f"not UTF-8: byte {exc.start + 1}") from exc


def _unquoted(problem: Problem) -> Problem:
    """The problem without a word of the file, which was not meant for our eyes."""
    message = "not YAML" if problem.message.startswith("not YAML") else problem.message
    return replace(problem, message=message, source_line=None, help="")


def _refusal(file: str, message: str, advice: str = "") -> RulesError:
    return RulesError([Problem(source=file, message=message, help=advice)])
