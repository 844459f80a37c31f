"""The modules at fault: those where JAX is further from 64 bits than the other side's rounding is.

A module's outputs are compared for the same inputs: every pass but the first is given the first
one's values in the place of what modules return, after these are noted. So errors do not travel,
and a module that contains others is judged by its own code alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from anyjax.parity.judge.errors import Error, error, rms
from anyjax.parity.sides.side import INPUTS, NUMBERS, OUTPUT, Passed, Passes

NEGLIGIBLE = 2.0**-40  # of the values: the rounding of 64 bits, after many steps
ROW = 0.02  # of the largest value: what rows that are the same differ by, in bfloat16
LARGE = 2.0**20  # times the median: numbers that the others are not judged by
ROWS = 4096  # beyond which nobody looks for another order
ROUNDINGS = 16  # times the other side's rounding error: sums in another order stay below


Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Comparison:
    """One module of both sides.

    Attributes:
      path, kind: of the module; the path is empty for the model itself.
      shape, dtype: of its first floating-point output.
      total: the difference of the outputs, each side on its own.
      added: the difference that the module adds, given the same inputs.
      rounding: the reference's own error in that, as a root mean square.
      wide: the difference in 64 bits, as a root mean square.
      scale: the root mean square of the outputs.
      fault: what is wrong, empty if nothing is.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    total: Error
    added: Error
    rounding: float
    wide: float
    scale: float
    fault: str = ""

    @property
    def inherited(self) -> float:
        """The part of the total error that came with the inputs, as a root mean square."""
        return float(np.sqrt(max(0.0, self.total.rms**2 - self.added.rms**2)))

    @property
    def excess(self) -> float:
        """How many times larger the error is than rounding explains; about 1 for a healthy one."""
        least = max(self.rounding, self.scale * np.finfo(np.float64).eps)
        return max(self.wide, self.added.rms / ROUNDINGS) / least if least else 0.0


def compare(passes: Passes, kinds: dict[str, str]) -> list[Comparison]:
    """Returns the comparison of each module that both sides ran, in the order of execution.

    What a module hands to one inside of it is its own work: where that is at fault, so is the outer
    module. Floats of the same shape are replaced. Where others differ, such as integers and caches,
    the inner module computes something else, which is not its fault, see ``differing_calls``.
    """
    differing = differing_calls(passes)
    comparisons: dict[str, Comparison] = {}
    handed: dict[str, Comparison] = {}
    of_numbers: Comparison | None = None
    missing = {*passes.alone()}
    for path, expected in passes.expected.values.items():
        inner, is_input, _ = path.partition(INPUTS)
        if not expected or path in missing or inner in passes.excluded:
            continue
        if not is_input and inner in differing:
            continue
        kind = kinds.get(inner.partition("#")[0], "")
        comparison = _compare(path, expected, passes, kind)
        if path == NUMBERS:
            of_numbers = comparison
        elif not is_input:
            comparisons[path] = comparison
        elif comparison.fault:
            outer = next((p for p in _outer(inner) if p in passes.expected.values), OUTPUT)
            if outer in differing:
                continue
            fault = f"hands {inner} an input that {comparison.fault}".replace(
                "that shapes", "whose shapes"
            )
            handed.setdefault(
                outer, replace(comparison, path=outer, kind=kinds.get(outer, ""), fault=fault)
            )
    if of_numbers is not None and (of_numbers.fault or OUTPUT not in comparisons):
        fault = of_numbers.fault and f"has integers or complex numbers: one {of_numbers.fault}"
        comparisons[OUTPUT] = replace(of_numbers, path=OUTPUT, kind=kinds.get("", ""), fault=fault)
    for outer, comparison in handed.items():
        compared = comparisons.get(outer)
        comparisons[outer] = comparison if compared is None else replace(
            compared, added=comparison.added, rounding=comparison.rounding, wide=comparison.wide,
            scale=comparison.scale, fault=comparison.fault,
        )  # fmt: skip
    if not any(x.fault for x in comparisons.values()) and OUTPUT in comparisons:
        comparisons[OUTPUT] = _unexplained(passes, comparisons[OUTPUT])
    return [*comparisons.values()]


def far_apart(expected: Passed, actual: Passed) -> bool:
    """Returns whether the outputs of two passes differ by more than a few roundings."""
    arrays, of_actual = expected.values[OUTPUT], actual.values[OUTPUT]
    if not arrays or [x.shape for x in arrays] != [x.shape for x in of_actual]:
        return False
    return any(
        error([x], [y]).rms > ROUNDINGS * _half_step(x.dtype) * rms([x])
        for x, y in zip(arrays, of_actual)
    )


def _unexplained(passes: Passes, comparison: Comparison) -> Comparison:
    """Returns the fault of a model whose own outputs differ, and none of its parts: what one writes
    to a value that another reads is in no part's output.
    """
    if passes.alone_in_64_bits is None or OUTPUT in passes.excluded:
        return comparison
    truth, wide = (x.values[OUTPUT] for x in passes.alone_in_64_bits)
    rounding, off = error(passes.expected.values[OUTPUT], truth).rms, error(wide, truth).rms
    if off <= max(rounding, NEGLIGIBLE * rms(truth)):
        return comparison
    fault = f"differs by {off:.1e} in 64 bits, and no part does: by what they write in place"
    return replace(comparison, fault=fault, wide=off, rounding=rounding)


