"""Everything about a merged rule file that pydantic's models cannot say.

Works on the tree, so that all problems come out at once whatever else is wrong, and each with
its place. Pydantic's own findings are translated here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from policy.rules.documents import Branch, Item, Leaf, Place, Series, place_within, plain
from policy.rules.expressions import (
    CONDITION,
    ORDER_KEY,
    RANKING_KEY,
    SCORE,
    Context,
    Expression,
    ExpressionError,
    ValueType,
    compile_expression,
)
from policy.rules.group_rules import OrdinaryVictims
from policy.rules.layers import LINKS
from policy.rules.overlays import implied_id
from policy.rules.ruleset import ReprieveGroup
from policy.rules.schema import RULE_NAMES, RuleFileModel
from policy.rules.shape import (
    TYPE_WORDS,
    FileShape,
    Path,
    find,
    found_in,
    show,
    suggest,
)
from policy.scoring.registry import is_rule
from policy.text.problems import Problem
from policy.typed import prepared

ELIGIBILITY: Path = ("spec", "eligibility")
ELIGIBLE: Path = ("spec", "victims", "eligible")
FORBID: Path = ("spec", "victims", "forbid")
IMPORTANCE: Path = ("spec", "victims", "importance")
RANKING: Path = ("spec", "ranking")
SCORING: Path = ("spec", "scoring")
REPRIEVE: Path = ("spec", "victims", "reprieve")
GROUP_ELIGIBILITY: Path = ("spec", "groups", "eligibility")
UNITS: Path = ("spec", "groups", "victims", "eligible")
UNIT_IMPORTANCE: Path = ("spec", "groups", "victims", "importance")
UNIT_REPRIEVE: Path = ("spec", "groups", "victims", "reprieve")
RULE_LISTS: tuple[Path, ...] = (
    ELIGIBILITY,
    ELIGIBLE,
    FORBID,
    IMPORTANCE,
    RANKING,
    GROUP_ELIGIBILITY,
    UNITS,
    UNIT_IMPORTANCE,
)
"""Every list of rules with ids."""
_IMPORTANCES = (IMPORTANCE, UNIT_IMPORTANCE)

_EXPRESSIONS: tuple[tuple[Path, tuple[str, ...], Context, frozenset[ValueType]], ...] = (
    (ELIGIBILITY, ("when",), Context.ELIGIBILITY, CONDITION),
    (ELIGIBLE, ("when",), Context.VICTIMS, CONDITION),
    (FORBID, ("when",), Context.FORBID, CONDITION),
    (IMPORTANCE, ("ascending", "descending"), Context.IMPORTANCE, ORDER_KEY),
    (RANKING, ("minimize", "maximize"), Context.RANKING, RANKING_KEY),
    (SCORING, ("score",), Context.SCORING, SCORE),
    (GROUP_ELIGIBILITY, ("when",), Context.GROUP_ELIGIBILITY, CONDITION),
    (UNITS, ("when",), Context.UNITS, CONDITION),
    (UNIT_IMPORTANCE, ("ascending", "descending"), Context.UNIT_IMPORTANCE, ORDER_KEY),
)


_Entry: TypeAlias = type[msgspec.Struct]
"""The keys of a list's mappings with their types."""


class ParameterLike(Protocol):
    """A parameter of a filter or scorer."""

    @property
    def choices(self) -> tuple[str, ...] | None: ...
    @property
    def type(self) -> type: ...
    @property
    def default(self) -> Any: ...
    @property
    def entry(self) -> _Entry | None: ...
    @property
    def before(self) -> Any: ...


class Parametrised(Protocol):
    """A filter or scorer as its registry knows it."""

    @property
    def parameters(self) -> Mapping[str, ParameterLike]: ...


Registry = Mapping[str, Parametrised]


