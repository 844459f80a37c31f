"""The forward passes of the two sides, three of each."""

from __future__ import annotations

from collections.abc import Callable

from anyjax.compare import store
from anyjax.compare.judge import far_apart, reordered
from anyjax.compare.side import (
    DROPOUT,
    NO_KERNEL,
    NUMBERS,
    OUTPUT,
    REORDERED,
    ModelSide,
    Passes,
    Side,
)

PASSES = 6 - 1  # the reference is run twice, the model three times
Progress = Callable[[str, int, int], None]


def forward_passes(original: Side, actual: ModelSide, progress: Progress | None = None) -> Passes:
    """Runs the two sides: each on its own, then all others with the values of the first
    where both have the module: inside of what is one module in JAX, torch has to be wide, too.

    Args:
      original: the reference.
      actual: the model; it runs op by op if the reference's values are many.
      progress: called before each pass with what it is, its number and the number of all.
    """
    steps = iter(range(PASSES))
    begin = lambda text: progress and progress(text, next(steps), PASSES)
    begin(original.name)
    expected = original.forward()
    actual.expected = {k: x for k, x in expected.values.items() if k not in expected.fixed}
    actual.op_by_op = sum(x.nbytes for v in expected.values.values() for x in v) > store.LIMIT
    is_masked = lambda path: path.partition("#")[0] in original.masked
    masks = {path: x for path, x in expected.values.items() if is_masked(path)}
    begin("JAX")
    free = actual.forward(forced=masks or None)
    moved = reordered(expected, free)
    if {OUTPUT, NUMBERS} & moved:  # nobody puts the rows back
        moved = frozenset()
    excluded = dict.fromkeys(masks, DROPOUT) | dict.fromkeys(moved, REORDERED)
    excluded |= dict.fromkeys(sorted(expected.narrow), NO_KERNEL)
    shared = lambda path: path in free.values and excluded.get(path) != REORDERED
    forced = {path: x for path, x in expected.values.items() if shared(path)}
    begin("JAX with the inputs of the reference")
    added = actual.forward(forced=forced)
    begin(f"{original.name} in 64 bits")
    judge = original.forward(wide=True, forced=forced)
    begin("JAX in 64 bits")
    wide = actual.forward(wide=True, forced=forced) if actual.has_wide else None
    on_their_own = None
    if wide is not None and judge is not None and far_apart(expected, free):
        in_64_bits = lambda side: side.forward(wide=True, forced=masks or None)
        on_their_own = in_64_bits(original), in_64_bits(actual)
    return Passes(expected, free, added, judge, wide, excluded, on_their_own)
