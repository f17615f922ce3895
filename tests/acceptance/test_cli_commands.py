"""The commands together: decisions out of a dump, found again, explained, queried."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from policy.cli.app import run
from policy.store import Store, migrate
from tests.acceptance.commands import NOW, Policy, a_node, a_pod
from tests.contract.filled import fill

# --- preempt and run -----------------------------------------------------------------------------


def test_preempt_decides_and_records(policy: Policy, dump: Path, database_url: str) -> None:
    """The pod with the later start leaves; decision, victim and nomination are in the database."""
    policy("import", dump, "--db", database_url)
    done = policy("preempt", "shop/high", "--now", NOW, "--db", database_url)
    assert done.status == 0
    assert done.out.splitlines()[0] == "shop/high (priority 100) preempts 1 pod on n1"
    assert "shop/b" in done.out
    assert done.err == (
        "decided by rule set kube-1.36, recorded as decision 1; `policy explain 1` says why\n"
    )
    query = (
        "SELECT d.preemptor, d.outcome, d.node, v.pod, v.evicted"
        " FROM decisions d JOIN victims v ON v.decision_id = d.id"
    )
    [row] = json.loads(
        policy("sql", "--trust-connection", query, "--db", database_url, "-o", "json").out
    )
    assert [*row.values()][:4] == ["shop/high", "preempt", "n1", "shop/b"]
    assert row["evicted"] in (True, 1)


def test_a_dry_run_changes_nothing(policy: Policy, dump: Path, database_url: str) -> None:
    """--dry-run gives the same decision and leaves no trace."""
    policy("import", dump, "--db", database_url)
    arguments = ("preempt", "shop/high", "--now", NOW, "--db", database_url, "-o", "json")
    dry = policy(*arguments, "--dry-run")
    assert dry.err == "decided by rule set kube-1.36; nothing was recorded (--dry-run)\n"
    assert policy("decisions", "--db", database_url).err == "nothing found\n"
    real = json.loads(policy(*arguments).out)
    before = json.loads(dry.out)
    assert before["digest"] == real["digest"]
    for name in ("victims", "rules", "filters", "candidates", "checks", "ranking", "effects"):
        left = [{**v, "evicted": None} for v in before[name]] if name == "victims" else before[name]
        right = [{**v, "evicted": None} for v in real[name]] if name == "victims" else real[name]
        assert left == right, name


def test_run_decides_in_queue_order(policy: Policy, dump: Path, database_url: str) -> None:
    """The higher priority comes first, and the lower one may not use the room held for it."""
    policy("import", dump, "--db", database_url)
    done = policy("run", "--now", NOW, "--db", database_url, "-o", "json")
    found = [(d["id"], d["preemptor"], d["outcome"], d["node"]) for d in json.loads(done.out)]
    assert found == [(1, "shop/high", "preempt", "n1"), (2, "shop/low", "preempt", "n1")]
    assert done.err == "2 decisions made and recorded: 2 preempt\n"
    query = "SELECT pod FROM victims WHERE decision_id = 2 AND evicted"
    assert policy(
        "sql", "--trust-connection", query, "--db", database_url, "-o", "csv"
    ).out.split() == ["pod", "shop/a"]


def test_run_prints_lines_as_it_goes(policy: Policy, dump: Path, database_url: str) -> None:
    """JSON Lines and CSV hold one decision each, also in a dry run."""
    policy("import", dump, "--db", database_url)
    lines = policy("run", "--dry-run", "--db", database_url, "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [None, None]
    table = policy("run", "--dry-run", "--db", database_url, "-o", "csv").out
    assert [row["preemptor"] for row in csv.DictReader(io.StringIO(table))] == [
        "shop/high",
        "shop/low",
    ]
    assert policy("decisions", "--db", database_url).out == ""


def test_another_rule_set_decides_otherwise(policy: Policy, dump: Path, tmp_path: Path) -> None:
    """Swapping the rule file is all that another policy needs."""
    rules = tmp_path / "gentle.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nextends: kube-1.35\n"
        "metadata: {name: gentle}\nspec:\n  victims:\n    eligible:\n      insert:\n"
        "      - {before: lower-priority, rule: {id: keep-the-shop, verdict: deny,"
        " when: \"victim.namespace == 'shop'\", reason: not the shop, why: it earns the money}}\n"
    )
    database = tmp_path / "p.db"
    policy("import", dump, "--db", database)
    done = policy("preempt", "shop/high", "--rules", rules, "--db", database, "-o", "json")
    decision = json.loads(done.out)
    assert (decision["node"], decision["rule_set"]) == ("n2", "gentle")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["preempt", "x/y"],
            1,
            "no pod `x/y` in cluster `default`\n"
            "  help: `policy state show pods` lists all; without a node: 2\n",
        ),
        (
            ["preempt", "high"],
            1,
            "no pod `default/high` in cluster `default`\n  help: did you mean `shop/h",
        ),
        (
            ["preempt", "shop/hihg"],
            1,
            "no pod `shop/hihg` in cluster `default`\n  help: did you mean",
        ),
        (["preempt", "shop/a"], 1, "pod `shop/a` is on node `n1` already\n"),
        (["preempt", "shop/high", "--rules", "kube-9"], 1, "kube-9: no shipped rule set"),
        (["preempt", "shop/high", "--cluster", "other"], 1, "there is no cluster `other`"),
        (["explain", "77"], 1, "there is no decision"),
        (["explain", "1"], 1, "there is no decision"),
        (["sql", "DELETE FROM pods"], 1, "the query would change something"),
        (["sql", "SELECT nothing"], 1, ""),
        (["preempt", "shop/high", "--now", "soon"], 2, "Invalid value for '--now'"),
        (["decisions", "--since", "someday"], 2, "`someday`"),
        (["preempt"], 2, "Missing argument"),
        (["decision"], 2, "did you mean `policy decisions`?"),
        (["db", "downgrade", "9999"], 1, "there is no schema revision `9999`"),
    ],
)
def test_mistakes_are_messages(
    policy: Policy, dump: Path, tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    """A mistake ends with its documented status and a sentence, never with a traceback."""
    database = tmp_path / "p.db"
    policy("import", dump, "--db", database)
    own = [] if arguments == ["decision"] else ["--db", database]
    done = policy(*arguments, *own)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.err.strip()


def test_a_missing_database_is_named(policy: Policy, tmp_path: Path) -> None:
    """Commands that need decisions do not create an empty database."""
    database = tmp_path / "none.db"
    for arguments in (["decisions"], ["preempt", "a/b"], ["sql", "SELECT 1"], ["db", "check"]):
        done = policy(*arguments, "--db", database)
        assert (done.status, done.err.splitlines()[0]) == (
            1,
            f"there is no database at `{database}`",
        )
    assert not database.exists()


def test_the_environment_names_the_database(
    policy: Policy, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """POLICY_DB stands for --db, and policy.db in the working folder for neither."""
    monkeypatch.chdir(tmp_path)
    policy("import", dump)
    assert (tmp_path / "policy.db").exists()
    monkeypatch.setenv("POLICY_DB", str(tmp_path / "named.db"))
    policy("import", dump)
    assert (tmp_path / "named.db").exists()


# --- decisions and explain -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], True),
        (["--outcome", "preempt"], True),
        (["--outcome", "bind"], False),
        (["--namespace", "shop"], True),
        (["--namespace", "bank"], False),
        (["--node", "n1"], True),
        (["--node", "n2"], False),
        (["--rules", "kube-1.36"], True),
        (["--rules", "kube-1.28"], False),
        (["--since", "2026-11-20", "--until", "2026-11-22T00:00:00+01:00"], True),
        (["--since", NOW], True),
        (["--until", NOW], False),
        (["--cluster", "default"], True),
    ],
)
def test_decisions_are_filtered(
    policy: Policy, decided: str, options: list[str], found: bool
) -> None:
    """Each filter keeps what it names and nothing else."""
    done = policy("decisions", *options, "--db", decided, "-o", "json")
    assert [d["preemptor"] for d in json.loads(done.out)] == (["shop/high"] if found else [])


def test_the_newest_decisions_come_first(policy: Policy, decided: str) -> None:
    """A list is cut at the limit, and says that there may be more."""
    policy("run", "--now", NOW, "--db", decided)
    every = json.loads(policy("decisions", "--db", decided, "-o", "json").out)
    assert [d["id"] for d in every] == [3, 2, 1]
    done = policy("decisions", "--limit", "1", "--db", decided, "-o", "csv")
    assert done.out.splitlines()[1].startswith("3,")
    assert done.err == "the newest 1; --limit shows more\n"


def test_explain_tells_the_whole_story(policy: Policy, decided: str) -> None:
    """Rule, filters, candidates with every criterion, victims, reprieve and effects are shown."""
    text = policy("explain", "1", "--db", decided).out
    for part in (
        "decision 1: shop/high preempts 1 pod on n1",
        "kube-1.36 sha256:",
        "otherwise",
        "Insufficient cpu",
        "node(s) were unschedulable",
        "Candidates: 2 kept of 2, decided by lowest-top-priority",
        "fewest-pdb-violations",
        "latest-start",
        "2026-11-20T11:00:00Z",
        "shop/b",
        "resources: Insufficient cpu",
        "Reprieved",
        "shop/a",
        "evicted: shop/b",
        "nominated to n1",
    ):
        assert part in text, part
    assert max(len(line) for line in text.splitlines()) < 400


def test_explain_goes_on_without_the_rules(policy: Policy, database_url: str) -> None:
    """Where this version cannot read them, candidates have the values that are recorded."""
    with Store.open(database_url) as store:
        fill(store)
    done = policy("explain", "1", "--db", database_url)
    told = (
        "the rule set is gone, or this version cannot read it: which values of candidates are times"
        " is not known, and they are shown in milliseconds since 1970\n"
    )
    assert (done.status, done.err) == (0, told)
    assert "Candidates: 2 kept of 2, decided by fewest-pdb-violations" in done.out
    assert done.out.endswith("  nominated to n1\n")


def test_explain_for_programs(policy: Policy, decided: str) -> None:
    """JSON and YAML hold everything, CSV the candidates; a digest finds the decision too."""
    whole = json.loads(policy("explain", "1", "--db", decided, "-o", "json").out)
    assert yaml.safe_load(policy("explain", "1", "--db", decided, "-o", "yaml").out) == whole
    by_digest = policy("explain", whole["digest"][:20], "--db", decided, "-o", "json")
    assert json.loads(by_digest.out) == whole
    assert whole["now"] == NOW
    assert [c["node"] for c in whole["candidates"]] == ["n1", "n2"]
    assert whole["candidates"][1]["eliminated_by"] == "lowest-top-priority"
    assert whole["effects"]["evict"] == ["shop/b"]
    rows = list(
        csv.DictReader(io.StringIO(policy("explain", "1", "--db", decided, "-o", "csv").out))
    )
    assert [(row["node"], row["lowest-top-priority"], row["victims"]) for row in rows] == [
        ("n1", "0", '["shop/b"]'),
        ("n2", "5", '["bank/c"]'),
    ]


@pytest.mark.parametrize(
    ("node", "answer", "text"),
    [
        ("n1", "chosen", "n1 was chosen"),
        (
            "n2",
            "fell-behind",
            "n2 (bank/c would leave) fell behind n1 at `lowest-top-priority`: 5 against 0",
        ),
        (
            "n3",
            "not-helped",
            "n3: no pod on it may be evicted; bank/d stays: higher priority than 100",
        ),
        (
            "n4",
            "filtered",
            "n4: it fails a filter: node-unschedulable: node(s) were unschedulable,"
            " which no preemption can help",
        ),
    ],
)
def test_why_not(policy: Policy, decided: str, node: str, answer: str, text: str) -> None:
    """Every node that was not chosen has a reason, also where the store kept no row of it."""
    done = policy("explain", "1", "--why-not", node, "--db", decided)
    assert (done.status, done.out) == (0, text + "\n")
    found = json.loads(policy("explain", "1", "--why-not", node, "--db", decided, "-o", "json").out)
    assert found["answer"] == answer


def test_why_not_looks_beyond_the_kept_candidates(
    policy: Policy, dump: Path, tmp_path: Path
) -> None:
    """Where only the chosen candidate is kept, the decision is made again to answer."""
    rules = tmp_path / "brief.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nextends: kube-1.35\n"
        "metadata: {name: brief}\nspec: {audit: {candidates: chosen}}\n"
    )
    database = tmp_path / "p.db"
    policy("import", dump, "--db", database)
    policy("preempt", "shop/high", "--rules", rules, "--db", database)
    whole = json.loads(policy("explain", "1", "--db", database, "-o", "json").out)
    assert [c["node"] for c in whole["candidates"]] == ["n1"]
    done = policy("explain", "1", "--why-not", "n2", "--db", database)
    assert done.out == (
        "n2 (bank/c would leave) fell behind n1 at `lowest-top-priority`: 5 against 0\n"
    )
    unknown = policy("explain", "1", "--why-not", "n-2", "--db", database)
    assert unknown == (
        1,
        "",
        "no node `n-2` in the state of this decision\n  help: did you mean `n2`?\n",
    )


def test_why_not_where_the_pod_fits(policy: Policy, dump: Path, tmp_path: Path) -> None:
    """A node that passes the filters too lost to the one that was taken."""
    database = tmp_path / "p.db"
    empty = [a_node("e1"), a_node("e2"), a_node("e3", unschedulable=True)]
    dump.write_text(json.dumps([*empty, a_pod("shop/new", "", 1, 1)]))
    policy("import", dump, "--db", database)
    policy("preempt", "shop/new", "--db", database)
    assert policy("explain", "1", "--why-not", "e2", "--db", database).out == (
        "e2: it passes all filters too; the pod was placed on e1: equal scores (454), the first by"
        " name is taken\n"
    )
    assert policy("explain", "1", "--why-not", "e3", "--db", database).out == (
        "e3: it fails a filter: node-unschedulable: node(s) were unschedulable\n"
    )


# --- sql, rules, db, conform ------------------------------------------------------------------


def test_sql_prints_what_the_database_says(policy: Policy, decided: str) -> None:
    """Columns keep the query's names and order, in every form; equal names stay apart."""
    query = "SELECT preemptor, node, preemptor FROM decisions"
    done = policy("sql", "--trust-connection", query, "--db", decided, "-o", "csv")
    assert done.out == "preemptor,node,preemptor_2\nshop/high,n1,shop/high\n"
    [row] = json.loads(
        policy("sql", "--trust-connection", query, "--db", decided, "-o", "json").out
    )
    assert list(row.items()) == [
        ("preemptor", "shop/high"),
        ("node", "n1"),
        ("preemptor_2", "shop/high"),
    ]
    assert policy("sql", "--trust-connection", query, "--db", decided).out.splitlines()[
        2
    ].split() == [
        "shop/high",
        "n1",
        "shop/high",
    ]


