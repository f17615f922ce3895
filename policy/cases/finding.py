"""Which cases lie beside which rules.

`NAME/cases.yaml` beside `NAME/rules.yaml`, and `NAME.cases.yaml` beside `NAME.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from policy.cases.model import Case
from policy.cases.reading import read_cases
from policy.rules.files import (
    BATCH_RULES,
    is_of_kind,
    require_within,
    shipped,
    shipped_environments,
    shipped_folder,
    shipped_names,
    shipped_rules,
    text_of,
)
from policy.rules.problems import RulesError
from policy.text.problems import Problem

_SUFFIX = ".cases.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A rule file, and the cases beside it."""

    rules: str | Path  #: as `RuleSet.load` takes it, or `BatchRules.load`
    file: Traversable
    shown: str  #: name of the file of cases, as messages give it
    within: Path | None = None  #: no file outside of this folder is read

    @property
    def batch(self) -> bool:
        """Rules of batch sessions, whose cases `policy.cases.sessions` reads."""
        return is_of_kind(self.rules, BATCH_RULES, within=self.within)

    def cases(self) -> tuple[Case, ...]:
        """Raises RulesError with every problem found."""
        return read_cases(self.text(), self.shown)

    def text(self) -> str:
        """The text of the file of cases. Raises RulesError."""
        if isinstance(self.file, Path):
            return text_of(self.file, self.shown, self.within)
        return self.file.read_text("utf-8")


def beside(rules: str, *, within: Path | None = None) -> Suite | None:
    """The cases beside a shipped rule set or a rule file; None where there are none."""
    return _shipped(rules) if rules in shipped() else _beside_file(Path(rules), within)


def suites(targets: Sequence[str], *, within: Path | None = None) -> list[Suite]:
    """The cases beside the named rule sets, files, and all files of folders.

    Without targets: those beside the shipped rules. Raises RulesError for a target without any.
    """
    if not targets:
        names = (
            *shipped_names(),
            *shipped_names(BATCH_RULES),
            *shipped_rules(),
            *shipped_environments(),
        )
        return [suite for name in names if (suite := _shipped(name)) is not None]
    found: dict[str, Suite] = {}
    for target in targets:
        here = list(_of(target, within))
        if not here:
            message = "there are no cases beside these rules"
            advice = f"write them to `{_expected(target)}`"
            raise RulesError([Problem(source=target, message=message, help=advice)])
        found |= {suite.shown: suite for suite in here}
    return list(found.values())


def _of(target: str, within: Path | None) -> Iterator[Suite]:
    path = Path(target)
    if target not in shipped():
        require_within(path, within)
    if target not in shipped() and path.is_dir() and not (path / "rules.yaml").is_file():
        for file in sorted([*path.rglob("rules.yaml"), *path.rglob(f"*{_SUFFIX}")]):
            rules = file.with_name(file.name.removesuffix(_SUFFIX) + ".yaml")
            suite = _beside_file(file if file.name == "rules.yaml" else rules, within)
            if suite is not None:
                yield suite
        return
    if target not in shipped() and not path.exists():
        from policy.rules.ruleset import RuleSet

        RuleSet.load(target, within=within)  # says what is wrong with the name
    suite = beside(target, within=within)
    if suite is not None:
        yield suite


def _expected(target: str) -> str:
    path = Path(target)
    if path.is_dir() or target in shipped_rules():
        return f"{target.rstrip('/')}/cases.yaml"
    return f"{target.removesuffix('.yaml')}{_SUFFIX}"


def _shipped(name: str) -> Suite | None:
    file = shipped().get(name)
    if file is None:
        return None
    inside = f"{name}/cases.yaml" if file.name == "rules.yaml" else f"{name}{_SUFFIX}"
    cases = shipped_folder().joinpath(*inside.split("/"))
    return Suite(rules=name, file=cases, shown=f"rules/{inside}") if cases.is_file() else None


def _beside_file(rules: Path, within: Path | None) -> Suite | None:
    if rules.is_dir():
        rules = rules / "rules.yaml"
    name = "cases.yaml" if rules.name == "rules.yaml" else rules.stem + _SUFFIX
    cases = rules.with_name(name)
    return (
        Suite(rules=rules, file=cases, shown=str(cases), within=within) if cases.is_file() else None
    )
