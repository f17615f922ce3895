"""Options that mean nothing are refused, narrow terminals lose nothing, shells get proposals."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from policy.cli import output, streams
from policy.cli.app import run
from policy.cli.docs import commands
from policy.store import Store
from tests.acceptance.commands import Policy
from tests.support.builders import NOW_MS, a_node, objects


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run --max-cycles 3", "`--max-cycles` means nothing without `--settle`"),
        ("run --interval 3", "`--interval` means nothing without `--watch`"),
        (
            "run --watch --interval nan",
            "Invalid value for '--interval': `nan` is no number of seconds",
        ),
        ("serve --deadline nan", "Invalid value for '--deadline': `nan` is no number of seconds"),
        (
            "run --watch --now 2026-11-21T00:00:00Z",
            "`--now` means nothing beside `--watch`, which goes by the real clock",
        ),
        ("replay 1 --cluster a", "`--cluster` means nothing beside the numbers of decisions"),
        ("batch replay 1 --cluster a", "`--cluster` means nothing beside the numbers of sessions"),
        (
            "compare --rules kube-1.20 --show 1 --since 7d",
            "`--since` means nothing beside `--show`",
        ),
        ("compare --rules kube-1.20 --show 1 --jobs 2", "`--jobs` means nothing beside `--show`"),
        ("compare --rules kube-1.20 --show 1 -o html", "`--show` prints a table or JSON"),
        (
            "report thrash --part cascades --limit 3",
            "`--limit` means nothing beside `--part cascades`",
        ),
        ("report thrash --part pairs --within 3", "`--within` means nothing beside `--part pairs`"),
        (
            "state show --namespace a",
            "`--namespace` means nothing beside counts of all kinds; name a KIND",
        ),
        (
            "state show nodes --namespace a",
            "`--namespace` means nothing beside a Node, which has no namespace",
        ),
        (
            "state show pods a/b --namespace c",
            "`--namespace` means nothing beside `a/b`, which names another one",
        ),
        ("sql --list --limit 3", "`--limit` means nothing beside `--list`"),
        ("sql --list decisions", "`[QUERY|NAME|-]` means nothing beside `--list`"),
        ("sql SELECT~1 --limit 3", "the query has no parameter `limit`"),
        ("sql SELECT~':a' -p a=1", "the query has no parameter `a`"),
        ("sql SELECT~:a -p a=1 -p a=2", "Invalid value for '-p' / '--param': `a` is given twice"),
        ("sql SELECT~:limit -p limit=1 --limit 2", "`limit` is given twice"),
        (
            "what-if --priority-class a=1 --priority-class a=2",
            "Invalid value for '--priority-class': `a` is given twice",
        ),
        ("decisions --raw", "`--raw` is about the cells of CSV"),
        ("export -o x --format parquet --raw", "`--raw` is about the cells of CSV"),
    ],
)
def test_an_option_that_would_mean_nothing(policy: Policy, line: str, message: str) -> None:
    """Nothing that is typed is ignored in silence: the status is 2."""
    done = policy(*(word.replace("~", " ") for word in line.split()))
    told = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    assert (done.status, told) == (2, [f"Error: {message}"])


@pytest.mark.parametrize("group", [(), ("rules",)])
def test_a_group_without_a_command_says_which_there_are(
    policy: Policy, group: tuple[str, ...]
) -> None:
    done = policy(*group)
    assert (done.status, done.out) == (2, "")
    assert done.err == policy(*group, "--help").out


@pytest.mark.parametrize(
    "command", ["decisions", "groups", "batch sessions", "observed", "who a", "report observed"]
)
def test_an_end_before_the_beginning_is_refused(policy: Policy, command: str) -> None:
    """In whichever order they are given: the list would be empty."""
    ends = ("--since", "2026-11-22T00:00:00Z"), ("--until", "2026-11-21T00:00:00Z")
    said = [policy(*command.split(), *ends[i], *ends[1 - i]).err.splitlines()[-2:] for i in (0, 1)]
    assert (
        said
        == [
            [
                "Error: `--since` is later than `--until`",
                "  help: exchange them, or leave one out",
            ]
        ]
        * 2
    )


@pytest.mark.parametrize("line", ["serve", "decisions --since 14:00"])
def test_a_zone_that_is_none_is_said_with_its_variable(
    policy: Policy, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service says so when it starts: whoever reads its pages cannot mend it."""
    monkeypatch.setenv("POLICY_TZ", "Nope/Zone")
    done = policy(*line.split())
    assert (done.status, done.err.splitlines()[-2:]) == (
        2,
        [
            "Error: environment variable `POLICY_TZ`: `Nope/Zone` is not a time zone such as"
            " `Europe/Berlin`",
            "  help: set it to the name of a time zone, or unset it",
        ],
    )