@pytest.mark.parametrize("form", ["json", "jsonl", "yaml"])
def test_sql_prints_numbers_that_json_does_not_have_as_texts(
    policy: Policy, decided: str, form: str
) -> None:
    """What is printed is JSON for a strict reader: infinity and `NaN` are texts."""

    def never(constant: str) -> None:
        raise ValueError(constant)

    if decided.startswith("sqlite"):
        query, expected = "SELECT 9e999 AS a, -9e999 AS b", {"a": "Infinity", "b": "-Infinity"}
    else:
        query = "SELECT 'inf'::float8 AS a, '-inf'::float8 AS b, 'nan'::float8 AS c"
        expected = {"a": "Infinity", "b": "-Infinity", "c": "NaN"}
    out = policy("sql", "--trust-connection", query, "--db", decided, "-o", form).out
    found = yaml.safe_load(out) if form == "yaml" else json.loads(out, parse_constant=never)
    assert found == (expected if form == "jsonl" else [expected])


def test_sql_streams_long_results(policy: Policy, decided: str) -> None:
    """A long result is printed whole, with one heading."""
    query = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 2500)"
        " SELECT n FROM t"
    )
    lines = policy(
        "sql", "--trust-connection", query, "--db", decided, "-o", "csv"
    ).out.splitlines()
    assert lines == ["n", *map(str, range(1, 2501))]


