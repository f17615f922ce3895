"""From the name of rules to a rule set: opened, laid over its bases, checked, built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from policy.cluster import canonical
from policy.filters.registry import FILTERS
from policy.rules.building import build
from policy.rules.checks import Checker
from policy.rules.documents import Branch, Leaf, from_mapping
from policy.rules.files import BATCH_RULES, PREEMPTION_RULES, RuleFile, open_source
from policy.rules.layers import LINKS, layers_of
from policy.rules.overlays import Merger, needs_base, normalised
from policy.rules.problems import RulesError
from policy.rules.ruleset import RuleSet
from policy.rules.stored import complete
from policy.scoring.registry import SCORERS
from policy.text.problems import Problem


def _merged(file: RuleFile, overrides: Mapping[str, Any] | None) -> tuple[Branch, list[Problem]]:
    """The file with its bases below and the overrides on top."""
    chain = layers_of(file)
    merger = Merger()
    base, spec = chain[-1]
    merger.problems += [*base.problems, *needs_base(spec)]
    for part, over in reversed(chain[:-1]):
        merger.problems += part.problems
        spec = merger.merge(spec, over)
    if overrides is not None:
        over = from_mapping(overrides, "<overrides>", merger.problems)
        spec = merger.merge(spec, normalised(over))
    entries = {key: item for key, item in file.root.entries.items() if key not in LINKS}
    keys = dict(file.root.keys)
    if "spec" in entries or len(chain) > 1 or overrides is not None:
        entries["spec"] = spec
        keys.setdefault("spec", file.root.place)
    return Branch(file.root.place, entries, keys), merger.problems


def _refuse_sessions(file: RuleFile) -> None:
    """Rules of batch sessions are whole and sound, only not what was asked for."""
    kind = file.root.get("kind")
    if isinstance(kind, Leaf) and kind.text == BATCH_RULES:
        message = "these are rules of batch sessions, not of single decisions"
        advice = (
            "`policy batch run --rules` takes them, `policy rules show` prints them with every"
            " default; `policy rules list` shows which is which"
        )
        raise RulesError([kind.place.problem("kind", message, advice)])


def _load(
    file: RuleFile,
    overrides: Mapping[str, Any] | None,
    canonical: str | None,
) -> RuleSet:
    _refuse_sessions(file)
    merged, problems = _merged(file, overrides)
    checker = Checker(merged, FILTERS, SCORERS)
    model = checker.run()
    # What could not be read as meant has other complaints in its train.
    places = {(problem.source, problem.line, problem.column) for problem in problems}
    problems += [p for p in checker.problems if (p.source, p.line, p.column) not in places]
    if problems or model is None:
        raise RulesError(_ordered(problems, file))
    return build(checker, model, canonical)


def _ordered(problems: list[Problem], file: RuleFile) -> list[Problem]:
    """By file, the one that was asked for first, then by position."""
    own = file.root.place.source.file
    return sorted(problems, key=lambda p: (p.source != own, p.source, p.line, p.column))


def load_rule_set(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    within: Path | None = None,
) -> RuleSet:
    """Read a shipped rule set by name, a file by path, or a mapping; raises `RulesError`.

    within: a folder outside of which no file is read, symbolic links followed.
    """
    return _load(open_source(source, kind=PREEMPTION_RULES, within=within), overrides, None)


def rule_set_from_canonical(text: str) -> RuleSet:
    """The rule set whose canonical text this is; raises `RulesError`."""
    name = "<canonical>"
    try:
        value = canonical.parse(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        message = "not the canonical text of a rule set"
        raise RulesError([Problem(source=name, message=message)])
    if value.get("kind") == BATCH_RULES:
        root = from_mapping(value, name, [])
        _refuse_sessions(RuleFile(key="", root=root, kind=PREEMPTION_RULES))
    unknown = complete(value, {"filters": FILTERS, "scoring": SCORERS})
    if unknown:
        raise RulesError(unknown)
    problems: list[Problem] = []
    root = from_mapping(value, name, problems)
    file = RuleFile(key="", root=root, kind=PREEMPTION_RULES, problems=problems)
    return _load(file, None, text)