@dataclass(slots=True)
class Checker:
    """Collects the problems of one merged rule file, and its compiled expressions."""

    root: Branch
    filters: Registry
    scorers: Registry
    problems: list[Problem] = field(default_factory=list)
    expressions: dict[Path, Expression] = field(default_factory=dict)

    def run(self) -> RuleFileModel | None:
        """All checks; the validated model where pydantic found nothing."""
        shape = FileShape(self.root, RuleFileModel, _shape_words, _MISSING, above=LINKS)
        model = shape.validate()
        self.problems += shape.problems
        for path, keys, context, expected in _EXPRESSIONS:
            for index, rule in self._rules(path):
                for key in keys:
                    leaf = rule.get(key)
                    if isinstance(leaf, Leaf):
                        self._expression(leaf, (*path, index, key), context, expected)
        self._unique_ids()
        self._last_decides()
        self._answers_to_errors()
        self._directions()
        for reprieve in (REPRIEVE, UNIT_REPRIEVE):
            self._reprieve(reprieve)
        self._uses(("spec", "filters"), self.filters)
        self._uses(SCORING, self.scorers)
        self._scores()
        self._ordinary()
        return model

    def complain(self, place: Place, path: Path, message: str, advice: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(place.problem(show(path), message, advice))

    def _rules(self, path: Path) -> Iterable[tuple[int, Branch]]:
        series = find(self.root, path)
        if isinstance(series, Series):
            for index, item in enumerate(series.items):
                if isinstance(item, Branch):
                    yield index, item

    # -- expressions ---------------------------------------------------------------------

    def _expression(
        self, leaf: Leaf, path: Path, context: Context, expected: frozenset[ValueType]
    ) -> None:
        source = leaf.text.strip()
        shift = len(leaf.text) - len(leaf.text.lstrip())
        try:
            self.expressions[path] = compile_expression(source, context=context, expected=expected)
        except ExpressionError as exc:
            within = _rule_label(self.root, path)
            eaten = _eaten_comment(leaf)
            for complaint in exc.complaints:
                place = (
                    place_within(leaf, complaint.offset + shift, complaint.length)
                    if source
                    else leaf.place
                )
                advice = eaten or complaint.help
                self.complain(place, path, f"{complaint.message}{within}", advice)

    # -- ids and orders ------------------------------------------------------------------

    def _unique_ids(self) -> None:
        seen: dict[str, Place] = {}
        for path in RULE_LISTS:
            for index, rule in self._rules(path):
                leaf = rule.get("id")
                name: str | None
                if isinstance(leaf, Leaf):
                    name, place = leaf.text, leaf.place
                else:
                    # The implied id of an importance key.
                    name, place = implied_id(rule), rule.place
                if name is None or (leaf is None and path not in _IMPORTANCES):
                    continue
                # Keys of the two importance orders are named by their own variables.
                name = f"{name} of units" if path == UNIT_IMPORTANCE else name
                if name in seen:
                    advice = f"the first one is at {seen[name]}"
                    if leaf is None:
                        advice += "; give the key an `id` of its own"
                    self.complain(place, (*path, index, "id"), f"duplicate id `{name}`", advice)
                seen.setdefault(name, place)

    def _last_decides(self) -> None:
        for path in (ELIGIBILITY, GROUP_ELIGIBILITY):
            rules = list(self._rules(path))
            if rules and "when" in rules[-1][1].entries:
                index, rule = rules[-1]
                self.complain(
                    rule.keys["when"],
                    (*path, index, "when"),
                    "the last eligibility rule must hold always, so it has no `when`",
                    "add `- {id: otherwise, verdict: allow}`",
                )
        ranking = list(self._rules(RANKING))
        for index, rule in ranking:
            last = index == ranking[-1][0]
            if last and "pick" not in rule.entries:
                self.complain(
                    rule.place,
                    (*RANKING, index),
                    "the last ranking criterion must be a `pick`, or ties stay open",
                    "add `- {id: by-name, pick: first-by-name}`",
                )
            elif not last and "pick" in rule.entries:
                self.complain(
                    rule.keys["pick"],
                    (*RANKING, index, "pick"),
                    "a `pick` ends the ranking, so nothing may follow it",
                )

    def _answers_to_errors(self) -> None:
        for path in (ELIGIBILITY, ELIGIBLE, GROUP_ELIGIBILITY, UNITS):
            for index, rule in self._rules(path):
                if "onError" in rule.entries and "when" not in rule.entries:
                    self.complain(
                        rule.keys["onError"],
                        (*path, index, "onError"),
                        "`onError` is about `when`, and this rule has none",
                        "remove it: a rule without `when` always holds",
                    )

    def _directions(self) -> None:
        for path, keys in (
            (IMPORTANCE, ("ascending", "descending")),
            (UNIT_IMPORTANCE, ("ascending", "descending")),
            (RANKING, ("minimize", "maximize", "pick")),
        ):
            for index, rule in self._rules(path):
                given = [key for key in keys if key in rule.entries]
                if len(given) != 1:
                    listed = ", ".join(f"`{key}`" for key in keys[:-1]) + f" or `{keys[-1]}`"
                    what = "none is" if not given else "several are"
                    self.complain(rule.place, (*path, index), f"{what} given of {listed}")

    def _reprieve(self, path: Path) -> None:
        series = find(self.root, path)
        if not isinstance(series, Series):
            return
        groups = [item.text if isinstance(item, Leaf) else "" for item in series.items]
        known = set(groups) <= {group.value for group in ReprieveGroup}
        if known and sorted(groups) != ["others", "pdb-violating"] and groups != ["all"]:
            self.complain(
                series.place,
                path,
                "the groups must hold every potential victim exactly once",
                "write `[pdb-violating, others]`, `[others, pdb-violating]` or `[all]`",
            )

    def _ordinary(self) -> None:
        """Extenders answer with victims of one node, so a group would not stay whole."""
        path = ("spec", "groups", "units", "ordinary")
        chosen, extenders = find(self.root, path), find(self.root, ("spec", "extenders"))
        if not isinstance(chosen, Leaf) or chosen.text != OrdinaryVictims.WHOLE:
            return
        if isinstance(extenders, Series) and extenders.items:
            message = "`ordinary: whole` cannot be kept where extenders change the victims"
            self.complain(chosen.place, path, message, "write `none`, or remove the extenders")

    # -- filters and scorers -------------------------------------------------------------

    def _uses(self, path: Path, registry: Registry) -> None:
        key = RULE_NAMES[str(path[-1])]
        seen: dict[str, Place] = {}
        for index, use in self._rules(path):
            leaf = use.get(key)
            if not isinstance(leaf, Leaf):
                continue
            where = (*path, index)
            if leaf.text in seen:
                message = f"{key} `{leaf.text}` is listed twice"
                self.complain(leaf.place, where, message, f"first at {seen[leaf.text]}")
            seen.setdefault(leaf.text, leaf.place)
            info = registry.get(leaf.text)
            if info is None:
                advice = suggest(leaf.text, registry)
                self.complain(leaf.place, where, f"unknown {key} `{leaf.text}`", advice)
                continue
            reserved = {key, "weight", "why"} if key == "scorer" else {key}
            for name, item in use.entries.items():
                if name not in reserved:
                    self._parameter(use.keys[name], item, (*where, name), leaf.text, info)

    def _scores(self) -> None:
        """A rule gives every node a score."""
        for index, use in self._rules(SCORING):
            leaf = use.get("scorer")
            if not isinstance(leaf, Leaf) or not is_rule(leaf.text):
                continue
            given = use.get("score")
            if not isinstance(given, Leaf):
                advice = "give an expression: `score: \"node.labels['pool'] == 'spot'\"`"
                self.complain(use.place, (*SCORING, index), "missing key `score`", advice)
                continue
            found = self.expressions.get((*SCORING, index, "score"))
            if found is not None and found.history_needs:
                path = (*SCORING, index, "score")
                self.complain(given.place, path, "`history` is not available in a score")

    def _parameter(
        self, place: Place, item: Item, path: Path, owner: str, info: Parametrised
    ) -> None:
        name = str(path[-1])
        parameter = info.parameters.get(name)
        if parameter is None:
            advice = suggest(name, info.parameters)
            self.complain(place, path, f"`{owner}` has no parameter `{name}`", advice)
            return
        value = plain(item)
        if type(value) is not parameter.type:
            wanted = TYPE_WORDS.get(parameter.type, parameter.type.__name__)
            message = f"`{name}` of `{owner}` must be {wanted}, not {found_in(item)}"
            self.complain(item.place, path, message)
        elif parameter.choices is not None and value not in parameter.choices:
            advice = suggest(str(value), parameter.choices)
            self.complain(item.place, path, f"unknown `{name}` `{value}` of `{owner}`", advice)
        elif parameter.entry is not None and isinstance(item, Series):
            for index, entry in enumerate(item.items):
                self._entry(entry, (*path, index), parameter.entry)

    def _entry(self, item: Item, path: Path, wanted: _Entry) -> None:
        """One mapping of a parameter that is a list of them."""
        where = show(path[-2:])
        if not isinstance(item, Branch):
            self.complain(item.place, path, f"`{where}` must be a mapping, not {found_in(item)}")
            return
        fields = {field.encode_name: field for field in msgspec.structs.fields(wanted)}
        for key, place in item.keys.items():
            if key not in fields:
                message = f"unknown key `{key}` in `{where}`"
                self.complain(place, (*path, key), message, suggest(key, fields))
        for key, field_ in fields.items():
            value = item.get(key)
            if value is None:
                self.complain(item.place, path, f"missing key `{key}` in `{where}`")
                continue
            try:
                msgspec.convert(plain(value), prepared(field_.type))
            except msgspec.ValidationError as exc:
                message = f"`{key}` in `{where}`: {str(exc).lower()}"
                self.complain(value.place, (*path, key), message)


_MISSING: Mapping[str, str] = {
    "apiVersion": "write `apiVersion: policy/v1`",
    "kind": "write `kind: PreemptionRules`",
    "metadata": "write `metadata: {name: my-rules}`",
    "spec": "give the rules, or `extends` a rule set that does",
    "verdict": "write `verdict: allow` or `verdict: deny`",
    "eligibility": "give it, or `extends` a rule set that does",
    "filters": "give it, or `extends` a rule set that does",
    "victims": "give it, or `extends` a rule set that does",
    "ranking": "give it, or `extends` a rule set that does",
}


def _rule_label(root: Branch, path: Path) -> str:
    rule = find(root, path[:-1])
    leaf = rule.get("id") if isinstance(rule, Branch) else None
    if isinstance(leaf, Leaf):
        return f" in rule `{leaf.text}`"
    return f" in `{show(path[-3:-1])}`"


def _eaten_comment(leaf: Leaf) -> str | None:
    """The help for an expression of which YAML took a part for a comment."""
    if not leaf.plain:
        return None
    line = leaf.place.source.lines[leaf.end.line]
    rest = line[leaf.end.column :]
    if rest.lstrip().startswith("#") and rest[:1].isspace():
        return "YAML takes ` #` and what follows for a comment: quote the expression or use `>-`"
    return None


def _shape_words(kind: str, path: Path, found: str) -> tuple[str, str | None] | None:
    """What is particular to rule files about a finding of pydantic; None where nothing is."""
    if path == ("spec", "audit", "candidates"):
        return "`candidates` must be `all`, `chosen` or a whole number from 1", None
    if kind == "string_pattern_mismatch" and path[-1] == "urlPrefix":
        return f"`{found}` is no address", "it starts with `http://` or `https://`"
    return None
