"""The order of rooms: imports point downwards, also those inside functions and for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "policy"

ROOMS = (
    "lazy",
    "extras",
    "typed",
    "text",
    "cluster",
    "observing",
    "manifests",
    "filters",
    "scoring",
    "rules",
    "decision",
    "extenders",
    "preemption",
    "groups",
    "batch",
    "cases",
    "proving",
    "scheduling",
    "store",
    "face",
    "garbage",
    "parts",
    "conformance",
    "audit",
    "live",
    "simulation",
    "server",
    "cli",
)
"""From the ground up: a room imports from itself and from those before it."""


def modules() -> Iterator[tuple[str, Path]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def imports(file: Path, *, of: str = "policy") -> Iterator[str]:
    """Every module of a package, by default of ours, that the file imports, at any depth."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == of)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == of:
            for alias in node.names:
                inner = PACKAGE.parent.joinpath(*str(node.module).split("."), alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def folder(module: str) -> str:
    """The folder that a module lies in, counted from the package."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    return ".".join((path if path.is_dir() else path.parent).relative_to(PACKAGE.parent).parts)


def test_every_room_has_its_place() -> None:
    """A new folder gets a place in the order before anything can import it."""
    found = {room(name) for name, _ in modules()} - {"", "__main__"}
    assert found == set(ROOMS)


def test_no_room_imports_upwards() -> None:
    upwards = [
        f"{name} imports {target}"
        for name, file in modules()
        if room(name) in ROOMS
        for target in imports(file)
        # The public face itself is above every room but the command line.
        if (ROOMS.index(room(target)) if room(target) else ROOMS.index("face"))
        > ROOMS.index(room(name))
    ]
    assert upwards == []


@pytest.mark.parametrize("name", ROOMS)
def test_folders_of_a_room_form_no_circle(name: str) -> None:
    """Folders inside a room depend on each other in one direction."""
    graph: dict[str, set[str]] = {}
    for module, file in modules():
        if room(module) != name or module.count(".") < 2:
            continue
        here = folder(module)
        for target in imports(file):
            there = folder(target)
            if room(target) == name and here != there and f"policy.{name}" not in (here, there):
                graph.setdefault(here, set()).add(there)
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError


def test_sql_is_spoken_in_the_store_alone() -> None:
    """Outside of the store and the migrations nothing imports the database's library."""
    outside = [
        f"{name} imports {target}"
        for name, file in modules()
        if room(name) != "store"
        for target in imports(file, of="sqlalchemy")
    ]
    assert outside == []
