"""Files that a rule file stands on and that are not there: what may be meant is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.rules import RulesError, RuleSet

HEAD = "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: top}\n"


def told(source: str | Path, within: Path | None = None) -> list[tuple[str, str]]:
    """Message and help of everything that is wrong."""
    with pytest.raises(RulesError) as caught:
        RuleSet.load(source, within=within)
    return [(problem.message, problem.help) for problem in caught.value.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A rule file `base-line.yaml`, a folder `own/` of one, and a file that is none."""
    made = tmp_path / "rules"
    (made / "own").mkdir(parents=True)
    for file in ("base-line.yaml", "own/rules.yaml"):
        (made / file).write_text(f"{HEAD}extends: kube-1.36\n")
    (made / "secrets.yaml").write_text("kind: Secret\n")
    return made


@pytest.mark.parametrize(
    ("links", "message", "advice"),
    [
        (
            "extends: base-lin.yaml",
            "cannot extend `base-lin.yaml`: no such file or folder",
            "did you mean `./base-line.yaml`?",
        ),
        (
            "extends: ./base_line.yml",
            "cannot extend `./base_line.yml`: no such file or folder",
            "did you mean `./base-line.yaml`?",
        ),
        (
            "extends: base-line",
            "cannot extend `base-line`: no shipped rule set `base-line`",
            "did you mean `./base-line.yaml`?",
        ),
        (
            "extends: ../rules/owm",
            "cannot extend `../rules/owm`: no such file or folder",
            "did you mean `../rules/own`?",
        ),
        (
            "{extends: kube-1.36, include: [own]}",
            "cannot include `own`: no shipped rule set `own`",
            "did you mean `./own`?",
        ),
        (
            "extends: environments/prd",
            "cannot extend `environments/prd`: no such file or folder",
            "did you mean `environments/prod`?",
        ),
        (
            "extends: ./shared/base.yaml",
            "cannot extend `./shared/base.yaml`: no such file or folder",
            "there is no folder `{folder}/shared`",
        ),
        # What is no rule file is not named, nor what is far from the name.
        (
            "extends: ./secret.yaml",
            "cannot extend `./secret.yaml`: no such file or folder",
            "",
        ),
        ("extends: ./x.yaml", "cannot extend `./x.yaml`: no such file or folder", ""),
    ],
)
def test_what_may_be_meant(folder: Path, links: str, message: str, advice: str) -> None:
    """A file beside, as it would be written there; a shipped one; or the folder that is missing."""
    lines = links.strip("{}").replace(", include", "\ninclude")
    (folder / "top.yaml").write_text(f"{HEAD}{lines}\n")
    assert told(folder / "top.yaml") == [(message, advice.format(folder=folder))]


def test_what_is_named_on_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the file that is asked for."""
    monkeypatch.chdir(folder)
    assert [told(name) for name in ("base-line", "./bas-line.yaml", "environments/stagin")] == [
        [("no shipped rule set `base-line`", "did you mean `./base-line.yaml`?")],
        [("no such file or folder", "did you mean `./base-line.yaml`?")],
        [("no such file or folder", "did you mean `environments/staging`?")],
    ]


def test_nothing_outside_of_the_folder_is_named(folder: Path) -> None:
    """A file that may not be read is not known either."""
    (folder / "own" / "top.yaml").write_text(f"{HEAD}extends: ../base-lin.yaml\n")
    ((message, advice),) = told(folder / "own" / "top.yaml", within=folder / "own")
    assert ("is outside of the rules folder" in message, "base-line" in advice) == (True, False)


def test_links_are_among_the_known_keys(folder: Path) -> None:
    """A key that is like one of them, and one that is like none."""
    for key, advice in (
        ("extend", "did you mean `extends`?"),
        ("base", "known: `apiVersion`, `kind`, `metadata`, `spec`, `extends`, `include`"),
    ):
        (folder / "top.yaml").write_text(f"{HEAD}{key}: kube-1.36\n")
        assert (f"unknown key `{key}`", advice) in told(folder / "top.yaml")
