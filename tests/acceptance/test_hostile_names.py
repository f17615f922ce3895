"""Names that hold orders to a terminal: every command shows them, and none obeys."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from policy.cli import docs
from policy.store import Store
from policy.text.printable import is_printable
from tests.acceptance.commands import NOW, Policy
from tests.support import batch
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects

EVIL = "n\nfake\x1b[31m\x07\x9b\u202e\u200b\u2028[red]<b>"
"""A forged line, colours, a bell, a C1 control, a direction mark, no width, markup of two kinds."""

LOW, HIGH = f"{EVIL}/{EVIL}low", f"{EVIL}/{EVIL}high"

COMMANDS: dict[str, list[list[str]]] = {
    "policy import": [["EVIL.json"], ["EVIL"], [f"missing{EVIL}"]],
    "policy preempt": [[HIGH, "--now", NOW], [EVIL], [HIGH, "--cluster", EVIL, "--dry-run"]],
    "policy run": [["--cluster", EVIL, "--dry-run"], ["--cluster", EVIL, "--settle", "--dry-run"]],
    "policy groups": [[], ["--group", EVIL], ["--cluster", EVIL], ["--since", EVIL]],
    "policy decisions": [[], ["--cluster", EVIL], ["--since", EVIL], ["-o", EVIL]],
    "policy explain": [
        ["1"],
        ["1", "--why-not", EVIL],
        ["1", "--why-not", f"{EVIL}2"],
        ["1", "--on-node"],
        [EVIL],
    ],
    "policy simulate": [
        [EVIL, "--rules", "kube-1.36"],
        [".", "--rules", EVIL],
        ["--workload", EVIL, "--rules", "kube-1.36"],
        ["--from-record", "--cluster", EVIL, "--rules", "kube-1.36"],
        [".", "--rules", "kube-1.36", "--nodes", EVIL, "--scheduler", EVIL, "-o", "html"],
    ],
    "policy tune": [[EVIL], [".", "--write", EVIL]],
    "policy observed": [
        [],
        ["--cluster", EVIL],
        ["--victim", EVIL],
        ["--compare", "--rules", EVIL],
    ],
    "policy follow": [["--kubeconfig", EVIL], ["--listen", EVIL], ["--environment", EVIL]],
    "policy who": [[LOW], [EVIL], [LOW, "--cluster", EVIL], [LOW, "--around", EVIL]],
    "policy avoidable": [["1"], [EVIL], ["1", "--victim", EVIL]],
    "policy nominations": [[], ["--cluster", EVIL]],
    "policy report health": [[], ["--cluster", EVIL], ["-o", "json"]],
    "policy report thrash": [["--cluster", EVIL], ["--part", EVIL]],
    "policy report observed": [[], ["--rules", "EVIL.yaml"], ["--cluster", EVIL]],
    "policy report cost": [["--cluster", EVIL]],
    "policy state show": [
        ["--cluster", EVIL],
        ["pods", "--cluster", EVIL],
        ["nodes", "--cluster", EVIL],
        ["queues", "--cluster", EVIL],
        ["pods", EVIL, "--cluster", EVIL],
        [EVIL],
    ],
    "policy state revisions": [["--cluster", EVIL]],
    "policy replay": [["1"], [EVIL], ["--all", "--cluster", EVIL]],
    "policy compare": [
        ["--rules", "EVIL.yaml", "--cluster", EVIL],
        ["--rules", "EVIL.yaml", "--show", "1"],
        ["--rules", "kube-1.20", "--cluster", EVIL, "-o", "html"],
        ["--rules", EVIL],
    ],
    "policy what-if": [[HIGH, "--cluster", EVIL], ["--remove-node", EVIL, "--cluster", EVIL]],
    "policy audit verify": [[], ["--head", EVIL]],
    "policy audit head": [[]],
    "policy audit anchor": [["--cluster", EVIL], ["--file", "out"]],
    "policy audit prunings": [["--cluster", EVIL]],
    "policy sql": [
        ["SELECT * FROM v_victims"],
        [f'SELECT 1 AS "{EVIL}"'],
        [f"SELECT {EVIL}"],
        ["SELECT :a AS x", "-p", f"a={EVIL}"],
        ["--list"],
    ],
    "policy export": [["--output", "EVIL"], ["--output", "out", "--table", EVIL]],
    "policy rules list": [[]],
    "policy rules show": [["EVIL.yaml"], [EVIL]],
    "policy rules explain": [["EVIL.yaml"]],
    "policy rules lint": [["EVIL.yaml"], ["BAD.yaml"]],
    "policy rules test": [["EVIL.yaml"], ["BAD.yaml"]],
    "policy rules diff": [["kube-1.35", "EVIL.yaml"]],
    "policy rules for": [["1.30.8"], [EVIL], ["--cluster", EVIL]],
    "policy rules from-config": [["EVIL.yaml"], [EVIL], ["EVIL.json", "--profile", EVIL]],
    "policy rules prove": [["EVIL.yaml"], ["kube-1.35", "--never", EVIL]],
    "policy rules coverage": [["--cluster", EVIL], [EVIL]],
    "policy rules schema": [[]],
    "policy env create": [[EVIL, "--cluster", EVIL], [EVIL + "x", "--cluster", EVIL]],
    "policy env list": [[]],
    "policy env show": [[EVIL]],
    "policy env use": [["plain"], [EVIL], [EVIL + "?"]],
    "policy env activate": [[EVIL, "kube-1.20", "--reason", EVIL], [EVIL, EVIL, "--reason", "x"]],
    "policy env scheduler": [["plain"], [EVIL], [EVIL, "--config", "EVIL.yaml"]],
    "policy env rollback": [[EVIL, "--reason", EVIL]],
    "policy serve": [["--environment", EVIL + "?"], ["--host", EVIL], ["--tokens", EVIL]],
    "policy token create": [
        [EVIL, "--role", "viewer", "--tokens", "tokens.json"],
        ["x", "--role", "viewer", "--namespaces", EVIL, "--tokens", "tokens.json"],
        ["x", "--role", "viewer", "--tokens", f"{EVIL}/{EVIL}"],
    ],
    "policy token list": [["--tokens", EVIL]],
    "policy token revoke": [[EVIL, "--tokens", EVIL]],
    "policy db upgrade": [[]],
    "policy db downgrade": [[EVIL]],
    "policy db current": [[]],
    "policy db check": [[]],
    "policy db recount": [[]],
    "policy db partition": [[], ["--db", f"postgresql://{EVIL}@127.0.0.1:1/x"]],
    "policy db reader create": [[EVIL]],
    "policy db reader drop": [[EVIL]],
    "policy db prune": [["--older-than", "2027-01-01T00:00:00Z"], ["--older-than", EVIL]],
    "policy batch run": [["--cluster", EVIL], ["--rules", EVIL]],
    "policy batch sessions": [[], ["--cluster", EVIL]],
    "policy batch explain": [["1"], ["1", "--job", EVIL], [EVIL]],
    "policy batch replay": [["1"], [EVIL]],
    "policy batch compare": [["1", "--rules", "batch-safe"], ["1", "--rules", EVIL], [EVIL]],
    "policy batch what-if": [["--remove-node", EVIL, "--cluster", EVIL], ["--file", EVIL]],
    "policy conform": [["EVIL.json"], [EVIL]],
}
"""Command lines by command, some right and some wrong; EVIL in capitals stands for files."""


@pytest.fixture
def hostile(tmp_path: Path, policy: Policy) -> Path:
    """A folder with a database and files in which whatever can have a name has a hostile one."""
    database = str(tmp_path / "policy.db")
    parts = objects(
        a_node(EVIL).cpu(4).labelled({EVIL: EVIL}).running(_pod("low").priority(1).cpu(4)),
        a_node(f"{EVIL}2").cpu(4).tainted(EVIL, EVIL),
        _pod("high").priority(100).cpu(2),
        a_pdb(EVIL).in_namespace(EVIL).selecting({"a": EVIL}).allowing(0),
        batch.a_queue(EVIL),
        *batch.a_gang(f"{EVIL}gang", queue=EVIL, on=[EVIL], waiting=9, cpu=1),
    )
    with Store.open(database) as store:
        store.record.import_objects(EVIL, parts, at_ms=NOW_MS, source=EVIL, actor=EVIL)
        store.record.create_environment(EVIL, EVIL, at_ms=NOW_MS, actor=EVIL)
        store.record.create_environment("plain", EVIL, at_ms=NOW_MS, actor=EVIL)
    for name in (EVIL, "plain"):
        done = policy("env", "activate", name, "kube-1.35", "--reason", EVIL, "--db", database)
        assert done.status == 0, done.err
    assert policy("preempt", HIGH, "--env", EVIL, "--now", NOW, "--db", database).status == 0
    assert policy("batch", "run", "--cluster", EVIL, "--now", NOW, "--db", database).status == 0
    _files(tmp_path)
    return tmp_path


def _pod(name: str):
    return a_pod(f"{EVIL}{name}").in_namespace(EVIL).labelled({"a": EVIL})


def _files(folder: Path) -> None:
    name = EVIL.replace("/", "")
    rule = {"id": "keep", "when": "victim.labels['a'] == 'x'", "verdict": "deny", "why": EVIL}
    content = {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "extends": "kube-1.35",
        "metadata": {"name": "evil", "description": EVIL},
        "spec": {"victims": {"eligible": {"prepend": [rule]}}},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(content))
    (folder / "BAD.yaml").write_text(json.dumps({**content, "kind": EVIL, EVIL: EVIL}))
    pod = {"kind": "Pod", "metadata": {"name": EVIL, "namespace": EVIL}, "spec": EVIL}
    (folder / f"{name}.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    (folder / name).mkdir()
    (folder / name / "loop.json").symlink_to("loop.json")


def test_every_command_is_tried() -> None:
    """A new command has its place in the table above."""
    found = {ctx.command_path for ctx, c in docs.commands() if not isinstance(c, click.Group)}
    assert set(COMMANDS) == found


@pytest.mark.parametrize("path", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(
    hostile: Path, policy: Policy, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output and errors hold only characters that show themselves, and no forged line."""
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("POLICY_DB", "policy.db")
    for arguments in COMMANDS[path]:
        named = [
            a.replace("EVIL", f"./{EVIL}") if a in ("EVIL", "EVIL.json", "EVIL.yaml") else a
            for a in arguments
        ]
        done = policy(*path.split()[1:], *named)
        lines = re.sub(r"[\xa0\u202f]", " ", done.out + done.err).split("\n")  # within numbers
        assert [line for line in lines if not is_printable(line)] == [], named
        assert [line for line in lines if line.lstrip().startswith("fake")] == [], named
        assert lines != [""], named


