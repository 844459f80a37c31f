"""A torch module as one side of a comparison."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import jax
import ml_dtypes
import numpy as np
import torch

from anyjax import trees
from anyjax.calls.taps import Tap
from anyjax.compare.recorders.torch_calls import submodules, watched
from anyjax.compare.recorders.torch_operators import Operator, Recorder
from anyjax.compare.side import (
    INPUTS,
    NUMBERS,
    OUTPUT,
    Call,
    Passed,
    Values,
    dtype_names,
    input_name,
    numbers,
    state_name,
    state_values,
    whole_numbers,
)
from anyjax.compare.store import Store
from anyjax.compare.torch_modes.dropout import WithoutDropout, dropped, in_modes, masked
from anyjax.compare.torch_modes.wide import WIDE, wide
from anyjax.torch.compat.module_calls import is_transformed
from anyjax.torch.core import interop, private
from anyjax.torch.core.lifting import untransformed
from anyjax.torch.objects.copies import shell
from anyjax.typing import PyTree


class TorchSide:
    """A module that torch runs; its own tensors, buffers and modes stay as they are."""

    name = "torch"

    def __init__(
        self,
        module: torch.nn.Module,
        call: Call,
        modes: Mapping[str, bool],
        trained: Mapping[str, torch.Tensor] | None = None,
    ):
        self.module, self.modes, self.trained = module, modes, trained or {}
        self.note = ""  # for a report
        tensor = partial(_tensor, wide=False)
        self.call = jax.tree.map(tensor, trees.register((call.args, call.kwargs)))
        with in_modes(module, modes):
            self.masked = masked(module)

    def kinds(self) -> dict[str, str]:
        """Returns the class of each module, by path."""
        return {path: type(module).__name__ for path, module in self.module.named_modules()}

    def gradients(self, cotangents: list[np.ndarray], wide: bool = False) -> Passed:
        """Computes gradients, see ``Side``."""
        module = self._copy()
        with in_modes(module, self.modes), around(wide, without_dropout=True):
            named = dict(module.named_parameters())
            named |= {k: x for k, x in self.trained.items() if k in named}
            params = {k: _cast(x.detach(), wide) for k, x in named.items()}
            buffers = {k: _cast(x, wide).clone() for k, x in module.named_buffers()}
            inputs, structure = jax.tree.flatten(self.call)
            inputs = [_tensor(x, wide) for x in inputs]
            leaves = dict(reversed(params.items()))
            leaves |= {input_name(i): x for i, x in enumerate(inputs)}
            leaves = {k: x.requires_grad_() for k, x in leaves.items() if _is_float(x)}
            with torch.enable_grad():
                # the module may write to its inputs, which it may not where they are leaves
                copies = (x.clone() if _is_float(x) else x for x in inputs)
                args, kwargs = jax.tree.unflatten(structure, copies)
                out = torch.func.functional_call(module, params | buffers, args, kwargs)
                weights = [torch.from_numpy(np.asarray(c)) for c in cotangents]
                total = sum((x * w.to(x.dtype)).sum() for x, w in zip(floats(out), weights))
                grads: Sequence[torch.Tensor | None] = [None] * len(leaves)
                if isinstance(total, torch.Tensor) and total.requires_grad:
                    grads = torch.autograd.grad(total, [*leaves.values()], allow_unused=True)
            values = {k: [to_numpy(x.to_dense())] for k, x in zip(leaves, grads) if x is not None}
        return Passed(values)

    def forward(self, wide: bool = False, forced: Values | None = None) -> Passed:
        """Runs the module, see ``Side``."""
        record, module = Record(self.masked, forced), self._copy()
        with record.hooked(module), around(wide, without_dropout=True):
            out, seconds, buffers = self._run(module, wide)
        for name, (x, written) in buffers.items():
            if not _equal(x, written):
                record.values[state_name(name)] = state_values(to_numpy(written))
        record.values[NUMBERS] = numbers(map(to_numpy, tensors(out)))
        record.values[OUTPUT] = [*map(to_numpy, floats(out))]
        in_order = sorted(tensors(out), key=torch.Tensor.is_floating_point)
        dtypes = dtype_names(str(x.dtype).removeprefix("torch.") for x in in_order)
        writable = frozenset(buffers)
        return Passed(record.values, seconds, fixed=record.fixed, dtypes=dtypes, writable=writable)

    def run(self, wide: bool = False) -> tuple[PyTree, dict[str, np.ndarray]]:
        """Runs the module with its dropout; returns its output, and the buffers after it. Code that
        names a dtype has that one, in 64 bits too.
        """
        out, _, buffers = self._run(self._copy(), wide)
        return out, {k: to_numpy(x) for k, (_, x) in buffers.items()}

    def operators(self, pattern: str) -> list[Operator]:
        """Returns the operators that modules with the pattern in their paths call.

        Raises:
          WrongArguments: no module has such a path.
        """
        Tap(pattern).check_paths([path for path, _ in self.module.named_modules()])
        recorder, module = Recorder(pattern), self._copy()
        with around(wide=False, without_dropout=True), recorder.hooked(module), recorder:
            self._run(module)
        return recorder.operators

    def arguments(self, path: str) -> tuple[tuple, dict[str, PyTree]]:
        """Returns what a module is first called with."""
        if path == OUTPUT:
            return jax.tree.map(partial(_tensor, wide=False), self.call)
        calls: list[tuple[tuple, dict[str, PyTree]]] = []
        record = lambda path, *call: calls.append(copy.deepcopy(call))
        module = self._copy()
        inner = [(path, module.get_submodule(path))]
        with around(wide=False, without_dropout=True), watched(inner, record):
            self._run(module)
        return calls[0]

    def _copy(self) -> torch.nn.Module:
        """Returns the module for one pass: what that writes to attributes no other pass sees."""
        return shell(self.module, settings=True)[0]

    def _run(
        self, module: torch.nn.Module, wide: bool = False
    ) -> tuple[PyTree, float, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        """Calls a copy of the module; returns its output, the seconds that it took, and its buffers
        as they were and are.
        """
        with ExitStack() as stack:
            stack.enter_context(in_modes(module, self.modes))
            stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.enter_context(torch.no_grad())
            in_module = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            is_parameter = lambda x: isinstance(x, torch.nn.Parameter)
            copied = {k: _cast(x, wide) if is_parameter(x) else _cast(x, wide).clone()
                      for k, x in in_module.items() if wide or not is_parameter(x)}  # fmt: skip
            copied |= {k: _cast(x, wide).clone() for k, x in self.trained.items() if k in in_module}
            args, kwargs = jax.tree.map(lambda x: _tensor(x, wide), self.call)
            buffers = {k: copied[k].clone() for k, _ in module.named_buffers()}
            began = time.perf_counter()
            out = torch.func.functional_call(module, copied, args, kwargs)
            seconds = time.perf_counter() - began
            return out, seconds, {k: (x, copied[k]) for k, x in buffers.items()}


def unused(module: torch.nn.Module, called: Set[str]) -> list[str]:
    """Returns the outermost modules with weights of which no part is among those called."""
    running = {x[: i or None] for x in called for i in (0, *_dots(x))} | {""}
    outermost: dict[str, None] = {}
    for path, inner in module.named_modules():
        outer = path.rpartition(".")[0]
        is_read = isinstance(module.get_submodule(outer), torch.nn.MultiheadAttention)
        if path not in running and outer in running and not is_read and [*inner.parameters()]:
            outermost[path] = None
    return [*outermost]


def _dots(path: str) -> list[int]:
    return [i for i, x in enumerate(path) if x == "."]


class Record:
    """The values of modules in one forward pass, by hooks; ``forced`` ones take their place.

    Outputs of the modules in ``masked`` are dropped with masks of torch's, unless they are forced.
    """

    def __init__(self, masked: frozenset[str], forced: Values | None):
        self.masked, self.forced = masked, forced
        self.values = Store()
        self.runs: Counter[str] = Counter()
        self.fixed: dict[str, str] = {}
        self.objects: dict[int, tuple[str, object]] = {}  # the objects, so that ids stay theirs

    def hooked(self, module: torch.nn.Module) -> AbstractContextManager[None]:
        """Watches the calls of submodules for a while."""
        self.module = module
        return watched(submodules(module), self._enter, self._leave, replaces=True)

    def _key(self, path: str) -> str:
        return f"{path}#{self.runs[path]}" if self.runs[path] else path

    def _enter(self, path: str, args: tuple, kwargs: dict) -> PyTree:
        key = self._key(path) + INPUTS
        leaves, structure = trees.plain_leaves((args, kwargs))
        for place, leaf in leaves.items():
            self._note(key + place, leaf)
        if self.forced is None or is_transformed(leaves):
            return None
        replacements = {
            k: replaced(x, self.forced.get(key + k))
            for k, x in leaves.items()
            if isinstance(x, torch.Tensor)
        }
        leaves |= {k: x for k, x in replacements.items() if x is not None}
        return jax.tree.unflatten(structure, leaves.values())

    def _note(self, key: str, leaf: PyTree) -> None:
        """Notes an input: a tensor, or the tensors of an object, such as a cache."""
        tensors = [] if isinstance(leaf, trees.PLAIN) else floats(leaf)
        if isinstance(leaf, torch.Tensor) and not (tensors or leaf.is_complex()):
            self.values[key] = whole_numbers(to_numpy(leaf))
            self.fixed[key] = key
        elif isinstance(leaf, torch.Tensor):
            self.values[key] = [*map(to_numpy, tensors)]
        elif tensors:
            self.fixed[key], _ = self.objects.setdefault(id(leaf), (key, leaf))
            if self.fixed[key] == key:
                self.values[key] = [*map(to_numpy, tensors)]

    def _leave(self, path: str, args: tuple, kwargs: dict, out: PyTree) -> PyTree:
        key = self._key(path)
        self.runs[path] += 1
        if path in self.masked and self.forced is None:
            out = dropped(self.module.get_submodule(path), *args)
        self.values[key] = [*map(to_numpy, floats(out))]
        if self.forced is None or is_transformed(tensors(out)):
            return out
        return replaced(out, self.forced.get(key))


_wide = wide


@contextmanager
def around(wide: bool, without_dropout: bool) -> Iterator[None]:
    """Runs torch code in 64 bits if it is to be ``wide``, and with or without dropout."""
    with _wide() if wide else nullcontext(), WithoutDropout() if without_dropout else nullcontext():
        yield


def tensors(tree: PyTree) -> list[torch.Tensor]:
    """Returns the tensors in an output, in order."""
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    return [*filter(is_tensor, jax.tree.leaves(trees.register(tree), is_leaf=is_tensor))]


def floats(tree: PyTree) -> list[torch.Tensor]:
    """Returns the floating-point tensors in an output, in order."""
    return [x for x in tensors(tree) if x.is_floating_point()]


def replaced(tree: PyTree, arrays: list[np.ndarray] | None) -> PyTree | None:
    """Returns an output with other floating-point values; None, for no change, if they differ in
    number or shape.
    """
    tensors = floats(tree)
    if arrays is None or [t.shape for t in tensors] != [a.shape for a in arrays]:
        return None
    values = iter(arrays)
    # by way of 64 bits, which hold any narrower float: numpy has no bfloat16
    cast = lambda x: torch.from_numpy(np.asarray(next(values), np.float64)).to(x.dtype)
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    change = lambda x: cast(x) if is_tensor(x) and x.is_floating_point() else x
    return jax.tree.map(change, tree, is_leaf=is_tensor)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Returns a copy of a tensor's values as they are now; bfloat16 stays bfloat16."""
    tensor = untransformed(tensor)
    with private.without_transforms():  # which would go on
        if tensor.dtype is torch.bfloat16:
            return tensor.float().numpy(force=True).astype(ml_dtypes.bfloat16)
        return tensor.numpy(force=True).copy()


def _tensor(leaf: PyTree, wide: bool) -> PyTree:
    """Returns an array as a tensor that the module may write to, anything else as it is."""
    if isinstance(leaf, (np.ndarray, np.generic, jax.Array)):
        leaf = interop.to_torch(jax.numpy.asarray(leaf))
        leaf = leaf.long() if leaf.dtype is torch.int32 else leaf
    return _cast(leaf, wide).detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _is_float(leaf: PyTree) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether two tensors are the same to the last bit, NaNs too."""
    same_kind = a.shape == b.shape and a.dtype == b.dtype
    return same_kind and bool(((a == b) | ((a != a) & (b != b))).all())


def _cast(tensor: torch.Tensor, wide: bool) -> torch.Tensor:
    return tensor.detach().to(WIDE.get(tensor.dtype, tensor.dtype)) if wide else tensor
