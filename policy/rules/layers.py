"""The files that a rule file stands on: what it includes and what it extends, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from policy.rules.documents import Branch, Leaf, Series
from policy.rules.files import RuleFile, open_beside
from policy.rules.overlays import normalised
from policy.rules.problems import RulesError
from policy.text.problems import Problem

MAX_EXTENDS: Final = 20

LINKS: Final = ("extends", "include")
"""Keys of a file that name others."""


@dataclass(slots=True)
class Layers:
    """A file and everything that it stands on, the topmost layer first."""

    found: list[tuple[RuleFile, Branch]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: dict[str, Leaf | None] = field(default_factory=dict)  #: file to where it is named

    def walk(self, file: RuleFile) -> None:
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
                    advice = "add `extends: kube-1.36`"
                    self.problems.append(place.problem("include", message, advice))
                return
            if not isinstance(extends, Leaf) or not extends.text.strip():
                message = "`extends` must be the name of a rule set or a path"
                self.problems.append(extends.place.problem("extends", message))
                return
            base = open_beside(current, extends, "extend")
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

    def own(self, file: RuleFile) -> None:
        """The file's own rules, and below them those that it includes."""
        self._within_spec(file)
        self.found.append((file, spec_of(file)))
        for leaf in reversed(list(self._included(file))):
            other = open_beside(file, leaf, "include")
            if other.key in self.seen:
                # The upper of the two is the one that can be left out.
                upper = self.seen[other.key] or leaf
                message = f"`{upper.text}` is part of this rule set already"
                advice = f"the other one is at {leaf.place}" if upper is not leaf else None
                self.problems.append(upper.place.problem("include", message, advice))
            elif self._fitting(other, leaf, "include"):
                self.seen[other.key] = leaf
                self.own(other)

    def _within_spec(self, file: RuleFile) -> None:
        spec = file.root.get("spec")
        for key in ("extends", "include"):
            if isinstance(spec, Branch) and key in spec.keys:
                message = f"`{key}` stands in `spec`, where it means nothing"
                advice = "write it at the start of the line, beside `kind` and `spec`"
                self.problems.append(spec.keys[key].problem(f"spec.{key}", message, advice))

    def _included(self, file: RuleFile) -> Iterator[Leaf]:
        include = file.root.get("include")
        if include is None:
            return
        for item in include.items if isinstance(include, Series) else (include,):
            if isinstance(include, Series) and isinstance(item, Leaf) and item.text.strip():
                yield item
            else:
                message = "`include` must be a list of names or paths"
                self.problems.append(item.place.problem("include", message))

    def _fitting(self, file: RuleFile, leaf: Leaf, path: str) -> bool:
        kind = file.root.get("kind")
        if isinstance(kind, Leaf) and kind.text == file.kind:
            return True
        message = f"`{leaf.text}` is not of `kind: {file.kind}`"
        self.problems.append(leaf.place.problem(path, message))
        return False


def layers_of(file: RuleFile) -> list[tuple[RuleFile, Branch]]:
    """The file and all that it includes and extends, with their specs; the file comes first."""
    layers = Layers()
    layers.walk(file)
    if layers.problems:
        raise RulesError(layers.problems)
    return layers.found


def spec_of(file: RuleFile) -> Branch:
    """The file's own spec, an empty one where it only extends."""
    spec = file.root.get("spec")
    if isinstance(spec, Branch):
        return normalised(spec)
    nothing = spec is None or (isinstance(spec, Leaf) and spec.value is None)
    if spec is not None and not nothing:
        file.problems.append(spec.place.problem("spec", "`spec` must be a mapping"))
    return Branch(file.root.place, {}, {})