class Terminal(io.StringIO):
    """A terminal that keeps what is written on it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "line",
    [
        "serve --host",
        "serve --environment",
        "serve --spool",
        "serve --tokens",
        "serve --token-uses",
        "serve --reader-url",
        "serve --follow --context",
        "follow --cluster",
        "follow --listen",
        "follow --on-event",
        "token list --tokens",
        "token create v --role viewer --tokens t --namespaces",
        "preempt a --env",
        "decisions --db",
    ],
)
def test_a_value_that_is_empty_is_refused(policy: Policy, line: str) -> None:
    """A variable of a shell that is not set makes one: `--host ""` would be every address."""
    option = line.rpartition(" ")[2]
    said = (
        f"Error: `{option}` is given without a value\n  help: give it one, or leave out `{option}`"
    )
    done = policy(*line.split(), "")
    assert (done.status, "\n".join(done.err.splitlines()[-2:])) == (2, said)


@pytest.mark.parametrize("names", ["a,,b", "a,", ",a", ","])
def test_no_namespace_is_left_out_unsaid(policy: Policy, names: str) -> None:
    """A name that a script left empty is no namespace that may be seen, nor one less."""
    line = ("token", "create", "v", "--role", "viewer", "--tokens", "t", "--namespaces", names)
    done = policy(*line)
    assert (done.status, done.err.splitlines()[-2:]) == (
        2,
        [
            f"Error: `--namespaces`: a name is missing beside a comma in `{names}`",
            "  help: separate the names by one comma each",
        ],
    )


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160, 240])
def test_a_narrow_terminal_loses_no_column(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are folded; where even that has no room, rows become lists of columns."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    columns = ("id", "now", "preemptor", "priority", "outcome", "node", "victims", "rule_set")
    row = {name: f"{name[:3].upper()}{'x' * (i * 4)}{i}" for i, name in enumerate(columns)}
    with streams.guarded():
        output.print_table([row, row], columns=columns)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())  # the headings are bold
    counts = {c: shown.count(c) for c in "x01234567"}
    assert counts == {"x": 2 * sum(i * 4 for i in range(8)), **dict.fromkeys("01234567", 2)}
    assert terminal.getvalue().startswith("id  ") == (width < 160)


def test_lists_name_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is too wide is read column by column; empty cells are left out."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    rows = [{"pod": "shop/a", "node": "a-long-name-of-a-node"}, {"pod": "shop/b", "node": None}]
    with streams.guarded():
        output.print_table(rows, columns=("pod", "node"))
    assert terminal.getvalue() == ("pod   shop/a\nnode  a-long-name-of-a-node\n\npod   shop/b\n")


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("policy run --rules kube-1.1", ["file,kube-1.1", "plain,kube-1.14"]),
        ("policy batch run --rules batch", ["file,batch", "plain,batch-safe"]),
        ("policy rules show protected", ["file,protected", "plain,protected"]),
        ("policy rules show batch", ["file,batch", "plain,batch-safe"]),
        ("policy env activate prod volcano-", ["file,volcano-", "plain,volcano-capacity"]),
        ("policy run --env ", ["plain,prod"]),
        ("policy env show p", ["plain,prod"]),
        ("policy decisions --cluster ", ["plain,default"]),
        ("policy decisions -o js", ["plain,json", "plain,jsonl"]),
        ("policy sql who", ["plain,who-preempts-whom"]),
        ("policy import c", ["file,c"]),
        ("policy run --db missing.db --env ", []),
    ],
)
def test_a_shell_gets_proposals(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    proposed: list[str],
) -> None:
    """Shipped names and files, and what is in the database; nothing that a shell would run."""
    monkeypatch.chdir(tmp_path)
    with Store.open("policy.db") as store:
        for name in ("default", "$(reboot)"):
            store.record.import_objects(name, objects(a_node("n")), at_ms=NOW_MS, source="")
        for name in ("prod", "`reboot`"):
            store.record.create_environment(name, "default", at_ms=NOW_MS, actor="")
    monkeypatch.setenv("_POLICY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    capsys.readouterr()
    assert run([]) == 0
    assert capsys.readouterr().out.split() == proposed


def test_a_shell_can_ask_about_every_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What proposes is named by a text: a wrong one would be a traceback in a prompt."""
    monkeypatch.chdir(tmp_path)
    for ctx, command in commands():
        for parameter in command.params:
            parameter.shell_complete(ctx, "k")
