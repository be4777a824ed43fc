"""Compare the exact work of a call on both sides, in sentences and in figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.program import CallWork, InferenceWork, SessionWork
from pytest_modelperf.comparing.limits import WORK, Tolerances, allowed_growth
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import format_count, signed_percent
from pytest_modelperf.text.words import count_of

# Returns the MACs of one inference of a model, by the digest of the model and the inputs.
CountMacs = Callable[[str, Sequence[str]], "int | None"]
# The figures of the work of a call.
WORK_METRICS = ("sessions_made", "inferences", "macs", "first_item_inferences")
_MOST_SHAPES = 3


class SessionPair(Struct, frozen=True):
    """The sessions of one model on both sides, None on a side without it."""

    before: SessionWork | None
    after: SessionWork | None

    @property
    def name(self) -> str:
        known = self.after or self.before
        return "" if known is None else known.model

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple(None if side is None else side.model for side in (self.before, self.after))

    @property
    def is_other_model(self) -> bool:
        """Whether both sides run a model here, and the models are known to differ."""
        before, after = self.before, self.after
        if before is None or after is None:
            return False
        return None not in (before.sha256, after.sha256) and before.sha256 != after.sha256

    @property
    def is_same_work(self) -> bool:
        """Whether the same model does the same inferences with the same options."""
        before, after = self.before, self.after
        if before is None or after is None or before.sha256 is None:
            return False
        return _identity(before) == _identity(after)


class WorkComparison(Struct, frozen=True):
    """The work of both sides, the session pairs, and the differences as sentences."""

    before: CallWork
    after: CallWork
    pairs: tuple[SessionPair, ...]
    differences: tuple[str, ...]

    @property
    def changed(self) -> frozenset[str]:
        """The names of the sessions whose work differs between the sides."""
        return frozenset(pair.name for pair in self.pairs if not pair.is_same_work)

    @property
    def other_models(self) -> tuple[str, ...]:
        """The differences that say only that a model is another one, which may be as fast."""
        return tuple(text for pair in self.pairs for text in _other_model(pair))


def with_macs(work: CallWork, count: CountMacs, known: CallWork | None = None) -> CallWork:
    """Return the work with the MACs of each inference, counted unless `known` has them."""
    found: dict[tuple[str | None, tuple[str, ...]], int | None] = {}
    for session in () if known is None else known.sessions:
        for each in session.inferences:
            if each.macs is not None:
                found[session.sha256, each.inputs] = each.macs

    def counted(session: SessionWork, each: InferenceWork) -> InferenceWork:
        key = session.sha256, each.inputs
        if key not in found:
            found[key] = None if session.sha256 is None else count(session.sha256, each.inputs)
        return replace(each, macs=found[key])

    sessions = (
        replace(session, inferences=tuple(counted(session, each) for each in session.inferences))
        for session in work.sessions
    )
    return replace(work, sessions=tuple(sessions))


def compare_work(before: CallWork, after: CallWork) -> WorkComparison:
    """Compare both works, with sessions paired by name, then by model, then in order."""
    pairs = tuple(_pair_sessions(before.sessions, after.sessions))
    differences = [text for pair in pairs for text in _differences(pair)]
    differences += _first_item_difference(before, after)
    return WorkComparison(before, after, pairs, tuple(differences))


def work_metrics(compared: WorkComparison, tolerances: Tolerances) -> tuple[Metric, ...]:
    """Return the exact figures of the work. Growth beyond the tolerance is a regression."""
    before, after = compared.before, compared.after
    share = tolerances.of_figure(WORK)
    counts = zip(
        WORK_METRICS,
        (before.made, before.inferences, before.macs, before.first_item_inferences),
        (after.made, after.inferences, after.macs, after.first_item_inferences),
        strict=True,
    )
    first = compared.differences[0] if compared.differences else None
    found = []
    for name, old, new in counts:
        if old is None or new is None:
            if name == "macs" and (before.sessions or after.sessions):
                found.append(Metric(name, old, new, Verdict.INCONCLUSIVE, gated=False))
            continue
        verdict = Verdict.PASSED
        if new - old > allowed_growth(old, share):
            verdict = Verdict.REGRESSED
        elif old - new > allowed_growth(new, share):
            verdict = Verdict.IMPROVED
        reason = first if verdict is Verdict.REGRESSED else None
        # Less work does not show that the call takes less time.
        gated = verdict is not Verdict.IMPROVED
        found.append(Metric(name, old, new, verdict, gated=gated, allowed=share, reason=reason))
    return tuple(found)


def _identity(session: SessionWork) -> tuple[object, ...]:
    inferences = {each.inputs: each.count for each in session.inferences}
    return session.sha256, dict(session.options), session.made, inferences


def _pair_sessions(
    before: Sequence[SessionWork], after: Sequence[SessionWork]
) -> Iterator[SessionPair]:
    keys: Sequence[Callable[[SessionWork], object]] = (
        lambda session: (session.model, session.sha256, sorted(session.options.items())),
        lambda session: (session.model, session.sha256),
        lambda session: session.sha256 or session,
        lambda session: session.model,
    )
    old, new = list(before), list(after)
    partner: dict[int, SessionWork] = {}
    for key in keys:
        for place, session in enumerate(after):
            if place in partner or session not in new:
                continue
            match = next((each for each in old if key(each) == key(session)), None)
            if match is not None:
                partner[place] = match
                old.remove(match)
                new.remove(session)
    # The first remaining sessions of both sides are assumed to correspond.
    for place in range(len(after)):
        if place not in partner and old:
            partner[place] = old.pop(0)
    for place, session in enumerate(after):
        yield SessionPair(partner.get(place), session)
    for session in old:
        yield SessionPair(session, None)


def _differences(pair: SessionPair) -> Iterator[str]:
    """Yield texts such as `3 inferences of rec.onnx more (1 -> 4)`, `rec.onnx: threads 1 -> 8`."""
    before, after, name = pair.before, pair.after, printable(pair.name)
    made_before, made = (0 if side is None else side.made for side in (before, after))
    if made != made_before:
        yield f"a call makes {count_of(made, 'session')} of {name}, and made {made_before} before"
    if before is None or after is None:
        known = after or before
        if known is not None and (known.calls or not known.made):
            verb = "now runs" if before is None else "no longer runs"
            yield f"a call {verb} {name}: {count_of(known.calls, 'inference')}"
        return
    if before.calls != after.calls:
        change = after.calls - before.calls
        more = "more" if change > 0 else "less"
        counts = f"{before.calls} -> {after.calls}"
        yield f"{count_of(abs(change), 'inference')} of {name} {more} ({counts})"
    yield from _shape_differences(before, after, name)
    yield from _other_model(pair)
    for key in sorted({*before.options, *after.options}):
        old, new = before.options.get(key, "default"), after.options.get(key, "default")
        if old != new:
            yield f"{name}: {printable(key)} {printable(old)} -> {printable(new)}"


def _other_model(pair: SessionPair) -> Iterator[str]:
    before, after = pair.before, pair.after
    if before is not None and after is not None and pair.is_other_model:
        other = "" if before.model == after.model else f", {printable(before.model)} before"
        macs = (CallWork(sessions=(session,)).macs for session in (before, after))
        yield f"{printable(pair.name)} is another model{other}{_change_of(*macs)}"


def _first_item_difference(before: CallWork, after: CallWork) -> Iterator[str]:
    old, new = before.first_item_inferences, after.first_item_inferences
    if old is not None and new is not None and old != new:
        yield f"the first item comes after {count_of(new, 'inference')}, and after {old} before"


def _shape_differences(before: SessionWork, after: SessionWork, name: str) -> Iterator[str]:
    """Yield texts such as `input of det.onnx: x 1x3x48x552 -> 1x3x48x960 (MACs +74.0 %)`."""
    old = {each.inputs: each for each in before.inferences}
    new = {each.inputs: each for each in after.inferences}
    gone = [each for inputs, each in old.items() if inputs not in new]
    come = [each for inputs, each in new.items() if inputs not in old]
    for left, right in list(zip(gone, come, strict=False))[:_MOST_SHAPES]:
        changed = [
            f"{a} -> {b.partition(': ')[2] or b}"
            for a, b in zip(left.inputs, right.inputs, strict=False)
            if a != b
        ]
        texts = changed or [f"{', '.join(left.inputs)} -> {', '.join(right.inputs)}"]
        yield f"input of {name}: {printable('; '.join(texts))}{_change_of(left.macs, right.macs)}"
    for each in come[len(gone) :][:_MOST_SHAPES] if gone or old else ():
        yield f"new input of {name}: {printable('; '.join(each.inputs))}"


def _change_of(before: int | None, after: int | None) -> str:
    if not before or after is None or before == after:
        return ""
    return (
        f" (MACs {format_count(before)} -> {format_count(after)}, "
        f"{signed_percent(after / before - 1.0)})"
    )
