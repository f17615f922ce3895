"""No limit and no default is hidden: the help states it, and output that is cut says so."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from policy.cli import docs, options, period, state
from tests.acceptance.commands import NOW, Policy, a_node, a_pod

OPTIONS = [
    (ctx, param)
    for ctx, command in docs.commands()
    for param in command.params
    if isinstance(param, click.Option)
]

NARROWING = frozenset(
    {
        *("--since", "--until", "--around", "--namespace", "--node", "--pod", "--victim"),
        *("--preemptor", "--workload", "--verdict", "--confidence", "--origin", "--outcome"),
        *("--group", "--job", "--family", "--by", "--part", "--rule", "--rules", "--why-not"),
        "--show",
    }
)
"""Options that leave everything in where they are left out."""

ON_DEMAND = frozenset(
    {
        *("--anchors", "--head", "--from", "--public-key", "--sign-key", "--exec", "--file"),
        *("--every", "--at-least", "--never", "--same", "--save-case", "--require-proof"),
        *("--audit-log", "--client-ca", "--tls-cert", "--tls-key", "--listen", "--on-event"),
        *("--keep", "--write", "--param", "--namespaces", "--rules-root", "--config"),
        *("--pod-group", "--priority-class", "--remove-node", "--nodes", "--reader-url"),
    }
)
"""Options that ask for something which is not done, not checked or not supposed without them."""

SAID = re.compile(
    r"default|[Ww]ithout|where left out|[Ii]nstead|where .* not given|: 50\.|Stop after"
)


def named(option: click.Option) -> str:
    return max(option.opts, key=len)


@pytest.mark.parametrize(
    ("ctx", "option"), OPTIONS, ids=[f"{ctx.command_path} {named(o)}" for ctx, o in OPTIONS]
)
def test_the_help_states_the_default(ctx: click.Context, option: click.Option) -> None:
    """As `[default: ...]`; where there is none, it says what happens, or nothing does."""
    default = option.get_default(ctx)
    text = "".join(ctx.command.get_help(ctx).split())  # lines are broken at hyphens, too
    name = named(option)
    if option.is_flag or option.required:
        return
    if isinstance(default, str | int | float | Path | tuple) and default not in ("", ()):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        if isinstance(option.show_default, str):  # in words: as many as there are processors
            shown = f"({option.show_default})"
        assert f"default:{shown}".replace(" ", "") in text
        return
    assert name in NARROWING | ON_DEMAND or SAID.search(option.help or ""), (
        f"`{ctx.command_path} {name}`: say what happens without it"
    )


@pytest.mark.parametrize(
    ("ctx", "option"),
    [one for one in OPTIONS if "TIME" in (one[1].metavar or "")],
    ids=[f"{ctx.command_path} {named(o)}" for ctx, o in OPTIONS if "TIME" in (o.metavar or "")],
)
def test_every_time_is_read_in_one_place(ctx: click.Context, option: click.Option) -> None:
    """Which says as which instant a text was read, unless it is one; durations are no instants."""
    if named(option) in DURATIONS:
        return
    if named(option) == "--at" and "REVISION" in str(option.metavar):  # or a decision
        assert "options.instant(" in inspect.getsource(state)
        return
    assert option.callback in (options.instant, options.deciding_instant, period.bound)


DURATIONS = {"--interval", "--timeout"}


@pytest.mark.parametrize(
    "text",
    [
        *("1d", "2 hours ago", "now", "yesterday 14:02 Europe/Berlin"),
        "2026-10-25 02:30 Europe/Berlin",  # which the clock has no part in
    ],
)
def test_a_time_that_is_typed_in_words_is_echoed(policy: Policy, decided: str, text: str) -> None:
    """With the instant, in UTC; an instant that was typed as such is not."""
    done = policy("decisions", "--since", text, "--db", decided)
    assert re.match(rf"`{re.escape(text)}` is read as \S+Z \(UTC\)\n", done.err)
    exact = policy("decisions", "--since", NOW, "--db", decided)
    assert "is read as" not in exact.err


# --- lists ---------------------------------------------------------------------------------------

LISTS: dict[str, tuple[str, ...]] = {
    "policy decisions": ("decisions",),
    "policy groups": ("groups",),
    "policy who": ("who", "shop/Deployment/web"),
    "policy nominations": ("nominations",),
    "policy observed": ("observed",),
    "policy batch sessions": ("batch", "sessions"),
    "policy state revisions": ("state", "revisions"),
    "policy report thrash": ("report", "thrash"),
    "policy audit verify": ("audit", "verify"),
    "policy sql": ("sql", "outcomes"),
    "policy conform": ("conform",),
}
"""Every command with `--limit`, and how it is called."""


def test_every_command_with_a_limit_is_tested() -> None:
    """A new one belongs into `LISTS`."""
    found = {ctx.command_path for ctx, option in OPTIONS if named(option) == "--limit"}
    assert found == set(LISTS)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two of everything that lists show: revisions, decisions, evictions, nominations, sessions,
    cycles of pod groups.
    """
    from policy.cli.app import run

    folder = tmp_path_factory.mktemp("busy")
    database = str(folder / "policy.db")
    events: list[dict[str, Any]] = []
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    pods = []
    for i in (1, 2):
        low = a_pod(f"shop/web-{i}", f"n{i}", 0, 4, "2026-11-20T10:00:00Z")
        low["metadata"]["ownerReferences"] = [{**owner, "uid": "u"}]
        pods += [low, a_pod(f"bank/high-{i}", "", 100, 4)]
        events.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"e{i}", "namespace": "shop", "uid": f"e{i}"},
                "reason": "Preempted",
                "involvedObject": {"kind": "Pod", "namespace": "shop", "name": f"old-{i}"},
                "message": f"Preempted by bank/boss-{i} on node n{i}",
                "lastTimestamp": "2026-11-20T12:00:00Z",
            }
        )
    cordoned = a_node("n3", unschedulable=True)
    first, second = folder / "first.json", folder / "second.json"
    first.write_text(json.dumps({"kind": "List", "items": [a_node("n1"), a_node("n2"), *pods]}))
    second.write_text(json.dumps({"kind": "List", "items": [cordoned, *events]}))
    member = a_pod("bank/train-0", "", 100, 99)
    member["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    gang = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "bank"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}},
    }
    third = folder / "third.json"
    third.write_text(json.dumps({"kind": "List", "items": [gang, member]}))
    for arguments in (
        ("import", str(first)),
        ("import", str(second)),
        ("run", "--now", NOW),
        ("batch", "run", "--rules", "kube-batch-sample", "--anyway"),
        ("batch", "run", "--rules", "kube-batch-sample", "--anyway"),
        ("import", str(third)),
        *[("preempt", "--group", "bank/train", "--rules", "kube-1.36-groups", "--now", NOW)] * 2,
    ):
        run([*arguments, "--db", database])
    return database


