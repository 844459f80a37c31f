"""Checks of one model of another package: each returns nothing, or says what is wrong."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import anyjax
from anyjax.errors import DataDependent
from proof.cases import Arguments, Case, Example
from proof.comparison import (
    NotApplicable,
    Wrong,
    compare,
    settle,
    torch_slopes,
)

# Parts of an array's largest value, in 32 and in 64 bits.
VALUES = {False: 1e-4, True: 1e-8}
GRADIENTS = {False: 1e-3, True: 1e-6}


class Checks:
    """The checks of a case, each a method with its name; what several need is computed once."""

    def __init__(self, case: Case):
        self.case = case
        jax.config.update("jax_enable_x64", case.wide)
        self.example = case.example()
        self.key = jax.random.key(0)
        self.traces = 0

    def draw(self, seed: int, example: Example | None = None, others: bool = False) -> Arguments:
        """Returns arguments: of one seed the same, in the sizes of the example or others."""
        torch.manual_seed(seed)
        return (example or self.example).inputs(others)

    def arrays(self, seed: int, others: bool = False) -> Arguments:
        return tuple(map(as_array, self.draw(seed, others=others)))

    def torch(self, seed: int, others: bool = False) -> list[torch.Tensor]:
        """Returns what torch computes, by another module: some keep what they computed."""
        return tensors(self.other.function(*self.draw(seed, self.other, others)))

    @functools.cached_property
    def other(self) -> Example:
        return self.case.example()

    @functools.cached_property
    def model(self) -> anyjax.Model:
        return anyjax.from_torch(self.example.function)

    @functools.cached_property
    def jitted(self) -> Callable:
        """One program of the pure function, which counts its traces."""
        static = {i: x for i, x in enumerate(self.arrays(0)) if not isinstance(x, np.ndarray)}

        def function(params, arrays):
            self.traces += 1
            whole = merged(arrays, static)
            out = self.model.apply(params, *whole, rng=self.key)
            return [x for x in leaves_of(out) if not isinstance(x, (str, int, float, bool))]

        jitted = jax.jit(function)
        return lambda params, whole: numbers(jitted(params, split(whole)))

    def value(self) -> None:
        """The values of the model's own call are torch's; where weights decide what is computed,
        those of ``apply`` outside of jit.
        """
        arguments = self.arrays(0)
        try:
            got = self.model(*arguments, rng=self.key)
        except DataDependent:  # the check of jit says so
            got = self.model.apply(self.model.params, *arguments, rng=self.key)
        self._compare(numbers(got), 0)

    def jit(self) -> None:
        """``jax.jit`` of ``model.apply`` is traced once, and right for values that it never saw."""
        for seed in (0, 1):
            self._compare(self.jitted(self.model.params, self.arrays(seed)), seed)
        if self.traces > 1:
            raise Wrong(f"traced {self.traces} times for two calls of the same shapes")

    def gradient(self) -> None:
        """Gradients of the parameters and of the floats among the inputs, of a sum of sines; where
        the values of integers decide shapes, with these known.
        """
        if self.example.random:
            raise NotApplicable("outputs are random")
        reference, places = self._torch_gradients(self.case.example())
        whole = split(self.arrays(0))
        floats = {i: x for i, x in whole.items() if is_float(x)}
        fixed = {i: x for i, x in enumerate(self.arrays(0)) if i not in floats}
        known = {i: x for i, x in fixed.items() if i not in whole}
        integers = {i: x for i, x in fixed.items() if i in whole}

        def loss(params, floats, integers):
            out = self.model.apply(params, *merged(floats | integers, known), rng=self.key)
            out = numbers(out)
            return sum(jnp.sin(out[i]).sum() for i in places)

        slope = jax.grad(loss, (0, 1))
        try:
            by_name, by_place = jax.jit(slope)(self.model.params, floats, integers)
        except DataDependent:  # the check of jit says so
            program = jax.jit(lambda params, floats: slope(params, floats, integers))
            by_name, by_place = program(self.model.params, floats)
        slopes = by_name | {f"argument {i}": x for i, x in by_place.items()}
        missing = sorted(k for k, x in reference.items() if k not in slopes and x.abs().max() > 0)
        if missing:
            raise Wrong(f"no gradient of {missing[0]}")
        names = [k for k in reference if k in slopes]
        largest = max(float(x.abs().max()) for x in reference.values() if x.numel())
        rtol = GRADIENTS[self.case.wide]
        wide = functools.cache(lambda: self._torch_gradients(self.case.example(), widen=True)[0])
        exact = lambda: [wide()[k] for k in names]
        pairs = [slopes[k] for k in names], [reference[k] for k in names]
        settle(*pairs, exact, rtol, names=names, floor=rtol * largest)

    def _torch_gradients(
        self, example: Example, widen: bool = False
    ) -> tuple[dict[str, torch.Tensor], list[int]]:
        """Returns torch's gradients by name, and the places of the outputs that they are of."""
        arguments = [
            leaf(x, widen) if isinstance(x, torch.Tensor) else x for x in self.draw(0, example)
        ]
        module = example.function
        named = {
            f"argument {i}": x
            for i, x in enumerate(arguments)
            if isinstance(x, torch.Tensor) and x.requires_grad
        }
        if isinstance(module, torch.nn.Module):
            module = module.double() if widen else module
            named |= {k: p for k, p in module.named_parameters() if p.requires_grad}
        out = tensors(module(*arguments))
        return torch_slopes(out, named)

    def vmap(self) -> None:
        """``jax.vmap`` over a batch of the floats among the inputs is the loop over it."""
        first, second = self.arrays(0), self.arrays(1)
        rows = [first, tuple(y if is_float(y) else x for x, y in zip(first, second))]
        batch = {i: np.stack([row[i] for row in rows]) for i, x in enumerate(first) if is_float(x)}
        if not batch:
            raise NotApplicable("no floats among the inputs")
        fixed = dict(enumerate(first))

        def function(floats):
            out = self.model.apply(self.model.params, *merged(floats, fixed), rng=self.key)
            return [x for x in leaves_of(out) if not isinstance(x, (str, int, float, bool))]

        got = jax.jit(jax.vmap(function))(batch)
        for i, row in enumerate(rows):
            wanted = numbers(self.model.apply(self.model.params, *row, rng=self.key))
            self._check(numbers(jax.tree.map(lambda x, i=i: x[i], got)), wanted)

    def save(self) -> None:
        """``anyjax.load`` of ``model.save`` agrees, and where sizes are open for other sizes."""
        shapes, example = self.example.shapes, self.arrays(0)
        key = self.key if self.example.random else None
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder, "model")
            options = {"shapes": shapes, "constraints": self.example.constraints}
            self.model.save(saved, *example, rng=key, **options, platforms=("cpu",))
            loaded = anyjax.load(saved)
            self._compare(numbers(loaded(*example, rng=key)), 0)
            if shapes:
                got = numbers(loaded(*self.arrays(2, others=True), rng=key))
                self._compare(got, 2, others=True)

    def _compare(self, got: list[jax.Array], seed: int, others: bool = False) -> None:
        """Checks that values are torch's, or as near to float64's as torch's are."""
        self._check(got, self.torch(seed, others), lambda: self._wide(seed, others))

    def _check(
        self, got: Sequence, wanted: Sequence, exact: Callable[[], Sequence] | None = None
    ) -> None:
        random = range(len(wanted)) if self.example.random else ()
        rtol = VALUES[self.case.wide]
        if exact and not self.case.wide:
            settle(got, wanted, exact, rtol, random)
        else:
            compare(got, wanted, rtol, random)

    def _wide(self, seed: int, others: bool) -> list[torch.Tensor]:
        """Returns what torch computes in 64 bits."""
        example = self.case.example()
        if not isinstance(example.function, torch.nn.Module):
            raise TypeError("a function has the width of its inputs")
        arguments = self.draw(seed, example, others)
        widen = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        return tensors(example.function.double()(*map(widen, arguments)))