@pytest.mark.parametrize("form", ["json", "yaml", "jsonl"])
def test_documents_keep_the_name(hostile: Path, policy: Policy, form: str) -> None:
    """Programs read the name as it is; a terminal does not."""
    import yaml

    done = policy("decisions", "--db", hostile / "policy.db", "-o", form)
    assert [line for line in done.out.split("\n") if not is_printable(line)] == []
    read = yaml.safe_load(done.out) if form == "yaml" else json.loads(done.out)
    [row] = read if isinstance(read, list) else [read]
    assert (row["preemptor"], row["node"]) == (HIGH, EVIL)


def test_the_page_holds_no_markup_of_others(hostile: Path, policy: Policy) -> None:
    """A name with a tag is text on the page of a comparison."""
    done = policy(
        *("compare", "--rules", "kube-1.20", "--cluster", EVIL, "--db", hostile / "policy.db"),
        *("-o", "html"),
    )
    assert done.status == 0
    assert "[red]<b>" not in done.out
    assert "[red]&lt;b&gt;" in done.out


def test_csv_marks_formulas(policy: Policy, tmp_path: Path) -> None:
    """Texts get an apostrophe, numbers none; --raw leaves both."""
    Store.open(str(tmp_path / "policy.db")).close()
    query = "SELECT '=1+1' AS \"=a\", -5 AS n, '-5' AS t"
    arguments = ("sql", query, "--db", tmp_path / "policy.db", "-o", "csv")
    assert policy(*arguments).out == "'=a,n,t\n'=1+1,-5,'-5\n"
    assert policy(*arguments, "--raw").out == "=a,n,t\n=1+1,-5,-5\n"


def test_exported_tables_mark_formulas(policy: Policy, tmp_path: Path) -> None:
    """Whole tables as files are written by the same rule."""
    database = str(tmp_path / "policy.db")
    with Store.open(database) as store:
        store.record.import_objects("=c", objects(a_node("n")), at_ms=NOW_MS, source="")
    found = []
    for folder, more in (("marked", []), ("raw", ["--raw"])):
        arguments = ("export", "--table", "clusters", "-o", tmp_path / folder, "--db", database)
        assert policy(*arguments, *more).status == 0
        row = (tmp_path / folder / "clusters.csv").read_text().splitlines()[1]
        found.append(row.split(",")[1])
    assert found == ["'=c", "=c"]