def differing_calls(passes: Passes) -> list[str]:
    """Returns the modules that are called with other integers, caches or shapes than those of the
    reference, in the order of execution.
    """
    values, fixed, missing = passes.expected.values, passes.expected.fixed, {*passes.alone()}
    shapes = lambda passed, path: [x.shape for x in passed.values[path]]
    differs = lambda path: (
        shapes(passes.expected, path) != shapes(passes.added, path)
        or (path in fixed and bool(_compare(path, values[path], passes, "").fault))
    )
    inputs = [path for path in values if INPUTS in path and values[path] and path not in missing]
    differing = {path for path in inputs if differs(path)}
    differing |= {path for path, first in fixed.items() if first in differing}
    return [*dict.fromkeys(x.partition(INPUTS)[0] for x in [*values, *fixed] if x in differing)]


def _outer(path: str) -> Iterator[str]:
    """Yields the paths of the modules around one, the nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _compare(path: str, expected: list[np.ndarray], passes: Passes, kind: str) -> Comparison:
    actual, added = passes.actual.values[path], passes.added.values[path]
    first = expected[0]
    about = path, kind, first.shape, str(actual[0].dtype if actual else first.dtype)
    if [x.shape for x in expected] != [x.shape for x in actual]:
        nothing = Error(np.inf, np.inf, 0.0, np.inf, np.inf)
        shapes = " and ".join(
            ", ".join(str(list(x.shape)) for x in side) for side in (actual, expected)
        )
        return Comparison(
            *about, nothing, nothing, 0.0, np.inf, rms(expected), f"shapes differ: {shapes}"
        )
    judge = None if passes.judge is None or path in passes.judge.narrow else passes.judge
    if judge is None and passes.wide is not None:
        return _compare_narrow(about, expected, actual, added, passes.wide.values[path])
    truth = expected if judge is None else judge.values[path]
    rounding = error(expected, truth).rms
    wide = 0.0 if passes.wide is None else error(passes.wide.values[path], truth).rms
    to_truth, scale = error(added, truth).rms, rms(truth)
    comparison = Comparison(
        *about, error(actual, expected), error(added, expected), rounding, wide, scale
    )
    fault = ""
    call = passes.expected.call if path == OUTPUT else None
    total = max(comparison.total.rms, _half_step(first.dtype) * scale)
    if call is not None and (off := error(call, expected).rms) > ROUNDINGS * total:
        fault = f"the reference's nodes are {off:.1e} from its own call"
    elif wide > max(rounding, NEGLIGIBLE * scale):
        fault = (
            f"differs by {wide:.1e} in 64 bits, where the reference's rounding is {rounding:.1e}"
        )
    elif to_truth > ROUNDINGS * max(rounding, _half_step(first.dtype) * scale):
        fault = f"is {to_truth:.1e} off, where the reference's rounding is {rounding:.1e}"
    elif passes.wide is not None:
        fault = _of_small(expected, truth, passes.wide.values[path])
    return replace(comparison, fault=fault)


def _of_small(expected: Arrays, truth: Arrays, wide: Arrays) -> str:
    """Returns what is wrong with numbers beside much larger ones, whose rounding would explain it:
    scores beside those that a mask hides, a small output beside a large one.
    """
    for arrays in zip(expected, truth, wide):
        sizes = np.abs(np.asarray(arrays[1], np.float64))
        counted = sizes[np.isfinite(sizes) & (sizes > 0)]
        small = sizes <= LARGE * (np.median(counted) if counted.size else 0.0)
        if len(expected) == 1 and small.all():
            continue
        a, b, c = ([x[small]] for x in arrays)
        rounding, off = error(a, b).rms, error(c, b).rms
        if off > max(rounding, NEGLIGIBLE * rms(b)):
            return (
                f"differs by {off:.1e} in 64 bits beside larger numbers, where the reference's "
                f"rounding is {rounding:.1e}"
            )
    return ""


def _compare_narrow(
    about: tuple[str, str, tuple[int, ...], str],
    expected: Arrays,
    actual: Arrays,
    added: Arrays,
    wide: Arrays,
) -> Comparison:
    """Compares what the reference cannot compute in 64 bits: JAX does, and its own rounding has to
    explain how far the reference is from that.
    """
    rounding, scale = error(added, wide).rms, rms(wide)
    off = error(expected, wide).rms
    comparison = Comparison(
        *about, error(actual, expected), error(added, expected), rounding, 0.0, scale
    )
    if off <= ROUNDINGS * max(rounding, _half_step(expected[0].dtype) * scale):
        return comparison
    fault = f"is {off:.1e} from the reference, where JAX's own rounding is {rounding:.1e}"
    return replace(comparison, wide=off, fault=fault)


def _half_step(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps) / 2


def reordered(expected: Passed, actual: Passed) -> frozenset[str]:
    """Returns the modules whose outputs have the same rows in another order, as the experts of a
    mixture have that take their tokens in groups.
    """
    return frozenset(
        path
        for path, arrays in expected.values.items()
        if any(map(_same_rows, arrays, actual.values.get(path, ())))
    )


def _same_rows(expected: np.ndarray, actual: np.ndarray) -> bool:
    """Returns whether the rows are a permutation of each other, and not in the same order."""
    if expected.shape != actual.shape or expected.ndim < 2 or not expected.size:
        return False
    a, b = (np.asarray(x, np.float64).reshape(-1, x.shape[-1]) for x in (expected, actual))
    near = lambda x, y: np.abs(x - y).max() <= ROW * max(np.abs(a).max(), 1e-300)
    if len(a) > ROWS or near(a, b) or not np.isfinite(a).all() or not np.isfinite(b).all():
        return False
    squares = (a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)
    nearest = squares.argmin(1)
    return near(a, b[nearest]) and len(np.unique(b[nearest], axis=0)) == len(np.unique(b, axis=0))


def faults(comparisons: list[Comparison]) -> list[Comparison]:
    """Returns the comparisons with a fault, the largest excess first."""
    faulty = [x for x in comparisons if x.fault]
    return sorted(faulty, key=lambda x: (x.path == OUTPUT, -x.excess))
