"""`rules lint` and `rules diff` of batch rules."""

from __future__ import annotations

from typing import Any

import pytest

from policy.batch import BatchRules
from policy.batch.diff import compare
from policy.batch.lint import BatchFinding, lint
from tests.cases.test_batch_safe import invoke


def rules(semantics: str, actions: str, *tiers: str, **flags: bool) -> BatchRules:
    """One tier per list of plugins; flags are those of every plugin named `gang`."""
    uses: list[Any] = [
        {"plugins": [{"name": n, **(flags if n == "gang" else {})} for n in tier.split()]}
        for tier in tiers
    ]
    return BatchRules.load(
        {
            "apiVersion": "policy/v1",
            "kind": "BatchRules",
            "metadata": {"name": "mine"},
            "spec": {"semantics": semantics, "actions": actions.split(), "tiers": uses},
        }
    )


WHOLE = "gang predicates proportion"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (rules("volcano", "enqueue allocate", WHOLE), []),
        (rules("kube-batch", "allocate", WHOLE), []),
        (rules("kube-batch", "allocate", "", WHOLE), [(BatchFinding.EMPTY_TIER, "")]),
        (
            rules("kube-batch", "allocate", f"{WHOLE} gang"),
            [(BatchFinding.LISTED_TWICE, "gang")],
        ),
        (
            rules("volcano", "allocate", WHOLE, enableNodeOrder=False),
            [(BatchFinding.FLAG_WITHOUT_EFFECT, "gang")],
        ),
        (
            rules("kube-batch", "preempt reclaim", "gang predicates", "drf proportion"),
            [(BatchFinding.NOT_CONSULTED, "drf"), (BatchFinding.NOT_CONSULTED, "proportion")],
        ),
        (
            rules("volcano", "preempt reclaim", "gang predicates", "drf proportion"),
            [],
        ),
        (
            rules("volcano", "preempt shuffle", "predicates proportion"),
            [
                (BatchFinding.IDLE_ACTION, "preempt"),
                (BatchFinding.IDLE_ACTION, "preempt"),
                (BatchFinding.IDLE_ACTION, "shuffle"),
                (BatchFinding.NO_GANG, ""),
            ],
        ),
        (
            rules("volcano", "allocate", f"{WHOLE} overcommit"),
            [(BatchFinding.IDLE_PLUGIN, "overcommit")],
        ),
        (
            rules("volcano", "allocate", "gang"),
            [(BatchFinding.NO_PREDICATE, ""), (BatchFinding.NO_DIVISION, "")],
        ),
        (
            rules("volcano", "allocate", f"{WHOLE} capacity"),
            [(BatchFinding.TWO_DIVISIONS, "")],
        ),
    ],
)
def test_what_is_hardly_meant_is_found(
    found: BatchRules, expected: list[tuple[BatchFinding, str]]
) -> None:
    """Each kind of finding, with the plugin or action that it is about."""
    assert [(warning.finding, warning.rule) for warning in lint(found, "mine")] == expected


def test_what_was_left_out_of_a_configuration_is_found() -> None:
    """What a file asks for in vain is a finding, too."""
    text = 'actions: "enqueue, allocate"\ntiers:\n- plugins: [{name: gang}, {name: usage}]\n'
    found = lint(BatchRules.load(text), "conf")
    assert (BatchFinding.NOT_MODELLED, "plugin usage") in [(w.finding, w.rule) for w in found]


def test_the_command_says_so() -> None:
    """Place, message, kind and advice; the exit status is that of other rules."""
    assert invoke("rules", "lint", "volcano") == (0, "", "0 findings\n")
    status, out, _ = invoke("rules", "lint", "batch-safe")
    assert (status, out) == (
        1,
        "batch-safe: `drf` has no say about victims of `preempt`: tier 1 decides alone"
        " (not-consulted)\n  help: put it into tier 1, or leave it where only its orders count\n",
    )


def test_differences_are_named_in_the_order_of_a_file() -> None:
    """Actions, plugins and their places, flags, options: each once, and nothing that only moved."""
    found = compare(BatchRules.load("kube-batch-sample"), BatchRules.load("batch-safe"))
    assert [change.words for change in found] == [
        "`actions`: reclaim, allocate, backfill, preempt before,"
        " now allocate, backfill, preempt, reclaim",
        "plugin `proportion` moves from tier 2, place 3 to tier 1, place 4",
        *(
            f"`{option}`: false before, now true"
            for option in ("keepGangs", "fitFirst", "rollBack", "countRoom")
        ),
    ]
    assert compare(BatchRules.load("volcano"), BatchRules.load("volcano")) == ()


def test_plugins_come_and_go_with_what_they_are_given() -> None:
    """A plugin that is gone takes its flags with it; one that is new says what is not default."""
    old = rules("volcano", "enqueue allocate", WHOLE)
    new = rules("volcano", "enqueue allocate", "gang predicates capacity", enablePreemptable=False)
    assert [(c.kind.value, c.section, c.rule, c.words) for c in compare(old, new)] == [
        (
            "added",
            "plugins",
            "gang enablePreemptable",
            "`enablePreemptable` of `gang`: the default before, now false",
        ),
        ("removed", "tiers", "proportion", "plugin `proportion` takes no part any more"),
        ("added", "tiers", "capacity", "plugin `capacity` takes part"),
    ]


def test_rules_of_two_kinds_are_not_compared() -> None:
    """A rule set and batch rules decide different things."""
    status, _, err = invoke("rules", "diff", "kube-batch", "kube-1.36")
    assert (status != 0, "nothing in common" in err) == (True, True)
