"""Which rule set decides like which version of Kubernetes."""

from __future__ import annotations

import pytest

from policy.rules.versions import VersionError, VersionRange, of_version, parse_version


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ((1, 13, 2), "kube-1.14"),
        ((1, 17, 0), None),
        ((1, 24, 9), "kube-1.20"),
        ((1, 28, 9), "kube-1.28"),
        ((1, 28, 10), "kube-1.28.10"),
        ((1, 29, 4), "kube-1.29.4"),
        ((1, 29, 5), "kube-1.29.10"),
        ((1, 29, 11), "kube-1.29"),
        ((1, 30, 6), "kube-1.30.6"),
        ((1, 30, 8), "kube-1.30"),
        ((1, 31, 2), "kube-1.31.2"),
        ((1, 31, 3), "kube-1.31"),
        ((1, 32, 0), "kube-1.32"),
        ((1, 33, 5), "kube-1.33"),
        ((1, 33, 6), "kube-1.33.6"),
        ((1, 34, 1), "kube-1.34.1"),
        ((1, 34, 2), "kube-1.34"),
        ((1, 35, 6), "kube-1.35"),
        ((1, 36, 2), "kube-1.36"),
        ((1, 37, 0), None),
    ],
)
def test_the_rule_set_of_a_version(version: tuple[int, int, int], name: str | None) -> None:
    """It is the one in whose range the version lies; there is none for what was never recorded."""
    found = of_version(version)
    assert (found.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.30.8", (1, 30, 8)),
        ("v1.30.8+k3s1", (1, 30, 8)),
        ("v1.29.3-eks-adc7111", (1, 29, 3)),
        (" 1.30 ", (1, 30, None)),
    ],
)
def test_versions_as_distributions_write_them(
    text: str, version: tuple[int, int, int | None]
) -> None:
    """What follows the numbers names the distribution and changes no decision."""
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "latest", "1", "1.2.3.4"])
def test_a_text_that_is_no_version_is_refused(text: str) -> None:
    """It is refused in the user's own words."""
    with pytest.raises(VersionError) as caught:
        parse_version(text)
    assert str(caught.value) == f"`{text}` is no version of Kubernetes"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (">=1.31.0 <1.31.3", "1.31.0 to 1.31.2"),
        (">=1.31.3 <1.32", "1.31.3 and later patches"),
        (">=1.19.0 <1.27", "1.19 to 1.26"),
        (">=1.32.0 <1.33", "1.32"),
    ],
)
def test_a_range_in_words(text: str, words: str) -> None:
    """A range reads as people speak of versions."""
    assert str(VersionRange.parse(text)) == words