def test_sql_without_rows_keeps_the_heading(policy: Policy, decided: str) -> None:
    """A program that reads CSV finds the columns of an empty result."""
    query = "SELECT id, node FROM decisions WHERE id < 0"
    assert (
        policy("sql", "--trust-connection", query, "--db", decided, "-o", "csv").out == "id,node\n"
    )


def test_long_values_are_whole_in_pipes(policy: Policy, decided: str) -> None:
    """Where no terminal limits the width, no cell is cut or folded."""
    digest = json.loads(policy("explain", "1", "--db", decided, "-o", "json").out)["digest"]
    query = "SELECT digest, digest, digest, digest, digest, digest FROM decisions"
    assert policy("sql", "--trust-connection", query, "--db", decided).out.count(digest) == 6


def test_rules_are_shown_as_they_are_used(policy: Policy, tmp_path: Path) -> None:
    """`rules show` prints a rule file with the same digest as what it shows."""
    shown = policy("rules", "show", "kube-1.28")
    copy = tmp_path / "copy.yaml"
    copy.write_text(shown.out)
    assert policy("rules", "show", copy).err == shown.err
    assert policy("rules", "diff", "kube-1.28", copy).err == "no difference\n"


def test_rules_commands(policy: Policy, tmp_path: Path) -> None:
    """list, explain, lint, diff and schema print what programs can read."""
    names = [r["name"] for r in json.loads(policy("rules", "list", "-o", "json").out)]
    assert "kube-1.35" in names
    rules = json.loads(policy("rules", "explain", "kube-1.35", "-o", "json").out)
    assert rules[0]["id"] == "policy-never"
    clean = policy("rules", "lint", "kube-1.35")
    assert (clean.status, clean.out, clean.err) == (0, "", "0 findings\n")
    odd = tmp_path / "odd.yaml"
    odd.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nextends: kube-1.35\nmetadata: {name: odd}\n"
        "spec:\n  ranking:\n    insert:\n    - before: by-name\n"
        "      rule: {id: again, minimize: candidate.victimCount}\n"
    )
    assert policy("rules", "diff", "kube-1.35", odd).err == "1 difference\n"
    found = policy("rules", "lint", odd, "-o", "json")
    assert found.status == 1
    assert json.loads(found.out)[0]["rule"] == "again"
    changes = json.loads(policy("rules", "diff", "kube-1.35", odd, "-o", "json").out)
    assert [(c["kind"], c["rule"]) for c in changes] == [("added", "again")]
    assert json.loads(policy("rules", "schema").out)["title"] == "PreemptionRules"


