"""Flax modules as torch modules: parameters that torch's optimizers train, and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from flax.errors import InvalidRngError

from anyjax.errors import Unsupported, WrongArguments
from anyjax.torch.core import interop
from anyjax.torch.jax_function import from_jax
from anyjax.typing import PyTree

Weights = dict[str, jax.Array]


def module_from_flax(module: nnx.Module | linen.Module) -> torch.nn.Module:
    """Returns a Flax module as a torch module.

    Its parameters are ``torch.nn.Parameter``s under the names of their paths, so that torch's
    optimizers train them and ``state_dict`` holds them; other arrays, such as the statistics of
    BatchNorm, are buffers, which a forward pass in training mode writes. Random layers draw from
    torch's generator.

    Args:
      module: an nnx module, or a Linen module with its variables (``module.bind(variables)``). The
        modes ``train()`` and ``eval()`` are those of nnx; a Linen module takes its own flags, and
        ``mutable`` collections are written in training mode.

    Returns:
      A module whose forward takes and returns tensors, as the Flax module's does arrays.

    Raises:
      WrongArguments: it is neither of the two, or a Linen module without variables.

    Example:
      >>> import torch
      >>> from flax import nnx
      >>> module = anyjax.torch.module_from_flax(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
      >>> sorted(module.state_dict()), module(torch.ones(4, 3)).shape
      (['bias', 'kernel'], torch.Size([4, 2]))
    """
    if isinstance(module, nnx.Module):
        return FlaxModule(NnxProgram(module))
    if isinstance(module, linen.Module) and module.scope is not None:
        return FlaxModule(LinenProgram(module))
    raise WrongArguments(
        f"module_from_flax of {type(module).__name__}",
        why="it is no nnx module, and no Linen module with variables",
        do="pass an nnx module, or module.bind(variables)",
    )


class NnxProgram:
    """An nnx module as a function of its arrays."""

    def __init__(self, module: nnx.Module):
        self.name = type(module).__name__
        self.graphs: dict[bool, Any] = {}
        module = nnx.clone(module)  # whose mode changes
        for training in (False, True):
            module.train() if training else module.eval()
            self.graphs[training] = nnx.graphdef(module)
        state = nnx.state(module)
        flat = nnx.to_flat_state(state)
        self.kinds = {".".join(map(str, path)): (path, x) for path, x in flat}
        named = lambda kind: {k: x[...] for k, (_, x) in self.kinds.items() if isinstance(x, kind)}
        self.params, self.random = named(nnx.Param), named(nnx.RngState)  # keys and counts
        names = self.kinds.keys() - self.params.keys() - self.random.keys()
        self.buffers = {k: x[...] for k, (_, x) in self.kinds.items() if k in names}

    def __call__(
        self, training: bool, arrays: Weights, seed: Any, args: tuple, kwargs: dict
    ) -> Any:
        """Returns (output, buffers afterwards.)"""
        arrays = arrays | self.random
        if seed is not None:
            for i, name in enumerate(sorted(self.random)):
                is_key = isinstance(self.kinds[name][1], nnx.RngKey)
                key = jax.random.fold_in(jax.random.key(seed), i)
                arrays[name] = key if is_key else jnp.zeros_like(arrays[name])
        filled = [(path, x.replace(arrays[name])) for name, (path, x) in self.kinds.items()]
        module = nnx.merge(self.graphs[training], nnx.from_flat_state(filled))
        out = module(*args, **kwargs)
        written = {".".join(map(str, p)): x[...] for p, x in nnx.to_flat_state(nnx.state(module))}
        return out, {k: written[k] for k in self.buffers}

    def __deepcopy__(self, memo: dict[int, object]) -> NnxProgram:
        """Returns itself, which never changes: copies of Flax's variables are arrays."""
        return self


class LinenProgram:
    """A Linen module as a function of its variables."""

    def __init__(self, module: linen.Module):
        self.module, variables = module.unbind()
        variables = linen.meta.unbox(variables)  # of axes that with_partitioning names
        self.name = type(module).__name__
        if "params" in variables.get("params", {}):
            raise WrongArguments(
                f"{self.name} has a parameter or submodule called params",
                where="the top of its variables",
                why='Linen calls no module in whose variables "params" stands inside of "params"',
                do="rename it, or put the module inside of another one and bind that",
            )
        leaves, self.structure = jax.tree_util.tree_flatten_with_path(variables)
        names = [".".join(str(key.key) for key in path) for path, _ in leaves]
        values = dict(zip(names, (x for _, x in leaves)))
        self.names = names
        self.params = {k.removeprefix("params."): x for k, x in values.items() if _is_param(k)}
        self.buffers = {k: x for k, x in values.items() if not _is_param(k)}

    def __call__(
        self, training: bool, arrays: Weights, seed: Any, args: tuple, kwargs: dict
    ) -> Any:
        """Returns (output, buffers afterwards.)"""
        values = [arrays[name.removeprefix("params.")] for name in self.names]
        variables = jax.tree.unflatten(self.structure, values)
        rngs = None if seed is None else self._streams(jax.random.key(seed))
        mutable = [x for x in variables if x != "params"] if training else False
        try:
            out = self.module.apply(variables, *args, rngs=rngs, mutable=mutable, **kwargs)
        except InvalidRngError as error:
            raise Unsupported(
                f"{self.name} draws random numbers in evaluation mode",
                why=str(error).partition(" (http")[0],
                do="call train() first, or pass the module's own flag, such as deterministic=True",
            ) from error
        out, written = out if mutable is not False else (out, {})
        written = jax.tree_util.tree_flatten_with_path(dict(written))[0]
        return out, {".".join(str(key.key) for key in path): x for path, x in written}

    @staticmethod
    def _streams(key: jax.Array) -> dict[str, jax.Array]:
        """Returns keys of streams; Flax takes that of params for one of any other name."""
        return {"dropout": key, "params": jax.random.fold_in(key, 1)}


def _is_param(name: str) -> bool:
    return name.startswith("params.")


class FlaxModule(torch.nn.Module):
    """A torch module that JAX computes."""

    def __init__(self, program: NnxProgram | LinenProgram):
        super().__init__()
        self.program = program
        for name, array in program.params.items():
            _add(self, name, torch.nn.Parameter(interop.to_torch(array)))
        for name, array in program.buffers.items():
            _add(self, name, interop.to_torch(array))
        self.functions = _functions(program)

    def __getstate__(self) -> dict[str, Any]:
        """Returns all but compiled programs, which no pickle holds."""
        return {name: x for name, x in vars(self).items() if name != "functions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.functions = _functions(self.program)

    def forward(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        """Computes the Flax module, and writes its buffers in training mode."""
        buffers = dict(self.named_buffers())
        if self.training:  # the graph refuses inputs that are written to before backward()
            buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        arrays = dict(self.named_parameters()) | buffers
        seed = torch.randint(2**31 - 1, (), dtype=torch.int32) if self.training else None
        out, written = self.functions[self.training](arrays, seed, args, kwargs)
        if self.training:
            with torch.no_grad():
                for name, buffer in self.named_buffers():
                    if name in written:
                        buffer.copy_(written[name])
        return out

    def extra_repr(self) -> str:
        return self.program.name


def _functions(program: NnxProgram | LinenProgram) -> dict[bool, Callable]:
    """Returns the functions of tensors for evaluation and training."""
    in_mode = lambda training: from_jax(
        lambda arrays, *rest: program(training, dict(arrays), *rest)
    )
    return {training: in_mode(training) for training in (False, True)}


def _add(module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Adds a parameter or buffer under a path of submodules; their names may be those of torch's
    methods, such as type, and these stay.
    """
    *path, last = name.split(".")
    for step in path:
        module = module._modules.setdefault(step, torch.nn.Module())
    kind = module._parameters if isinstance(tensor, torch.nn.Parameter) else module._buffers
    kind[last] = tensor
