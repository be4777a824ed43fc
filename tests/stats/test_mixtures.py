"""Workloads: the time of a pass, each member by itself, and how often both raise an alarm."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_modelperf.stats.decisions import RatioAnswer
from pytest_modelperf.stats.duet import DuetRule, judge_duet
from pytest_modelperf.stats.estimates import PairedTurns, paired_difference
from pytest_modelperf.stats.mixtures import judge_mixture, summarize_mixture
from pytest_modelperf.stats.records import Members, Mix, Turns
from tests.support.known import known

# A member that is most of the inferences, and a rare one that takes ten times as long.
MEMBERS = Members(("short", "long"), (9, 1))
SHORT_NS, LONG_NS = 100_000, 1_000_000
RULE = DuetRule(level=0.01)


def rounds_of(  # noqa: PLR0913  # each is one thing that rounds vary by
    count: int,
    *,
    seed: int = 0,
    slower: tuple[float, float] = (1.0, 1.0),
    noise: float = 0.01,
    sessions: float = 0.01,
    passes: int = 3,
    long_ns: int = LONG_NS,
) -> list[PairedTurns]:
    """Rounds of both sides; the second takes `slower` times as long, member by member."""
    random = np.random.default_rng(seed)
    turns = tuple([0] * 4 + [1] + [0] * 5) * passes
    pairs = []
    for _ in range(count):
        sides = []
        for factors in ((1.0, 1.0), slower):
            session = math.exp(sessions * random.normal())
            times = [
                round(
                    (SHORT_NS, long_ns)[place]
                    * factors[place]
                    * session
                    * math.exp(noise * abs(random.normal()))
                )
                for place in turns
            ]
            sides.append(Turns(times_ns=tuple(times), mix=Mix(MEMBERS, turns)))
        pairs.append((sides[0], sides[1]))
    return pairs


def test_a_pass_takes_each_member_as_often_as_its_weight_says() -> None:
    found = summarize_mixture([before for before, _ in rounds_of(6, noise=0.0, sessions=0.0)], 0.95)

    assert found is not None
    assert found.total_ns == 9 * 100_000 + 1_000_000
    assert found.mean.value_ns == pytest.approx(190_000)
    assert [member.p50.value_ns for member in found.members] == [100_000, 1_000_000]
    assert [member.share for member in found.members] == pytest.approx([9 / 19, 10 / 19])


def test_turns_of_one_kind_do_not_make_a_workload() -> None:
    plain = [Turns(times_ns=(1, 2, 3))]

    assert summarize_mixture(plain, 0.95) is None
    assert judge_mixture([(plain[0], plain[0])], RULE) is None


def test_a_member_that_never_ran_leaves_the_pass_unknown() -> None:
    short = Turns(times_ns=(5, 5), mix=Mix(MEMBERS, (0, 0)))

    assert summarize_mixture([short], 0.95) is None
    found = known(judge_mixture([(short, short)], RULE))
    assert found.members[1].decision.is_open
    assert found.members[1].before_ns is None


def test_a_rare_member_counts_by_its_share_of_the_time() -> None:
    """The median of all inferences does not move when one in ten takes twice as long."""
    (pair,) = rounds_of(1, slower=(1.0, 2.0), noise=0.0, sessions=0.0)

    assert paired_difference(pair) == pytest.approx(math.log(29 / 19))
    plain = (Turns(times_ns=pair[0].times_ns), Turns(times_ns=pair[1].times_ns))
    assert paired_difference(plain) == 0.0


def test_sides_may_run_members_in_any_order() -> None:
    (pair,) = rounds_of(1, slower=(1.1, 1.3), noise=0.0, sessions=0.0)
    turned = tuple(
        Turns(times_ns=side.times_ns[::-1], mix=Mix(MEMBERS, tuple(side.mix.turns[::-1])))
        for side in pair
        if side.mix is not None
    )

    assert paired_difference((turned[0], turned[1])) == pytest.approx(paired_difference(pair))


def test_a_slower_member_is_named_though_the_pass_is_within_its_tolerance() -> None:
    """A tenth more for a member with a twentieth of the time is half a percent of the pass."""
    found = judge_mixture(rounds_of(20, slower=(1.0, 1.1), long_ns=45_000), RULE, is_last=True)

    assert found is not None
    assert found.total.answer is not RatioAnswer.WORSE
    assert found.members[1].decision.answer is RatioAnswer.WORSE
    assert found.shows_worse


def test_a_pass_that_takes_longer_is_shown_by_the_member_with_most_of_its_time() -> None:
    found = known(judge_mixture(rounds_of(20, slower=(1.0, 1.1)), RULE, is_last=True))

    assert found.total.answer is RatioAnswer.WORSE
    assert found.total.ratio == pytest.approx(20 / 19, rel=0.01)
    assert [each.decision.answer for each in found.members] == [
        RatioAnswer.NOT_WORSE,
        RatioAnswer.WORSE,
    ]


def test_the_pass_and_the_members_share_the_level() -> None:
    assert judge_mixture(rounds_of(20), RULE, is_last=True) is not None
    # An alarm at half of the level, and one of each member at a quarter.
    worse = known(judge_mixture(rounds_of(20, slower=(1.2, 1.2)), RULE, is_last=True))
    assert worse.total.confidence == pytest.approx(1 - 2 * 0.005)
    assert {each.decision.confidence for each in worse.members} == {1 - 2 * 0.0025}


def test_kinds_of_inferences_are_not_taken_for_modes() -> None:
    """Members differ tenfold, and a session that is slower is not a mode that one side has more."""
    pairs = rounds_of(12, sessions=0.05, passes=1)

    assert judge_duet(pairs, RULE, is_last=True).ratio == pytest.approx(
        math.exp(np.median([paired_difference(pair) for pair in pairs])), rel=0.05
    )


@pytest.mark.parametrize("passes", [1, 4])
def test_unchanged_workloads_raise_no_alarm(passes: int) -> None:
    alarms = sum(
        found.shows_worse
        for seed in range(200)
        if (found := judge_mixture(rounds_of(12, seed=seed, passes=passes), RULE, is_last=True))
    )

    assert alarms == 0


def test_a_tenth_more_for_a_member_is_named_in_nearly_all_runs() -> None:
    named = sum(
        found.members[1].decision.answer is RatioAnswer.WORSE
        for seed in range(100)
        if (
            found := judge_mixture(
                rounds_of(18, seed=seed, slower=(1.0, 1.1), noise=0.02), RULE, is_last=True
            )
        )
    )

    assert named >= 95
