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

from anyjax.compare.differences import Error, error, rms
from anyjax.compare.side import (
    INPUTS,
    NUMBERS,
    OUTPUT,
    STATE,
    Passed,
    Passes,
)

NEGLIGIBLE = 2.0**-40  # of the values: the rounding of 64 bits, after many steps
SINGLE = 2.0**-24  # the rounding of 32 bits: narrower floats are asked in 64 what those can tell
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
        if not expected or path in missing or inner in passes.excluded or STATE in path:
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
            handed.setdefault(outer, replace(comparison, path=outer, fault=fault))
    if of_numbers is not None and (of_numbers.fault or OUTPUT not in comparisons):
        fault = of_numbers.fault and f"has integers or complex numbers: one {of_numbers.fault}"
        comparisons[OUTPUT] = replace(of_numbers, path=OUTPUT, kind=kinds.get("", ""), fault=fault)
    for outer, comparison in (*handed.items(), *_of_buffers(passes, {*differing})):
        compared = comparisons.get(outer)
        comparison = replace(comparison, kind=kinds.get(outer, ""))
        comparisons[outer] = comparison if compared is None else replace(
            compared, added=comparison.added, rounding=comparison.rounding, wide=comparison.wide,
            scale=comparison.scale, fault=comparison.fault,
        )  # fmt: skip
    if not any(x.fault for x in comparisons.values()) and OUTPUT in comparisons:
        fault = _of_dtypes(passes) or _unexplained(passes)
        comparisons[OUTPUT] = replace(comparisons[OUTPUT], fault=fault)
    return [*comparisons.values()]


def _of_buffers(passes: Passes, differing: set[str]) -> Iterator[tuple[str, Comparison]]:
    """Yields what is wrong with the buffers that a call writes, by the path of their module."""
    sides = passes.expected, passes.actual
    of_sides = [{k for k in side.values if STATE in k} for side in sides]
    for path in sorted(of_sides[0] | of_sides[1]):
        module, _, name = path.partition(STATE)
        full_name = f"{module}.{name}" if module else name
        if module in passes.excluded or module in differing:
            continue
        if not all(full_name in side.writable for side in sides):
            continue
        if path not in of_sides[0]:
            nothing = Error(np.inf, np.inf, 0.0, np.inf, np.inf)
            fault = f"writes {name}, which the reference leaves as it is"
            shape = passes.actual.values[path][0].shape if passes.actual.values[path] else ()
            yield module, Comparison(module, "", shape, "", nothing, nothing, 0.0, 0.0, 0.0, fault)
        elif passes.expected.values[path] and not passes.lacks(path):
            comparison = _compare(path, passes.expected.values[path], passes, "")
            if comparison.fault:
                fault = f"writes {name}, which {comparison.fault}"
                yield module, replace(comparison, path=module, fault=fault)


def _of_dtypes(passes: Passes) -> str:
    """Returns what is wrong with the dtypes of the model's own outputs."""
    expected, actual = passes.expected.dtypes, passes.actual.dtypes
    if len(expected) != len(actual) or expected == actual:
        return ""
    first = next(i for i, pair in enumerate(zip(expected, actual)) if len({*pair}) > 1)
    return f"returns {actual[first]}, where the reference's is {expected[first]}"


def far_apart(expected: Passed, actual: Passed) -> bool:
    """Returns whether the outputs of two passes differ by more than a few roundings."""
    arrays, of_actual = (x.values[OUTPUT] + x.values.get(NUMBERS, []) for x in (expected, actual))
    if [x.shape for x in arrays] != [x.shape for x in of_actual]:
        return False
    return any(
        error([x], [y]).rms > ROUNDINGS * _half_step(x.dtype) * rms([x])
        for x, y in zip(arrays, of_actual)
    )


