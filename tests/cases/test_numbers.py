"""Numbers of the record as limited tokens see them: a permutation that tells nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from policy.server.config import Config
from policy.server.security.access import LOCAL, Access, Principal
from policy.server.security.numbers import Numbered, Numbers
from policy.server.security.tokens import Role, TokenFile

KEY = bytes(range(32))
NUMBERS = Numbers(KEY)
LEAST, BEYOND = 1 << 52, 1 << 53


@given(of=st.sampled_from(Numbered), number=st.integers(0, LEAST - 1))
def test_every_number_is_found_by_what_it_is_shown_as(of: Numbered, number: int) -> None:
    """And that is no number of the record, and an integer that JSON readers keep."""
    shown = NUMBERS.shown(of, number)
    assert (LEAST <= shown < BEYOND, NUMBERS.actual(of, shown)) == (True, number)


@given(of=st.sampled_from(Numbered), shown=st.integers(LEAST, BEYOND - 1))
def test_nothing_is_shown_for_two(of: Numbered, shown: int) -> None:
    number = NUMBERS.actual(of, shown)
    assert number is not None
    assert NUMBERS.shown(of, number) == shown


@pytest.mark.parametrize("given", [0, 1, LEAST - 1, BEYOND, 10**18])
def test_a_number_that_is_never_shown_is_nothing(given: int) -> None:
    assert NUMBERS.actual(Numbered.DECISION, given) is None


def test_what_is_shown_is_kept_by_links() -> None:
    """Links that people kept lead to the same: these figures may not change."""
    assert {of: NUMBERS.shown(of, 1) for of in Numbered} == {
        Numbered.DECISION: 6_975_885_065_988_134,
        Numbered.SESSION: 4_875_121_085_325_077,
        Numbered.OBSERVATION: 6_728_967_645_296_327,
        Numbered.REVISION: 6_037_526_586_173_861,
    }


def test_neighbours_are_far_apart() -> None:
    """Neither order nor distance is to be seen, and each bit changes for half of them."""
    shown = [NUMBERS.shown(Numbered.DECISION, n) for n in range(4_000)]
    pairs = list(pairwise(shown))
    assert 0.45 < sum(a < b for a, b in pairs) / len(pairs) < 0.55
    changed = [sum((a ^ b) >> bit & 1 for a, b in pairs) / len(pairs) for bit in range(52)]
    assert (min(changed) > 0.45, max(changed) < 0.55) == (True, True)
    assert min(abs(a - b) for a, b in pairs) > 1 << 30


def test_another_key_shows_others() -> None:
    other = Numbers(KEY[::-1])
    assert other.shown(Numbered.DECISION, 1) != NUMBERS.shown(Numbered.DECISION, 1)


def test_the_same_number_is_another_one_elsewhere() -> None:
    """That two clusters were changed as often is not to be seen."""
    shown = {
        cluster: NUMBERS.shown(Numbered.REVISION, 7, within=cluster) for cluster in ("", "a", "b")
    }
    assert len(set(shown.values())) == 3
    assert {
        cluster: NUMBERS.actual(Numbered.REVISION, number, within=cluster)
        for cluster, number in shown.items()
    } == dict.fromkeys(shown, 7)


def test_who_sees_what(tmp_path: Path) -> None:
    """A limited token finds a thing by the number that it is shown, other tokens by either.

    A service without tokens has the numbers of the record only.
    """
    path = tmp_path / "tokens.json"
    file = TokenFile(path)
    access = {}
    for name, namespaces in (("all", None), ("own", ["shop"])):
        secret = file.create(name, Role.VIEWER, namespaces=namespaces, now_ms=1)
        headers = [(b"authorization", f"Bearer {secret}".encode())]
        request = Request({"type": "http", "headers": headers})
        found = Access(Config(db="unused.db", tokens=path), clock=lambda: 1).principal(request)
        assert found is not None
        access[name] = found
    shown = Numbers(file.read()[1]).shown(Numbered.SESSION, 7)

    def sees(who: Principal) -> tuple[object, ...]:
        of = Numbered.SESSION
        given = (who.actual(of, 7), who.actual(of, shown), who.shown_to_limited(of, 7))
        return (who.shown(of, 7), *given)

    assert {name: sees(who) for name, who in access.items()} == {
        "all": (7, 7, 7, shown),
        "own": (shown, None, 7, None),
    }
    assert sees(LOCAL) == (7, 7, shown, None)
    assert "numbers" not in repr(access["own"])
