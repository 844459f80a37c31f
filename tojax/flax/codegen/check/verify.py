"""Runs a file that was written beside its module: what differs is an error, not a number."""

from __future__ import annotations

import contextlib
import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import fx

from tojax import warn_once
from tojax.errors import WrongSource
from tojax.flax.codegen.check.closeness import apart, tolerance
from tojax.flax.codegen.check.first_difference import first_apart
from tojax.flax.codegen.check.torch_side import TorchSide, other_sizes
from tojax.flax.codegen.check.written_file import opened
from tojax.flax.codegen.graph.dropout_rates import PLACES
from tojax.flax.codegen.graph.functionalize import packet
from tojax.torch.engine.callback import to_numpy

SLOPES = 10  # times the tolerance of values: each adds up over all that reads it


def verify(text: str, module: torch.nn.Module, example: tuple, graph: Any, made: Any) -> None:
    """Compares the file with the module, in evaluation mode unless it says otherwise.

    Args:
      text: the file.
      example: (args, kwargs) that the module was looked at with.
      made: the outermost class: its inputs and parameters.

    Raises:
      WrongSource: values, slopes, those of another shape or of training mode differ.
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
        check = _Check(text, module, TorchSide(module, *example), graph, made)
        try:
            file = stack.enter_context(opened(text, module))
        except Exception as error:
            raise check.wrong("cannot be loaded with its weights", _said(error)) from error
        check.values(file)
        check.sizes(file)
        check.training(file)


def _said(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:300]


class _Check:
    """One comparison; each method is a part of it."""

    def __init__(self, text: str, module: torch.nn.Module, side: TorchSide, graph: Any, made: Any):
        self.text, self.module, self.side, self.graph = text, module, side, graph
        self.names = {x.name: name for x, name in zip(made.inputs, made.parameters)}
        numbers = [*module.parameters(), *module.buffers()]
        numbers += [x for x in side.leaves if isinstance(x, torch.Tensor)]
        self.close = tolerance(numbers)

    def given(self, leaves: list) -> dict[str, jax.Array]:
        """What the file takes of an example."""
        pairs = [(self.names.get(x), leaf) for x, leaf in zip(self.graph.entries, leaves)
                 if isinstance(leaf, torch.Tensor)]  # fmt: skip
        return {name: jnp.asarray(to_numpy(x.detach())) for name, x in pairs if name}

    def drawn(self, values: Callable[..., list], first: list) -> set[int]:
        """The outputs that differ from call to call."""
        again = values(seed=1)
        if len(again) != len(first):
            return {*range(len(first))}
        return {i for i, (x, y) in enumerate(zip(first, again)) if apart([x], [y], self.close)}

    def random(self) -> bool:
        """Whether an operator draws numbers in evaluation mode."""
        draws = lambda n: torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        return any(draws(n) and packet(n) not in PLACES for n in self.graph.nodes)

    def values(self, file: Any) -> None:
        """Values and slopes for the example."""
        self.want = self.side.values()
        self.skipped = self.drawn(self.side.values, self.want) if self.random() else set()
        run, params, rest = file.function()
        given = self.given(self.side.leaves)
        try:
            got, _ = _quick(run)(params, rest, given)
        except Exception as error:
            raise self.wrong("fails", _said(error)) from error
        self.compare("values", got, self.want, self.side.exact, first=True)
        self.slopes(file, run, params, rest, given)

    def compare(self, what: str, got: list, want: list, exact: Any, first: bool = False) -> None:
        """Raises where these differ; the error names the submodule that does ``first``."""
        kept = lambda xs: [x for i, x in enumerate(xs) if i not in self.skipped]
        if len(got) == len(want):
            got, want = kept(got), kept(want)
        if said := apart(got, want, self.close, exact=lambda: kept(exact())):
            where = first_apart(self.text, self.module, self.side, self.given) if first else None
            raise self.wrong(f"{what} differ", said, where)

    def slopes(self, file: Any, run: Any, params: Any, rest: Any, given: dict) -> None:
        """Those of the outputs that are no random numbers, weighted by such."""
        drawn = np.random.default_rng(0)
        weights = [drawn.standard_normal(x.shape).astype(np.float32) * (np.abs(x) < 1e30)
                   if x.dtype.kind == "f" and i not in self.skipped else None
                   for i, x in enumerate(self.want)]  # fmt: skip
        if all(x is None for x in weights):
            return
        try:
            by_name, by_leaf = self.side.slopes(weights)
        except (RuntimeError, NotImplementedError):  # torch has no derivative of it
            return
        floats = {k: x for k, x in given.items() if jnp.issubdtype(x.dtype, jnp.inexact)}

        def loss(params: Any, floats: dict, rest: Any, given: dict) -> Any:
            outs, _ = run(params, rest, {**given, **floats})
            return sum((x * w).sum() for x, w in zip(_masked(outs), weights) if w is not None)

        slope = _quick(jax.grad(loss, argnums=(0, 1), allow_int=True))
        try:
            mine, mine_inputs = slope(params, floats, rest, given)
        except Exception as error:
            raise self.wrong("has no gradient", _said(error)) from error
        exact = lambda: self._together(file, *self.side.exact_slopes(weights))
        self._same_slopes(file.named(mine) | {f"input {k}": x for k, x in mine_inputs.items()},
                          self._together(file, by_name, by_leaf), exact)  # fmt: skip

    def _together(self, file: Any, by_name: dict, by_leaf: list) -> dict[str, np.ndarray]:
        """Torch's slopes by the file's names."""
        found, _ = file.laid_out(by_name)
        for entry, x in zip(self.graph.entries, by_leaf):
            if x is not None and (name := self.names.get(entry)):
                found[f"input {name}"] = x
        wide = {k: np.asarray(x, np.float64) for k, x in found.items()}
        return {k: x for k, x in wide.items() if not np.isnan(x).all()}

    def _same_slopes(self, mine: dict, want: dict, exact: Callable[[], dict]) -> None:
        most = max((np.abs(x[np.isfinite(x)]).max(initial=0) for x in want.values()), default=0)
        truth: dict[str, np.ndarray] = {}

        def one(name: str) -> list:
            if not truth:
                truth.update(exact())
            return [truth[name]]

        for name, x in want.items():
            if name not in mine or x.dtype.kind != "f" or mine[name].dtype == jax.dtypes.float0:
                continue
            said = apart([mine[name]], [x], SLOPES * self.close, max(1e-2 * most, 1e-6),
                         functools.partial(one, name))  # fmt: skip
            if said:
                raise self.wrong(f"the gradient of {name} differs", said)

    def sizes(self, file: Any) -> None:
        """Values for another batch, and another length where the file takes it."""
        by_name = {n.name: n for n in self.graph.roles}
        fixed = lambda x: not isinstance(by_name.get(x), fx.Node) or x not in self.names
        shapes = [None if not isinstance(leaf, torch.Tensor) or fixed(x)
                  else [*by_name[x].meta["val"].shape]
                  for x, leaf in zip(self.graph.entries, self.side.leaves)]  # fmt: skip
        for leaves in other_sizes(self.side.leaves, shapes):
            try:
                want = self.side.values(leaves)
            except Exception:  # torch takes no such shape: the next one
                continue
            run, params, rest = file.function()
            try:
                got, _ = _quick(run)(params, rest, self.given(leaves))
            except Exception as error:
                if _refused(error):  # which is said in the file
                    continue
                shown = ", ".join(str(tuple(x.shape)) for x in leaves if hasattr(x, "shape"))
                raise self.wrong(f"fails for the shapes {shown}", _said(error)) from error
            exact = functools.partial(self.side.exact, leaves=leaves)
            self.compare("values of another shape", got, want, exact)
            return

    def training(self, file: Any) -> None:
        """Values and running statistics of training mode, where nothing is drawn in it."""
        try:
            want, state = self.side.trained()
            if self.drawn(lambda seed: self.side.trained(seed)[0], want):
                return
        except Exception:  # it wants more than this example: labels, larger batches
            return
        shapes = lambda values: [x.shape for x in values]
        if shapes(want) != shapes(self.want):
            warn_once.warn("in training mode the module gives other outputs: the file has those of "
                         "evaluation mode", UserWarning)  # fmt: skip
            return
        if not file.trains():
            kept = [i for i in range(len(want)) if i not in self.skipped]
            said = apart([want[i] for i in kept], [self.want[i] for i in kept], self.close)
            if said:
                raise self.wrong("has no training mode and the module does", said)
            return
        run, params, rest = file.function(training=True)
        got, statistics = _quick(run)(params, rest, self.given(self.side.leaves))
        if said := apart(got, want, self.close, exact=lambda: self.side.exact(training=True)):
            raise self.wrong("values in training mode differ", said)
        self._same_statistics(statistics, state, file)

    def _same_statistics(self, mine: dict, state: dict, file: Any) -> None:
        truth = lambda name: [np.asarray(file.laid_out(self.side.exact_state())[1][name])]
        for name, x in file.laid_out(state)[1].items():
            if name not in mine:
                continue
            said = apart([mine[name]], [np.asarray(x, np.float64)], self.close,
                         exact=functools.partial(truth, name))  # fmt: skip
            if said:
                raise self.wrong(f"{name} differs after a call in training mode", said)

    def wrong(self, what: str, why: str, where: str | None = None) -> WrongSource:
        """The error; ``where`` is the path of the submodule that differs first."""
        part = self.module.get_submodule(where) if where else self.module
        kind = type(part)
        try:
            place = f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind.forward)[1]}"
        except (OSError, TypeError):
            place = ""
        named = f"{where} ({kind.__name__})" if where else kind.__name__
        return WrongSource(
            f"{type(self.module).__name__} in Flax source: {what} from torch's"
            if "differ" in what else f"{type(self.module).__name__} in Flax source {what}",
            where=f"{named}, {place}" if place else named,
            why=why,
            do="report it; check=False, --no-check, gives the file as it is, to be mended by hand",
        )  # fmt: skip


def _quick(function: Callable) -> Callable:
    """The function compiled in little time: it runs once."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _masked(outs: list) -> list:
    """Outputs with 0 for what is infinite, or as good as that."""
    finite = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
    return [jnp.where(jnp.abs(x) < 1e30, x, 0) if finite(x) else x for x in outs]


def _refused(error: Exception) -> bool:
    """Whether the file itself refuses these sizes."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and frames[-1].filename.startswith("tojax_written_")
