"""Recorded watches: what an import says that it made of each object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.store import Store
from tests.acceptance.commands import Policy

CLUSTERS = "SELECT name FROM clusters"

Row = tuple[str, int, int, int, int]


def line(what: str, name: str, version: int, **labels: str) -> dict[str, Any]:
    """A change of a node, as a watch has it."""
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": str(version), "labels": labels}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}
    return {"type": what, "object": node}


@pytest.fixture
def take(policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports files of lines; gives the rows that it prints, and what it says."""
    monkeypatch.setenv("POLICY_DB", str(tmp_path / "policy.db"))

    def taken(*streams: list[dict[str, Any]]) -> tuple[list[Row], str]:
        files = []
        for number, stream in enumerate(streams):
            file = tmp_path / f"{number}.jsonl"
            file.write_text("".join(f"{json.dumps(one)}\n" for one in stream))
            files.append(str(file))
        done = policy("import", *files, "--output", "json")
        assert done.status == 0, done.err
        kinds = json.loads(done.out)["kinds"]
        columns = ("kind", "added", "changed", "unchanged", "removed")
        return [tuple(kind[column] for column in columns) for kind in kinds], done.err

    return taken


def test_every_object_is_counted_once(take: Any) -> None:
    """By what it was before and is afterwards, however many changes there were of it."""
    first = [line("ADDED", "n1", 5), line("ADDED", "n2", 6), line("MODIFIED", "n1", 7, a="b")]
    assert take(first) == ([("Node", 2, 0, 0, 0)], "cluster default is at revision 1\n")
    second = [
        line("ADDED", "n2", 6),  # as it is known
        line("MODIFIED", "n1", 8, a="c"),
        line("MODIFIED", "n1", 9, a="d"),
        line("ADDED", "n3", 10),
        line("DELETED", "n3", 11),  # came and went
        line("ADDED", "n4", 12),
        line("DELETED", "n4", 13),
        line("ADDED", "n4", 14),
    ]
    assert take(second)[0] == [("Node", 1, 1, 1, 0)]
    assert take([line("DELETED", "n2", 15)])[0] == [("Node", 0, 0, 0, 1)]


def test_a_list_and_the_watch_after_it_are_one_count(take: Any) -> None:
    """What the list has and the watch changes is new once."""
    listed = [line("ADDED", name, 5)["object"] for name in ("n1", "n2", "n3")]
    watch = [line("MODIFIED", "n1", 8, a="c"), line("DELETED", "n2", 9), line("ADDED", "n4", 10)]
    assert take(listed, watch)[0] == [("Node", 3, 0, 0, 0)]


def test_nothing_new_is_said_once(policy: Policy, take: Any, tmp_path: Path) -> None:
    """No `nothing found` above `nothing changed`; what is gone begins no cluster."""
    assert take([line("DELETED", "n1", 9)]) == (
        [],
        "nothing changed: there is no cluster default yet\n",
    )
    with Store.open(str(tmp_path / "policy.db")) as store, store.sql(CLUSTERS) as found:
        assert list(found) == []
    take([line("ADDED", "n1", 5)])
    done = policy("import", str(tmp_path / "0.jsonl"))
    assert done.err == "nothing changed: cluster default stays at revision 1\n"
    assert done.out.splitlines()[2].split() == ["Node", "0", "0", "1", "0"]
