"""Noise as on real machines, for the number of simulated comparisons that a rare error needs.

All times are logarithms, so a true ratio is a number added to one side, and one simulation serves
for every ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Logs = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A machine and a model on it; spreads are standard deviations of logs.

    `rounds` is how the sides of a round differ because their sessions do, normally, or `heavy`
    with the tails of Student's t with 3 degrees of freedom; `kinds` is how far two equally
    frequent kinds of sessions lie apart. `inferences` is the noise inside a session,
    `autocorrelation` that of neighbouring inferences, and `slow` the share that a Pareto tail
    delays. `drift` is how much slower all becomes over the run, `contaminated` the share of rounds
    in which something makes one side 20 % slower, and `processes` how processes differ that
    run at different times.
    """

    rounds: float
    heavy: bool = False
    kinds: float = 0.0
    inferences: float = 0.02
    autocorrelation: float = 0.0
    slow: float = 0.0
    drift: float = 0.0
    contaminated: float = 0.0
    processes: float = 0.06


SETTINGS = {
    "quiet": Setting(rounds=0.004),
    "usual": Setting(rounds=0.01, slow=0.06),
    "noisy": Setting(rounds=0.03, heavy=True, slow=0.06, contaminated=0.08),
    "contaminated": Setting(rounds=0.01, slow=0.06, contaminated=0.08),
    "drift": Setting(rounds=0.01, slow=0.06, drift=0.1),
    "autocorrelated": Setting(rounds=0.01, slow=0.06, autocorrelation=0.8),
    "two kinds": Setting(rounds=0.003, kinds=0.04, slow=0.06),
}


def simulate_duets(
    setting: Setting, comparisons: int, rounds: int, turns: int, seed: int
) -> tuple[Logs, Logs]:
    """Both sides of duets of a model with itself: comparisons, rounds, turns."""
    rng = np.random.default_rng(seed)
    shape = (comparisons, rounds, turns)
    before, after = (
        _inferences(setting, shape, rng) + _sessions(setting, (comparisons, rounds, 1), rng)
        for _ in range(2)
    )
    if setting.contaminated:
        hit = rng.random((comparisons, rounds, 1)) < setting.contaminated
        which = rng.random((comparisons, rounds, 1)) < 0.5
        before += np.float32(0.2) * (hit & which)
        after += np.float32(0.2) * (hit & ~which)
    if setting.drift:
        direction = rng.choice(np.array([-1, 1], dtype=np.float32), (comparisons, 1, 1))
        pace = np.float32(setting.drift) * direction / np.float32(rounds * turns)
        turn = np.arange(rounds * turns, dtype=np.float32).reshape(rounds, turns)
        is_first = rng.integers(0, 2, shape, dtype=np.int8).astype(np.float32)
        before += pace * (turn + is_first / 2)
        after += pace * (turn + (1 - is_first) / 2)
    return before, after


def simulate_stored(
    setting: Setting, comparisons: int, samples: int, seed: int
) -> tuple[Logs, Logs]:
    """Samples of two processes of one model, of one session each: comparisons, samples."""
    rng = np.random.default_rng(seed)
    before, after = (
        _inferences(setting, (comparisons, 1, samples), rng)
        + _sessions(setting, (comparisons, 1, 1), rng)
        + _normal(setting.processes, (comparisons, 1, 1), rng)
        for _ in range(2)
    )
    return before[:, 0], after[:, 0]


def round_medians(before: Logs, after: Logs) -> npt.NDArray[np.float64]:
    """For each round the median of the paired differences."""
    return np.asarray(np.median(after - before, axis=-1), dtype=np.float64)


def group_quantiles(
    before: Logs, after: Logs, share: float, rounds: int
) -> npt.NDArray[np.float64]:
    """For each group of `rounds` rounds, the difference of the quantiles of the two sides."""
    count = before.shape[1] // rounds
    old, new = (
        np.quantile(
            side[:, : count * rounds].reshape(len(side), count, -1).astype(np.float64),
            share,
            axis=-1,
        )
        for side in (before, after)
    )
    difference: npt.NDArray[np.float64] = new - old
    return difference


def _normal(spread: float, shape: tuple[int, ...], rng: np.random.Generator) -> Logs:
    scaled: Logs = np.float32(spread) * rng.standard_normal(shape, dtype=np.float32)
    return scaled


def _inferences(setting: Setting, shape: tuple[int, ...], rng: np.random.Generator) -> Logs:
    own = _normal(setting.inferences, shape, rng)
    if setting.autocorrelation:
        kept = np.float32(setting.autocorrelation)
        fresh = np.sqrt(np.float32(1.0) - kept**2)
        for i in range(1, shape[-1]):
            own[..., i] = kept * own[..., i - 1] + fresh * own[..., i]
    if setting.slow:
        # Drawing the places of the delayed share is faster than tossing a coin for each.
        flat = own.reshape(-1)
        count = rng.binomial(flat.size, setting.slow)
        places = rng.integers(0, flat.size, count)
        flat[places] += (0.15 * rng.pareto(2.5, count)).astype(np.float32)
    return own


def _sessions(setting: Setting, shape: tuple[int, ...], rng: np.random.Generator) -> Logs:
    """The deviation of each session; the difference of two has the spread `rounds`."""
    one = setting.rounds / np.sqrt(2.0)
    if setting.heavy:
        heavy: npt.NDArray[np.float64] = rng.standard_t(3, shape)
        sessions: Logs = (one / np.sqrt(3.0) * heavy).astype(np.float32)
    else:
        sessions = _normal(one, shape, rng)
    if setting.kinds:
        sessions += np.float32(setting.kinds) * rng.integers(0, 2, shape).astype(np.float32)
    return sessions
