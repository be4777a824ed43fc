"""The state that a model takes from the previous inference, found by its inputs and outputs."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import Remedy, UsageError
from pytest_modelperf.graph.binding import DeclaredInput, Dim, dim_name, find_batch
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shorten_list, suggestion

# A message lists at most this many inputs or outputs.
_MOST_LISTED = 12

# The words by which exporters distinguish what goes in from what comes out. In each of the two
# pairs of sets, the first shows a state by itself, and the second only with one of `_STATE_WORDS`.
_PAST_WORDS = frozenset({"past", "prev", "previous", "old"})
_IN_WORDS = frozenset({"in", "input", "inputs", "init", "initial"})
_PRESENT_WORDS = frozenset({"present", "new", "next", "updated", "final"})
_OUT_WORDS = frozenset({"out", "output", "outputs", "cur", "current", "n", "r", "ret"})
_STATE_WORDS = frozenset({
    "c", "cache", "cached", "caches", "carry", "cell", "conv", "h", "hidden", "k", "key", "keys",
    "kv", "mem", "memory", "recurrent", "ssm", "state", "states", "v", "value", "values",
})  # fmt: skip
# The results of an encoder are computed once and stay the same.
_ENCODER_WORDS = frozenset({"cross", "enc", "encoder"})
# An input with one of these words holds state, unless it chooses between states.
_CACHE_WORDS = _PAST_WORDS | {"cache", "cached", "caches", "state", "states"}
# These words name what one block of layers passes to the next block, not to the next inference.
_LAYER_WORDS = frozenset({"hidden", "states"})
_CHOICE_WORDS = frozenset({"branch", "indirection", "size", "use"})
_LENGTH_WORDS = frozenset({"len", "length", "lengths", "lens", "offset", "seqlen", "seqlens"})
_BEFORE_WORDS = _PAST_WORDS | {"cache", "cached", "history", "offset", "processed", "start"}
_OTHER_NUMBERS = frozenset({"beam", "keep", "max", "min", "penalty", "return"})
_POSITION_WORDS = frozenset({"pos", "position", "positions"})
_TOKEN_WORDS = frozenset({
    "audio", "chunk", "embeds", "features", "frames", "ids", "samples", "signal", "speech",
    "targets", "token", "tokens", "x",
})  # fmt: skip
_TIME_WORDS = frozenset({
    "cache", "context", "ctx", "frames", "len", "length", "past", "s", "samples", "seq", "seqlen",
    "sequence", "t", "target", "time", "tokens", "total",
})  # fmt: skip
# `past_key_values.0.key` becomes `present.0.key`.
_WHOLE_CACHE = re.compile(r"^(past|present)_(key_values?|kv)(?=_|$)")


class Count(enum.Enum):
    """The tokens that an input counts."""

    BEFORE = "the tokens before this inference"
    TOTAL = "the tokens before and of this inference"
    LAST = "the position of the last token"
    NEW = "the tokens of this inference"


class StatePair(Struct, frozen=True):
    """An input and the output that becomes this input at the next inference."""

    past: str
    present: str
    # The axis along which the output is longer than the input by the new tokens. If None, both
    # have the same shape, as in a static cache or a recurrent state.
    grows: int | None = None


class InputAxis(Struct, frozen=True):
    """An axis of an input."""

    name: str
    axis: int


class LengthInput(Struct, frozen=True):
    """An input that holds a number of tokens."""

    name: str
    counts: Count


class State(Struct, frozen=True):
    """How a model takes over its state.

    `tokens` are the inputs with an entry for each new token. `chunk` is the number of new tokens,
    if the model fixes it or the user gives it (`is_window`). Along their axis, `masks` have an
    entry for each token that can be seen. `branch` is the input that chooses the branch with a
    past. `fixed` are the other inputs, which stay the same, such as caches that no output replaces.
    """

    pairs: tuple[StatePair, ...]
    tokens: tuple[InputAxis, ...]
    chunk: int | None = None
    masks: tuple[InputAxis, ...] = ()
    positions: tuple[str, ...] = ()
    lengths: tuple[LengthInput, ...] = ()
    branch: str | None = None
    fixed: tuple[str, ...] = ()
    is_window: bool = False

    @property
    def has_prefill(self) -> bool:
        """Whether one inference can take any number of tokens."""
        return self.chunk is None

    @property
    def has_steps(self) -> bool:
        """Whether an inference continues from the previous one."""
        return bool(self.pairs)


def find_state(
    inputs: Sequence[DeclaredInput],
    outputs: Sequence[DeclaredInput],
    named: Mapping[str, str] | None = None,
    model: str = "the model",
    dims: Mapping[str, int] | None = None,
) -> State:
    """Find the state of a model by the names and shapes that exporters give.

    `named` are pairs of past and present that the user names. An empty present means that the input
    stays as it is. `dims` are sizes that the user gives. The size of the tokens is that of the
    window that each inference takes. UsageError lists the inputs and outputs if the state is not
    understood.
    """
    state = _Finder(inputs, outputs, named or {}, model).find()
    window = _window(state.tokens, inputs, dims or {})
    if state.chunk is None and window is not None:
        return replace(state, chunk=window, is_window=True)
    return state


def time_axes(
    dims: Sequence[Dim], batch: AbstractSet[int], *, named: bool = False
) -> tuple[int, ...]:
    """Return the open axes that can be a length: those named so, or else all if not `named`."""
    open_axes = [a for a, dim in enumerate(dims) if not isinstance(dim, int) and a not in batch]
    said = [axis for axis in open_axes if _says_time(dims[axis])]
    return tuple(said if said or named else open_axes)


def holds_length(declared: DeclaredInput) -> bool:
    """Whether a state counts tokens."""
    is_integer = (declared.dtype or "").startswith(("int", "uint"))
    return is_integer and not _LENGTH_WORDS.isdisjoint(_words(declared.name))


def _says_time(dim: Dim) -> bool:
    return isinstance(dim, str) and not _TIME_WORDS.isdisjoint(_words(dim))


def _words(name: str) -> tuple[str, ...]:
    """Split a name into words and numbers in lower case: `stateN` into `state` and `n`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=\b[hcs])(?=n\b)", "_", name)
    return tuple(re.findall(r"[a-z]+|[0-9]+", parted.lower()))


