"""Runs a written file beside its module; any difference is an error."""

from __future__ import annotations

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import fx

from anyjax import warn_once
from anyjax.compare.judge import compare
from anyjax.compare.passes import forward_passes
from anyjax.compare.side import Call
from anyjax.compare.sides.flax_side import FlaxSide
from anyjax.errors import WrongSource
from anyjax.flax.codegen.check.closeness import first_mismatch, tolerance
from anyjax.flax.codegen.check.torch_side import TorchSide, resized_examples
from anyjax.flax.codegen.check.written_file import WrittenFile, loaded_file
from anyjax.flax.codegen.graph.dropout_rates import PLACES
from anyjax.flax.codegen.graph.functionalize import packet
from anyjax.flax.codegen.graph.graph import Graph
from anyjax.torch.engine.callback import to_numpy

REPORT = "report it; check=False, --no-check, gives the file as it is, to be mended by hand"
EVALUATION = (
    "write what depends on self.training into the file that check=False, --no-check, gives: it has "
    "evaluation mode alone"
)
SLOPE_FACTOR = 10  # times the tolerance of values: each adds up over all that reads it


def verify(
    text: str, module: torch.nn.Module, example: tuple, graph: Graph, names: dict[str, str]
) -> None:
    """Compares the file with the module, in evaluation mode unless it says otherwise.

    Args:
      text: the file.
      example: the example's (args, kwargs).
      names: the names of the file's inputs by the names of the graph's.

    Raises:
      WrongSource: they differ in values, slopes, at another shape or in training mode.
    """
    tensors = [*module.parameters(), *module.buffers()]
    if any(x.is_meta for x in tensors):
        warn_once.warn(
            "the file is not compared with torch: its weights have no values", UserWarning
        )
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_matmul_precision("highest"))
        with contextlib.suppress(RuntimeError):  # a process may have no CPU
            stack.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        check = _Check(text, module, TorchSide(module, *example), graph, names)
        try:
            file = stack.enter_context(loaded_file(text, module))
        except Exception as error:
            raise check.error("cannot be loaded with its weights", _in_one_line(error)) from error
        check.values(file)
        check.sizes(file)
        check.training(file)