def test_a_broken_rule_file_is_shown_with_its_place(policy: Policy, tmp_path: Path) -> None:
    """Errors of rule files are printed as they are, exit status 1."""
    rules = tmp_path / "bad.yaml"
    rules.write_text("apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {nam: x}\nspec: {}\n")
    done = policy("rules", "lint", rules)
    assert done.status == 1
    assert f"{rules}:3:" in done.err


def test_an_old_database_is_upgraded_on_request_only(
    policy: Policy, dump: Path, tmp_path: Path, newer_program: Callable[[], str]
) -> None:
    """Commands refuse a database of an older schema and name the one that helps."""
    database = tmp_path / "p.db"
    policy("import", dump, "--db", database)
    assert policy("db", "check", "--db", database).status == 0
    newer_program()
    newest = json.loads(policy("db", "current", "--db", database, "-o", "json").out)
    assert newest == {"revision": migrate.REVISIONS[-2], "newest": "9000", "up_to_date": False}
    for arguments in (["decisions"], ["db", "check"], ["import", dump], ["run"]):
        done = policy(*arguments, "--db", database)
        assert done.status == 1
        assert done.err.splitlines()[-1] == "  help: run `policy db upgrade`"
    assert policy("db", "upgrade", "--db", database).err == f"schema {newest['newest']}\n"
    assert policy("db", "check", "--db", database).status == 0
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("DROP VIEW v_victims")
        connection.execute("DROP INDEX ix_pods_cluster_id_valid_from")
    done = policy("db", "check", "--db", database)
    assert (done.status, done.err) == (
        1,
        "add index ix_pods_cluster_id_valid_from\nview v_victims is missing\n",
    )