@pytest.mark.parametrize(
    "command", [c for c in LISTS if c not in ("policy audit verify", "policy conform")]
)
def test_a_list_that_is_cut_says_so(policy: Policy, busy: str, command: str) -> None:
    """And how to see more; one that holds everything says nothing of it."""
    cut = policy(*LISTS[command], "--limit", 1, "--db", busy)
    whole = policy(*LISTS[command], "--limit", 50, "--db", busy)
    rows = {"policy sql": 1, "policy report thrash": 1}.get(command)
    assert "--limit shows more" not in whole.err
    if rows is None:
        assert "the newest 1; --limit shows more\n" in cut.err
        exact = policy(*LISTS[command], "--limit", count(whole.out, command), "--db", busy)
        assert "--limit shows more" not in exact.err


def count(table: str, command: str) -> int:
    """Rows of a table; evictions of `who` have a line each that begins with a time."""
    lines = table.splitlines()
    if command == "policy who":
        return sum(line.startswith("2026") for line in lines)
    return len(lines) - 2


def test_a_saved_query_says_that_it_has_more_rows(policy: Policy, busy: str) -> None:
    """In every form; with as many rows as there are, it says nothing."""
    for form in ("table", "csv", "json"):
        done = policy("sql", "who-preempts-whom", "--limit", 1, "--db", busy, "-o", form)
        assert "the first 1 rows; --limit shows more" in done.err
    whole = policy("sql", "who-preempts-whom", "--db", busy, "-o", "csv")
    rows = len(whole.out.splitlines()) - 1
    exact = policy("sql", "who-preempts-whom", "--limit", rows, "--db", busy, "-o", "csv")
    assert (whole.err, exact.err, exact.out) == ("", "", whole.out)


def test_an_observed_comparison_says_that_it_is_cut(policy: Policy, busy: str) -> None:
    """Sums over the newest ones are not sums over all."""
    done = policy("observed", "--compare", "--rules", "kube-1.36", "--limit", 1, "--db", busy)
    assert "the newest 1; --limit shows more\n" in done.err


# --- what is left out ----------------------------------------------------------------------------


def test_run_counts_the_pods_that_are_not_its_own(policy: Policy, tmp_path: Path) -> None:
    """Those of other schedulers, those that are held back, and those that are leaving."""
    other, held, leaving = (a_pod(f"shop/{name}", "", 0, 1) for name in ("a", "b", "c"))
    other["spec"]["schedulerName"] = "volcano"
    held["spec"]["schedulingGates"] = [{"name": "quota"}]
    leaving["metadata"]["deletionTimestamp"] = NOW
    dump, database = tmp_path / "c.json", tmp_path / "policy.db"
    items = [a_node("n1"), a_pod("shop/own", "", 0, 1), other, held, leaving]
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    policy("import", dump, "--db", database)
    done = policy("run", "--dry-run", "--now", NOW, "--db", database)
    assert done.err.splitlines()[0] == (
        "3 pending pods not in the queue of default-scheduler:"
        " 1 leaving already, 1 of scheduler volcano, 1 with scheduling gates"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("follow", "--hits", 2), "`--hits` means nothing without `--on-event`"),
        (("import", "x.json", "--scheduler-user", "me"), "means nothing without `--audit-log`"),
        (("import", "--audit-log", "x", "--prune"), "`--prune` means nothing beside audit logs"),
    ],
)
def test_an_option_without_effect_is_refused(
    policy: Policy, arguments: tuple[object, ...], said: str
) -> None:
    """It would otherwise be ignored without a word."""
    done = policy(*arguments, "--db", "none.db")
    assert (done.status, said in done.err) == (2, True)