def _in_one_line(error: Exception) -> str:
    """Returns an error in one line."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:300]


class _Check:
    """One comparison; each method compares one thing."""

    def __init__(
        self,
        text: str,
        module: torch.nn.Module,
        side: TorchSide,
        graph: Graph,
        names: dict[str, str],
    ):
        self.text, self.module, self.side, self.graph = text, module, side, graph
        self.names = names
        numbers = [*module.parameters(), *module.buffers()]
        numbers += [x for x in side.leaves if isinstance(x, torch.Tensor)]
        self.close = tolerance(numbers)

    def inputs_of(self, leaves: list) -> dict[str, jax.Array]:
        """Returns the file's inputs from an example."""
        pairs = [(self.names.get(x), leaf) for x, leaf in zip(self.graph.entries, leaves)
                 if isinstance(leaf, torch.Tensor)]  # fmt: skip
        return {name: jnp.asarray(to_numpy(x.detach())) for name, x in pairs if name}

    def random_outputs(self, values: Callable[..., list], first: list) -> set[int]:
        """Returns the outputs that differ from call to call."""
        second = values(seed=1)
        if len(second) != len(first):
            return {*range(len(first))}
        differs = lambda x, y: bool(first_mismatch([x], [y], self.close))
        return {i for i, pair in enumerate(zip(first, second)) if differs(*pair)}

    def draws_numbers(self) -> bool:
        """Returns whether an operator draws numbers in evaluation mode."""
        draws = lambda n: torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        return any(draws(n) and packet(n) not in PLACES for n in self.graph.nodes)

    def values(self, file: WrittenFile) -> None:
        """Compares values and slopes for the example."""
        self.want = self.side.values()
        self.structure = self.side.structure
        draws = self.draws_numbers()
        self.skipped = self.random_outputs(self.side.values, self.want) if draws else set()
        run, params, state = file.as_function()
        inputs = self.inputs_of(self.side.leaves)
        try:
            got, _ = _compiled_fast(run)(params, state, inputs)
        except Exception as error:
            raise self.error("fails", _in_one_line(error)) from error
        self.compare("values", got, self.want, self.side.exact, file)
        self.slopes(file, run, params, state, inputs)

    def compare(
        self, what: str, got: list, want: list, exact: Callable, file: WrittenFile | None = None
    ) -> None:
        """Raises if outputs differ; with the file, the error names the first such submodule."""
        if len(got) == len(want):
            got, want = self.unskipped(got), self.unskipped(want)
        comparable = lambda: self.unskipped(exact())
        if mismatch := first_mismatch(got, want, self.close, exact=comparable):
            where = self._first_different(file) if file is not None else None
            raise self.error(f"{what} differ", mismatch, where)

    def _first_different(self, file: WrittenFile) -> str | None:
        """Returns the path of the first submodule whose own code differs; None where both do not
        run module by module.
        """
        inputs = self.inputs_of(self.side.leaves)
        try:
            sides = self.side.side(self.module), FlaxSide(file.bound(), Call((), inputs))
            comparisons = compare(forward_passes(*sides), {})
        except Exception:  # this only says where: what differs is known
            return None
        return next((x.path.partition("#")[0] for x in comparisons if x.fault), "")

    def unskipped(self, outputs: list) -> list:
        """Returns the outputs that are not random."""
        return [x for i, x in enumerate(outputs) if i not in self.skipped]

    def slopes(
        self, file: WrittenFile, run: Callable, params: object, state: object, inputs: dict
    ) -> None:
        """Compares the slopes of a randomly weighted sum of the outputs; random outputs are left
        out.
        """
        generator = np.random.default_rng(0)
        floats_of = [(i, x) for i, x in enumerate(self.want) if x.dtype.kind == "f"]
        weights = {
            i: generator.standard_normal(x.shape).astype(np.float32)
            * (np.abs(x) < 1e30) * (i not in self.skipped)
            for i, x in floats_of
        }  # fmt: skip
        if not any(x.any() for x in weights.values()):
            return
        try:
            by_name, by_leaf = self.side.slopes([*weights.values()])
        except (RuntimeError, NotImplementedError):  # torch has no derivative of it
            return
        floats = {k: x for k, x in inputs.items() if jnp.issubdtype(x.dtype, jnp.inexact)}

        def loss(params: object, floats: dict, state: object, inputs: dict) -> Any:
            outs, _ = run(params, state, {**inputs, **floats})
            finite = _without_infinities(outs)
            return sum((finite[i] * w).sum() for i, w in weights.items())

        slope = _compiled_fast(jax.grad(loss, argnums=(0, 1), allow_int=True))
        try:
            file_slopes, input_slopes = slope(params, floats, state, inputs)
        except Exception as error:
            raise self.error("has no gradient", _in_one_line(error)) from error
        exact = lambda: self._slopes_by_name(
            file, *self.side.slopes([*weights.values()], exact=True)
        )
        computed = file.by_name(file_slopes) | {f"input {k}": x for k, x in input_slopes.items()}
        computed = {k: x for k, x in computed.items() if x.dtype != jax.dtypes.float0}
        want = self._slopes_by_name(file, by_name, by_leaf)
        largest = max((np.abs(x[np.isfinite(x)]).max(initial=0) for x in want.values()), default=0)
        close, least = SLOPE_FACTOR * self.close, max(1e-2 * largest, 1e-6)
        self._compare_named("the gradient of {} differs", computed, want, exact, close, least)

    def _slopes_by_name(
        self, file: WrittenFile, by_name: dict, by_leaf: list
    ) -> dict[str, np.ndarray]:
        """Returns torch's slopes by the file's names."""
        slopes, _ = file.converted(by_name)
        for entry, x in zip(self.graph.entries, by_leaf):
            if x is not None and (name := self.names.get(entry)):
                slopes[f"input {name}"] = x
        wide = {k: np.asarray(x, np.float64) for k, x in slopes.items()}
        return {k: x for k, x in wide.items() if not np.isnan(x).all()}

    def _compare_named(
        self,
        what: str,
        got: Mapping,
        want: dict[str, np.ndarray],
        exact: Callable[[], dict[str, np.ndarray]],
        close: float,
        least: float = 1e-6,
    ) -> None:
        truth = functools.cache(exact)
        for name in [x for x in want if x in got]:
            of_name = lambda name=name: [np.asarray(truth()[name])]
            if mismatch := first_mismatch([got[name]], [want[name]], close, least, of_name):
                raise self.error(what.format(name), mismatch)

    def sizes(self, file: WrittenFile) -> None:
        """Compares values for another batch, and another length where the file takes it."""
        by_name = {n.name: n for n in self.graph.roles}
        is_fixed = lambda x: not isinstance(by_name.get(x), fx.Node) or x not in self.names
        shapes = [None if not isinstance(leaf, torch.Tensor) or is_fixed(x)
                  else [*by_name[x].meta["val"].shape]
                  for x, leaf in zip(self.graph.entries, self.side.leaves)]  # fmt: skip
        for leaves in resized_examples(self.side.leaves, shapes):
            try:
                want = self.side.values(leaves)
            except Exception:  # torch takes no such shape: the next one
                continue
            run, params, state = file.as_function()
            try:
                got, _ = _compiled_fast(run)(params, state, self.inputs_of(leaves))
            except Exception as error:
                if _refuses_sizes(error):  # which is said in the file
                    continue
                shown = ", ".join(str(tuple(x.shape)) for x in leaves if hasattr(x, "shape"))
                raise self.error(f"fails for the shapes {shown}", _in_one_line(error)) from error
            exact = functools.partial(self.side.exact, leaves=leaves)
            self.compare("values of another shape", got, want, exact)
            return

    def training(self, file: WrittenFile) -> None:
        """Compares values and running statistics of training mode, if nothing in it is random."""
        try:
            want, state = self.side.training_values()
            structure = self.side.structure
            is_random = self.random_outputs(lambda seed: self.side.training_values(seed)[0], want)
        except Exception:  # it wants more than this example: labels, larger batches
            return
        shapes_of = lambda values: [x.shape for x in values]
        if (structure, shapes_of(want)) != (self.structure, shapes_of(self.want)):
            raise self.error(
                "lacks what only training mode gives",
                f"torch gives {len(want)} outputs there and {len(self.want)} in evaluation mode, "
                "or nests them otherwise",
                do=EVALUATION,
            )
        if is_random:
            return
        if not file.trains():
            without = self.unskipped(want), self.unskipped(self.want)
            if mismatch := first_mismatch(*without, self.close):
                what = "has no training mode and the module does"
                raise self.error(what, mismatch, do=EVALUATION)
            return
        run, params, state_ = file.as_function(training=True)
        got, statistics = _compiled_fast(run)(params, state_, self.inputs_of(self.side.leaves))
        exact = functools.partial(self.side.exact, training=True)
        if mismatch := first_mismatch(got, want, self.close, exact=exact):
            raise self.error("values in training mode differ", mismatch)
        # a count stays a whole number
        wide = lambda x: np.asarray(x, np.float64 if jnp.issubdtype(x.dtype, jnp.inexact) else None)
        of_torch = {k: wide(x) for k, x in file.converted(state)[1].items()}
        true_state = lambda: file.converted(self.side.exact_state())[1]
        what = "{} differs after a call in training mode"
        self._compare_named(what, statistics, of_torch, true_state, self.close)

    def error(self, what: str, why: str, where: str | None = None, do: str = REPORT) -> WrongSource:
        """Returns the error; ``where`` is the path of the first submodule that differs."""
        submodule = self.module.get_submodule(where) if where else self.module
        kind = type(submodule)
        try:
            place = f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind.forward)[1]}"
        except (OSError, TypeError):
            place = ""
        described = f"{where} ({kind.__name__})" if where else kind.__name__
        return WrongSource(
            f"{type(self.module).__name__} in Flax source: {what} from torch's"
            if "differ" in what else f"{type(self.module).__name__} in Flax source {what}",
            where=f"{described}, {place}" if place else described,
            why=why,
            do=do,
        )  # fmt: skip


def _compiled_fast(function: Callable) -> Callable:
    """Returns the function compiled without optimizations, since it runs once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _without_infinities(outs: list) -> list:
    """Returns the outputs with 0 in place of numbers that are infinite or as good as that."""
    finite = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
    small = lambda x: jnp.abs(x.astype(jnp.float32)) < 1e30  # float16 has no such number
    return [jnp.where(small(x), x, 0) if finite(x) else x for x in outs]


def _refuses_sizes(error: Exception) -> bool:
    """Returns whether the file itself refuses these sizes."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and frames[-1].filename.startswith("anyjax_written_")