def test_conform_ends_with_the_numbers(policy: Policy) -> None:
    """The last line is the sum; the status is 0 only where nothing differs."""
    recording = Path(__file__).parents[1] / "data" / "conformance" / "kube-1.28.jsonl.gz"
    arguments = ("conform", recording, "--family", "taints,pdb", "--jobs", "1")
    same = policy(*arguments, "--rules", "kube-1.28")
    assert same == (0, "10 scenarios: 10 agree, 0 tie, 0 differ\n", "")
    other = policy(*arguments, "--rules", "kube-1.14")
    assert other.status == 1
    lines = other.out.splitlines()
    differing = [line.removesuffix(": differs") for line in lines if line.endswith(": differs")]
    assert differing
    assert lines[-1].startswith("10 scenarios: ")
    assert lines[-1].endswith(f"{len(differing)} differ")


def test_conform_for_programs(policy: Policy) -> None:
    """--json prints one object per scenario, then one with the numbers."""
    recording = Path(__file__).parents[1] / "data" / "conformance" / "kube-1.28.jsonl.gz"
    arguments = ("conform", recording, "--rules", "kube-1.28", "--limit", "3", "--jobs", "2")
    done = policy(*arguments, "--json")
    *results, numbers = [json.loads(line) for line in done.out.splitlines()]
    assert [r["verdict"] for r in results] == ["agree", "agree", "agree"]
    with gzip.open(recording) as lines:
        left_out = sum(1 for _ in lines) - 3
    assert numbers == {"scenarios": 3, "agree": 3, "tie": 0, "differ": 0, "left_out": left_out}
    assert done.err == (
        f"{left_out} scenarios left out; --limit takes more\n"
        "3 scenarios: 3 agree, 0 tie, 0 differ\n"
    )


def test_conform_without_a_limit_leaves_nothing_out(policy: Policy) -> None:
    """Nor with a limit that is not reached; with one, only scenarios of the families count."""
    recording = Path(__file__).parents[1] / "data" / "conformance" / "kube-1.28.jsonl.gz"
    arguments = ("conform", recording, "--rules", "kube-1.28", "--family", "taints,pdb")
    whole = policy(*arguments, "--jobs", "1", "--limit", "10")
    cut = policy(*arguments, "--jobs", "1", "--limit", "0")
    assert (whole.err, cut.out, cut.err) == (
        "",
        "0 scenarios: 0 agree, 0 tie, 0 differ\n",
        "10 scenarios left out; --limit takes more\n",
    )


def test_a_closed_pipe_is_no_error(dump: Path, tmp_path: Path) -> None:
    """`policy ... | head -1` ends quietly."""
    database = tmp_path / "p.db"
    assert run(["import", str(dump), "--db", str(database)]) == 0
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pods").fetchone() == (6,)
    query = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100000)"
        " SELECT n FROM t"
    )
    command = f'"{sys.executable}" -m policy sql "{query}" --db "{database}" -o csv | head -1'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n", "")