def as_array(value: object) -> object:
    """Returns a tensor as an array of numpy; anything else as it is."""
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def is_float(value: object) -> bool:
    """Says whether this is an array of floats."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def split(whole: Sequence) -> dict[int, np.ndarray]:
    """Returns the arrays among arguments, by their place."""
    return {i: x for i, x in enumerate(whole) if isinstance(x, np.ndarray)}


def merged(arrays: dict[int, object], fixed: dict[int, object]) -> list[object]:
    """Returns arguments in their order, of arrays and what else there is."""
    both = fixed | arrays
    return [both[i] for i in sorted(both)]


def leaf(tensor: torch.Tensor, widen: bool) -> torch.Tensor:
    """Returns a copy that asks for gradients where it has floats."""
    if not tensor.is_floating_point():
        return tensor
    return (tensor.double() if widen else tensor).detach().clone().requires_grad_()


def leaves_of(out: object) -> list[Any]:
    """Returns the leaves of an output, of which one is all that there can be and its number."""
    return jax.tree.leaves(out, is_leaf=lambda x: isinstance(x, anyjax.CountedArray))


def numbers(out: object) -> list[Any]:
    """Returns the arrays of an output, in its order: of what is counted, what counts of it."""
    return [
        _counted(x)
        for x in leaves_of(out)
        if isinstance(x, (jax.Array, np.ndarray, anyjax.CountedArray))
    ]


def _counted(x: Any) -> Any:
    if not isinstance(x, anyjax.CountedArray):
        return x
    if isinstance(x.length, jax.core.Tracer):  # all of it: what does not count is 0
        return x.values
    return x.values[tuple(map(slice, np.atleast_1d(np.asarray(x.length))))]


def tensors(out: object) -> list[torch.Tensor]:
    """Returns the tensors of an output, in its order."""
    return [x for x in jax.tree.leaves(out) if isinstance(x, torch.Tensor)]