def _stem(name: str, direction: frozenset[str]) -> tuple[str, ...]:
    """Return the sorted words of a name, without those that distinguish past from present."""
    whole = _WHOLE_CACHE.sub(r"\1", "_".join(_words(name)))
    return tuple(sorted(word for word in _words(whole) if word not in direction))


class _Finder:
    """The search for one model's state. Each step takes away the inputs that it explains."""

    def __init__(
        self,
        inputs: Sequence[DeclaredInput],
        outputs: Sequence[DeclaredInput],
        named: Mapping[str, str],
        model: str,
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.named, self.model = named, model
        batch = find_batch(inputs)
        self.batch_places = batch.places if batch else ()
        self.left = {declared.name: declared for declared in inputs}
        self.presents = {declared.name: declared for declared in outputs}
        self.pairs: dict[str, StatePair] = {}
        self.fixed: set[str] = set()

    def find(self) -> State:
        self.take_named()
        self.take_pairs()
        has_cross_caches = self.take_encoder()
        branch = self.take_branch()
        masks = self.take_masks()
        positions = self.take_positions()
        lengths = self.take_lengths()
        self.require_paired()
        tokens, chunk = self.take_tokens()
        if has_cross_caches and branch is None and self.returns_one(tokens):
            chunk = 1
        if not tokens and chunk is None:
            self.fail("no input holds its tokens or frames")
        self.fixed.update(self.left)
        order = [declared.name for declared in self.inputs]
        return State(
            pairs=tuple(self.pairs[name] for name in order if name in self.pairs),
            tokens=tokens,
            chunk=chunk,
            masks=masks,
            positions=positions,
            lengths=lengths,
            branch=branch,
            fixed=tuple(name for name in order if name in self.fixed),
        )

    def take_named(self) -> None:
        inputs = [declared.name for declared in self.inputs]
        outputs = [declared.name for declared in self.outputs]
        for past, present in self.named.items():
            if past not in inputs:
                self.fail(f"it has no input {printable(past)!r}", suggestion(past, inputs))
            if not present:
                del self.left[past]
                self.fixed.add(past)
                continue
            if present not in outputs:
                self.fail(f"it has no output {printable(present)!r}", suggestion(present, outputs))
            if present not in self.presents:
                self.fail(f"the output {printable(present)!r} is named twice")
            self.pair(past, present)

    def take_pairs(self) -> None:
        own = [name for name in self.left if _ENCODER_WORDS.isdisjoint(_words(name))]
        self.pair_by_names(own)
        if not self.pairs:
            # An encoder that streams has caches of its own.
            self.pair_by_names(list(self.left))

    def pair_by_names(self, names: Sequence[str]) -> None:
        # Recurrent states may begin as h0 and end as hn.
        for ignored in (frozenset[str](), frozenset({"0"})):
            pasts = _by_stem(
                [n for n in names if n in self.left], _PAST_WORDS | _IN_WORDS | ignored
            )
            presents = _by_stem(list(self.presents), _PRESENT_WORDS | _OUT_WORDS)
            for stem, (past, *others) in pasts.items():
                found = presents.get(stem, [])
                if len(found) == 1 and not others and _is_state(past, found[0], stem):
                    self.pair(past, found[0])

    def pair(self, past: str, present: str) -> None:
        before, after = self.left.pop(past), self.presents.pop(present)
        if before.dtype is not None and after.dtype not in (None, before.dtype):
            self.fail(
                f"the output {printable(present)!r} is {after.dtype} and cannot become the input "
                f"{printable(past)!r}, which is {before.dtype}"
            )
        self.pairs[past] = StatePair(past, present, self.growing_axis(before, after))

    def growing_axis(self, past: DeclaredInput, present: DeclaredInput) -> int | None:
        if past.dims is None:
            self.fail(f"the input {printable(past.name)!r} declares no shape")
        batch = self.batch_axes(past)
        if present.dims is None:
            # A cache for attention has one open axis other than the batch.
            axes = time_axes(past.dims, batch) if len(past.dims) > 3 else ()
            return axes[0] if len(axes) == 1 else None
        if len(present.dims) != len(past.dims) or any(
            isinstance(old, int) and isinstance(new, int) and old != new
            for old, new in zip(past.dims, present.dims, strict=True)
        ):
            self.fail(
                f"the output {_shown(present)} does not fit the input {_shown(past)}, so one "
                "inference cannot go on from another: export it with an open length of the past"
            )
        changed = [
            axis
            for axis, (old, new) in enumerate(zip(past.dims, present.dims, strict=True))
            if axis not in batch
            and not isinstance(old, int)
            and not isinstance(new, int)
            # Two nameless axes may be equal or not. Those that can be a length are taken to grow.
            and (old != new or (old is None and len(past.dims) > 3))
        ]
        if len(changed) > 1:
            changed = [axis for axis in changed if _says_time(past.dims[axis])] or changed
        if len(changed) > 1:
            self.fail(
                f"the output {_shown(present)} can be longer than the input {_shown(past)} along "
                "several axes: export it with one name for each dimension that stays the same"
            )
        return changed[0] if changed else None

    def batch_axes(self, declared: DeclaredInput) -> set[int]:
        return {axis for name, axis in self.batch_places if name == declared.name}

    def take(self, names: Sequence[str]) -> None:
        for name in names:
            del self.left[name]

    def take_encoder(self) -> bool:
        """Take the inputs that come from an encoder, and return whether some are caches."""
        names = [name for name in self.left if not _ENCODER_WORDS.isdisjoint(_words(name))]
        self.take(names)
        self.fixed.update(names)
        return any(not _PAST_WORDS.isdisjoint(_words(name)) for name in names)

    def take_branch(self) -> str | None:
        for name, declared in self.left.items():
            if declared.dtype == "bool" and {"use", "cache"} <= set(_words(name)):
                self.take([name])
                return name
        return None

    def take_masks(self) -> tuple[InputAxis, ...]:
        masks = [
            InputAxis(name, len(declared.dims) - 1)
            for name, declared in self.left.items()
            if declared.dims and "mask" in _words(name) and "head" not in _words(name)
        ]
        self.take([mask.name for mask in masks])
        return tuple(masks)

    def take_positions(self) -> tuple[str, ...]:
        positions = [n for n, words in self.integers() if not _POSITION_WORDS.isdisjoint(words)]
        self.take(positions)
        return tuple(positions)

    def take_lengths(self) -> tuple[LengthInput, ...]:
        lengths = [
            LengthInput(name, _counted(words))
            for name, words in self.integers()
            if not _LENGTH_WORDS.isdisjoint(words)
            and _OTHER_NUMBERS.isdisjoint(words)
            and self.is_number(self.left[name])
        ]
        self.take([each.name for each in lengths])
        return tuple(lengths)

    def integers(self) -> list[tuple[str, frozenset[str]]]:
        return [
            (name, frozenset(_words(name)))
            for name, declared in self.left.items()
            if declared.dtype in (None, "int32", "int64")
        ]

    def is_number(self, declared: DeclaredInput) -> bool:
        batch = self.batch_axes(declared)
        return declared.dims is not None and all(
            dim == 1 or axis in batch for axis, dim in enumerate(declared.dims)
        )

    def require_paired(self) -> None:
        """Fail if a state input has no output that becomes it, or a state output lacks an input."""
        for name in self.left:
            words = set(_words(name))
            is_cache = not words.isdisjoint(_CACHE_WORDS) and words.isdisjoint(_CHOICE_WORDS)
            if is_cache and not words >= _LAYER_WORDS:
                self.fail(
                    f"the input {printable(name)!r} has the name of state, but no output fits"
                )
        # The user decides about these inputs, so what would replace them is an ordinary output.
        kept = {_stem(name, _PAST_WORDS | _IN_WORDS) for name in self.named}
        presents = [
            name
            for name in self.presents
            if "present" in _words(name)
            and _ENCODER_WORDS.isdisjoint(_words(name))
            and _stem(name, _PRESENT_WORDS | _OUT_WORDS) not in kept
        ]
        if not self.pairs and not presents:
            self.fail("it hands on no state from one inference to the next")
        if self.pairs and presents:
            present = printable(presents[0])
            self.fail(f"the output {present!r} has the name of state, but no input fits")

    def take_tokens(self) -> tuple[tuple[InputAxis, ...], int | None]:
        candidates = [
            declared
            for declared in self.left.values()
            if declared.dims and len(declared.dims) <= 3 and declared.dtype != "bool"
        ]
        candidates.sort(key=lambda declared: _TOKEN_WORDS.isdisjoint(_words(declared.name)))
        if not candidates:
            return (), None
        open_axes = {
            declared.name: axes[0]
            for declared in candidates
            if (axes := time_axes(declared.dims or (), self.batch_axes(declared)))
        }
        if not open_axes:
            return self.take_chunk(candidates[0])
        first = next(iter(open_axes))
        length = self.dim(first, open_axes[first])
        tokens = tuple(
            InputAxis(name, axis)
            for name, axis in open_axes.items()
            if name == first or self.dim(name, axis) == length
        )
        self.take([each.name for each in tokens])
        return tokens, None

    def dim(self, name: str, axis: int) -> Dim:
        return (self.left[name].dims or ())[axis]

    def take_chunk(self, declared: DeclaredInput) -> tuple[tuple[InputAxis, ...], int]:
        """Take tokens of a fixed number. Floats without an axis for time are one frame."""
        dims = declared.dims or ()
        is_float = (declared.dtype or "").startswith(("float", "bfloat"))
        batch = self.batch_axes(declared)
        axes = [axis for axis in range(len(dims)) if axis not in batch]
        if len(dims) > 1 and axes[:1] == [0]:
            # A leading 1 is a batch that was not recognized.
            axes = axes[1:] if dims[0] == 1 else axes
        if not axes or (is_float and len(dims) < 3):
            return (), 1
        size = dims[axes[0]]
        self.take([declared.name])
        return (InputAxis(declared.name, axes[0]),), size if isinstance(size, int) else 1

    def returns_one(self, tokens: Sequence[InputAxis]) -> bool:
        """Whether an output has one entry along the axis of the tokens, for any number of them."""
        return any(
            output.dims is not None and len(output.dims) == 3 and output.dims[each.axis] in (1, "1")
            for output in self.presents.values()
            for each in tokens
            if each.axis < 3
        )

    def fail(self, what: str, hint: str = "") -> NoReturn:
        error = UsageError(
            f"the state of {self.model} is not understood: {what}.{hint}",
            Remedy(
                "Name each input and the output that becomes this input at the next inference: "
                "{state}. Without an output, the input stays the same. A decoder that was exported "
                "without its cache has no state: export it with one."
            ),
        )
        error.details = (
            f"  inputs:  {_listed(self.inputs)}",
            f"  outputs: {_listed(self.outputs)}",
        )
        raise error


def _window(
    tokens: Sequence[InputAxis], inputs: Sequence[DeclaredInput], dims: Mapping[str, int]
) -> int | None:
    declared = {each.name: each for each in inputs}
    for token in tokens:
        own = declared[token.name]
        name = dim_name(own, token.axis, (own.dims or ())[token.axis])
        if name is not None and name in dims:
            return dims[name]
    return None


def _by_stem(names: Sequence[str], direction: frozenset[str]) -> dict[tuple[str, ...], list[str]]:
    stems: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        stems.setdefault(_stem(name, direction), []).append(name)
    return stems


def _is_state(past: str, present: str, stem: tuple[str, ...]) -> bool:
    ins, outs, words = set(_words(past)), set(_words(present)), set(stem)
    if ins >= _LAYER_WORDS:
        return False
    says_state = not words.isdisjoint(_STATE_WORDS)
    says_direction = not (ins.isdisjoint(_PAST_WORDS) and outs.isdisjoint(_PRESENT_WORDS))
    if not words.isdisjoint(_TOKEN_WORDS) or not words:
        return says_state or not (ins.isdisjoint(_PAST_WORDS) or outs.isdisjoint(_PRESENT_WORDS))
    return says_state or says_direction


def _counted(words: frozenset[str]) -> Count:
    if "seqlens" in words:
        return Count.LAST
    if not words.isdisjoint(_BEFORE_WORDS):
        return Count.BEFORE
    return Count.TOTAL if "total" in words else Count.NEW


def _listed(tensors: Sequence[DeclaredInput]) -> str:
    return shorten_list([_shown(each) for each in tensors], _MOST_LISTED) or "none"


def _shown(tensor: DeclaredInput) -> str:
    if tensor.dims is None:
        return f"{printable(tensor.name)} (no shape)"
    dims = ", ".join("?" if dim is None else printable(str(dim)) for dim in tensor.dims)
    return f"{printable(tensor.name)} [{dims}]"
