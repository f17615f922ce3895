"""`policy import`: what it reads, what it says, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tests.acceptance.commands import Policy, a_node, a_pod


def test_an_import_says_what_it_did(policy: Policy, dump: Path, database_url: str) -> None:
    """The first import adds, the second changes nothing, a newer dump makes a new revision."""
    first = policy("import", dump, "--db", database_url, "--output", "json")
    assert json.loads(first.out)["kinds"] == [
        {"kind": "Node", "added": 4, "changed": 0, "unchanged": 0, "removed": 0},
        {"kind": "Pod", "added": 6, "changed": 0, "unchanged": 0, "removed": 0},
    ]
    assert first.err == "cluster default is at revision 1\n"
    again = policy("import", dump, "--db", database_url, "--output", "csv")
    assert again.out.splitlines() == [
        "kind,added,changed,unchanged,removed",
        "Node,0,0,4,0",
        "Pod,0,0,6,0",
    ]
    assert again.err == "nothing changed: cluster default stays at revision 1\n"
    dump.write_text(json.dumps([a_node("n1", unschedulable=True), a_node("n5")]))
    newer = policy("import", dump, "--db", database_url, "--output", "jsonl")
    assert json.loads(newer.out) == {
        "kind": "Node",
        "added": 1,
        "changed": 1,
        "unchanged": 0,
        "removed": 0,
    }
    assert newer.err == "cluster default is at revision 2\n"


def test_prune_removes_what_the_file_lacks(policy: Policy, dump: Path, database_url: str) -> None:
    """With --prune the file is complete for its kinds and namespaces, and for no others."""
    policy("import", dump, "--db", database_url)
    dump.write_text(json.dumps([a_pod("shop/a", "n1", 0, 2, "2026-11-20T10:00:00Z")]))
    done = policy("import", dump, "--prune", "--db", database_url, "-o", "csv")
    assert done.out.splitlines()[1:] == ["Pod,0,0,1,3"]


def test_clusters_are_kept_apart(policy: Policy, dump: Path, database_url: str) -> None:
    """The same database holds several clusters, each with its own history."""
    policy("import", dump, "--db", database_url)
    dump.write_text(json.dumps([a_node("other")]))
    policy("import", dump, "--cluster", "second", "--db", database_url)
    query = "SELECT name FROM clusters ORDER BY name"
    done = policy("sql", "--trust-connection", query, "--db", database_url, "-o", "csv")
    assert done.out.split() == ["name", "default", "second"]


def test_a_bad_file_imports_nothing(policy: Policy, dump: Path, tmp_path: Path) -> None:
    """One wrong quantity among good objects, and not even the database comes into being."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(yaml.safe_dump(a_node("x") | {"status": {"allocatable": {"cpu": "abc"}}}))
    database = tmp_path / "new.db"
    done = policy("import", dump, bad, "--db", database)
    assert done == (
        1,
        "",
        f"{bad}: Node x: status.allocatable.cpu: `abc` is not a quantity\n"
        "  help: for example `500m`, `2`, `1536Mi`, `1G`\n",
    )
    assert not database.exists()


def test_an_unknown_priority_class_imports_nothing(
    policy: Policy, tmp_path: Path, database_url: str
) -> None:
    """A class that neither file nor cluster knows is refused; once it is known it is used."""
    pod = tmp_path / "pod.json"
    spec = {"priorityClassName": "gold", "containers": [{"name": "c"}]}
    manifest = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    pod.write_text(json.dumps(manifest))
    refused = policy("import", pod, "--db", database_url)
    assert refused.status == 1
    assert refused.err.startswith(f"{pod}: Pod default/p: spec.priorityClassName: unknown")
    known = tmp_path / "class.json"
    known.write_text(
        json.dumps({"kind": "PriorityClass", "metadata": {"name": "gold"}, "value": 7})
    )
    assert policy("import", known, "--db", database_url).status == 0
    assert policy("import", pod, "--db", database_url).status == 0
    done = policy(
        "sql", "--trust-connection", "SELECT priority FROM pods", "--db", database_url, "-o", "csv"
    )
    assert done.out.split() == ["priority", "7"]


def test_skipped_and_repeated_objects_are_told(policy: Policy, tmp_path: Path) -> None:
    """What was left out, and what stood twice, is said on standard error."""
    file = tmp_path / "a.json"
    secret = {"kind": "Secret", "metadata": {"name": "s"}}
    file.write_text(json.dumps([secret, secret, a_node("n"), a_node("n", unschedulable=True)]))
    done = policy("import", file, "--db", tmp_path / "p.db")
    assert done.err.splitlines() == [
        "skipped: 2 Secret",
        "1 objects stood more than once and differed; the last one was taken",
        "cluster default is at revision 1",
    ]


def test_a_file_without_used_objects_is_an_error(policy: Policy, tmp_path: Path) -> None:
    """An import that would do nothing says so, with what to export."""
    file = tmp_path / "a.json"
    file.write_text('{"kind": "Secret", "metadata": {"name": "s"}}')
    done = policy("import", file, "--db", tmp_path / "p.db")
    assert done.status == 1
    assert done.err.splitlines()[1].startswith("nothing to import")


def test_standard_input_is_read(dump: Path, tmp_path: Path) -> None:
    """`kubectl get ... | policy import -` works."""
    command = [sys.executable, "-m", "policy", "import", "-", "--db", str(tmp_path / "p.db")]
    with dump.open() as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "cluster default is at revision 1\n")