def _unexplained(passes: Passes) -> str:
    """Returns what is wrong with a model whose own outputs differ, and none of its parts: what one
    writes to a value that another reads is in no part's output.
    """
    if passes.alone_in_64_bits is None or OUTPUT in passes.excluded:
        return ""
    outputs = lambda x: x.values[OUTPUT] + x.values.get(NUMBERS, [])
    sides = passes.expected, *passes.alone_in_64_bits
    for expected, truth, wide in zip(*map(outputs, sides)):
        if fault := _of_64_bits([expected], [truth], [wide]):
            return f"{fault}, and no part does: by what they write in place"
    return ""


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
    truth = expected if judge is None else judge.values[path]
    wide = truth if passes.wide is None else passes.wide.values[path]
    sides, whose = (expected, added), "the reference's"
    if judge is None and passes.wide is not None:  # JAX alone has 64 bits: its rounding decides
        truth, sides, whose = wide, (added, expected), "JAX's own"
    figures = error(sides[0], truth).rms, error(wide, truth).rms, rms(truth)
    comparison = Comparison(*about, error(actual, expected), error(added, expected), *figures)
    call = passes.expected.call if path == OUTPUT else None
    total = max(comparison.total.rms, _half_step(first.dtype) * comparison.scale)
    if call is not None and (off := error(call, expected).rms) > ROUNDINGS * total:
        fault = f"the reference's nodes are {off:.1e} from its own call"
    else:  # each by its own dtype and size
        faults = (_fault(whose, [*arrays]) for arrays in zip(*sides, truth, wide))
        fault = next(filter(None, faults), "")
    return replace(comparison, fault=fault)


def _fault(whose: str, arrays: list[np.ndarray]) -> str:
    """Returns what is wrong with an array, by ``whose`` rounding: of that side, of the other one,
    and of both in 64 bits.

    Numbers beside much larger ones, whose rounding would explain any difference, are judged on
    their own: scores beside those that a mask hides, small ones beside large ones.
    """
    sizes = np.abs(np.asarray(arrays[2], np.float64))
    counted = sizes[np.isfinite(sizes) & (sizes > 0)]
    middle = np.partition(counted, len(counted) // 2)[len(counted) // 2] if counted.size else 0.0
    small = sizes / LARGE <= middle
    for beside in ("",) if small.all() else ("", " beside larger numbers"):
        expected, added, truth, wide = ([x[small]] if beside else [x] for x in arrays)
        if fault := _of_64_bits(expected, truth, wide, beside):
            return fault
        off, rounding = error(added, truth).rms, error(expected, truth).rms
        least = _half_step(expected[0].dtype) * rms(truth)
        if not beside and off > ROUNDINGS * max(rounding, least):
            return f"is {off:.1e} off, where {whose} rounding is {rounding:.1e}"
    return ""


def _of_64_bits(expected: Arrays, truth: Arrays, wide: Arrays, beside: str = "") -> str:
    """Returns what is wrong with JAX's values in 64 bits, "" where rounding explains them: that of
    32 bits at most, which the 64 of both sides know nothing of where a dtype is narrower.
    """
    rounding, off, scale = error(expected, truth).rms, error(wide, truth).rms, rms(truth)
    is_narrow = _half_step(expected[0].dtype) > SINGLE
    allowed = min(rounding, ROUNDINGS * SINGLE * scale) if is_narrow else rounding
    if off <= max(allowed, NEGLIGIBLE * scale):
        return ""
    rounded = f", where the reference's rounding is {rounding:.1e}"
    return f"differs by {off:.1e} in 64 bits{beside}{rounded}"


def _half_step(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps) / 2


def reordered(expected: Passed, actual: Passed) -> frozenset[str]:
    """Returns the modules whose outputs have the same rows in another order, as the experts of a
    mixture have that take their tokens in groups.
    """
    return frozenset(
        path
        for path, arrays in expected.values.items()
        if STATE not in path and any(map(_same_rows, arrays, actual.values.get(path, ())))
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
