"""`policy import`: what it reads, what it says, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
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


_FOLDER = (
    " cannot have the name `{name}`\n"
    "  help: it means a folder in addresses, and clients leave it out of them\n"
)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", _FOLDER),
        ("..", _FOLDER),
        (" ", " needs a name\n"),
        (254 * "x", " cannot have a name of 254 characters\n  help: give it one of at most 253\n"),
    ],
)
def test_what_no_address_can_name_is_refused(
    policy: Policy, dump: Path, database_url: str, name: str, told: str
) -> None:
    """Nothing is imported, and no environment made."""
    imported = policy("import", dump, "--cluster", name, "--db", database_url)
    policy("import", dump, "--db", database_url)
    created = policy("env", "create", name, "--db", database_url)
    assert [(done.status, done.out, done.err) for done in (imported, created)] == [
        (1, "", what + told.format(name=name)) for what in ("a cluster", "an environment")
    ]


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
        "1 object stood more than once and differed; the last one was taken: `Node n`",
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


def test_pods_on_unknown_nodes_are_told(policy: Policy, tmp_path: Path) -> None:
    """A partial dump is imported, with a warning that names pods and nodes; not once they exist."""
    file, database = tmp_path / "a.json", tmp_path / "p.db"
    started = "2026-11-20T10:00:00Z"
    pods = [a_pod(f"shop/p{i}", f"gone{i}", 0, 1, started) for i in range(5)]
    file.write_text(json.dumps(pods))
    assert policy("import", file, "--db", database).err.splitlines()[1:] == [
        "warning: on nodes that the cluster does not have: `Pod shop/p0 on gone0`,"
        " `Pod shop/p1 on gone1`, `Pod shop/p2 on gone2` and 2 more",
        "  help: import the nodes too; until then these pods take no part in decisions",
    ]
    file.write_text(json.dumps([a_node(f"gone{i}") for i in range(5)]))
    assert policy("import", file, "--db", database).err.splitlines()[1:] == []
    file.write_text(json.dumps(pods))
    assert policy("import", file, "--db", database).err.splitlines()[1:] == []


def test_two_global_defaults_are_told(policy: Policy, tmp_path: Path) -> None:
    """Both are named, and which of them counts."""
    file = tmp_path / "a.json"
    classes = [
        {
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "globalDefault": True,
        }
        for name, value in (("high", 9), ("low", 3))
    ]
    file.write_text(json.dumps(classes))
    assert policy("import", file, "--db", tmp_path / "p.db").err.splitlines()[0] == (
        "warning: more than one global default: `PriorityClass low`, `PriorityClass high`;"
        " pods without a class get the lowest, low (3)"
    )


def test_limits_are_raised_by_options(policy: Policy, tmp_path: Path) -> None:
    """The message names the option; with it the same file is read."""
    file, database = tmp_path / "a.json", tmp_path / "p.db"
    file.write_text(json.dumps([a_node("n1"), a_node("n2")]))
    assert policy("import", file, "--db", database, "--max-objects", "1") == (
        1,
        "",
        f"{file}: more than 1 objects\n  help: `--max-objects` raises the limit\n",
    )
    limits = ("--max-objects", "2", "--max-object-size", "1k", "--max-input-size", "1Mi")
    assert policy("import", file, "--db", database, *limits).status == 0


def test_now_is_a_time_from_which_others_can_be_computed(policy: Policy) -> None:
    """The end of time is refused, before anything is decided."""
    done = policy("run", "--now", "9999-12-31T23:59:59Z")
    assert done.status == 2
    assert (
        "`9999-12-31T23:59:59Z` is too late: decisions can be made up to 9700-01-01T00:00:00Z"
        in done.err
    )
    done = policy("run", "--now", "0001-01-01T00:00:00+01:00")
    assert "`0001-01-01T00:00:00+01:00` is outside of the years 0001 to 9999" in done.err
