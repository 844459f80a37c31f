"""A torch module or function as the source of a Model: weights swapped in, forward traced, writes
read back.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, Literal

import jax
import torch
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from anyjax import trees
from anyjax.calls.taps import Readings, Tap
from anyjax.errors import AnyjaxError, Unsupported
from anyjax.model import Model
from anyjax.numerics.conditions import enforced
from anyjax.source import SourceBase, SourceCache
from anyjax.torch import arguments
from anyjax.torch.autograd import hooks, lost, requires_grad
from anyjax.torch.autograd.tape import Tape
from anyjax.torch.compat import hf_cache, hf_plans, jax_functions, module_calls
from anyjax.torch.control_flow import branches
from anyjax.torch.core import interop, private
from anyjax.torch.core.current_trace import GIVES_UP, Restart, restarted
from anyjax.torch.core.dtypes import to_jax
from anyjax.torch.core.lifting import inner, lift, value_in
from anyjax.torch.core.modules import named_modules
from anyjax.torch.core.precision import Option, Precision, precision_of
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent import int64
from anyjax.torch.engine import census, compare_cache
from anyjax.torch.engine.callback import check_on_missing
from anyjax.torch.engine.session import LOCK, tracing
from anyjax.torch.objects import walk
from anyjax.torch.objects.functions import Function, as_module, original
from anyjax.torch.sizes import result
from anyjax.torch.state import shared_memory
from anyjax.torch.state.slots import Slots
from anyjax.torch.state.snapshot import Snapshot, in_mode
from anyjax.torch.state.torchscript import modes
from anyjax.torch.state.uncarried import Uncarried
from anyjax.typing import PyTree


@dataclass(frozen=True, eq=False)
class TorchSource(SourceBase):
    """Calls ``module`` with JAX arrays for weights; hashable by module and mode.

    ``training`` holds the mode of every submodule, in the order of ``module.modules()``;
    ``snapshot`` the module as it was converted, which nobody else sees; without one, the module
    itself is traced.
    """

    module: torch.nn.Module
    training: tuple[bool, ...]
    on_missing: str = "error"
    precision: Precision = field(default_factory=partial(precision_of, "torch"))
    snapshot: Snapshot | None = field(default=None, repr=False)
    framework = "torch"
    taps_must_run = True

    def __eq__(self, other):
        same = isinstance(other, TorchSource) and self.module is other.module
        form = lambda x: (x.training, x.on_missing, x.precision, x.taps, x.snapshot)
        return same and form(self) == form(other)

    def __hash__(self):
        return hash((id(self.module), self.training, self.on_missing))

    @property
    def name(self) -> str:
        """The class of the module."""
        if isinstance(self.module, Function):
            return self.module.name
        return getattr(self.module, "original_name", type(self.module).__name__)

    @property
    def code(self) -> torch.nn.Module:
        """The module whose forward runs: the snapshot, where there is one."""
        return self.snapshot.module if self.snapshot else self.module

    @functools.cached_property
    def slots(self) -> Slots:
        """Where the module keeps its tensors."""
        with LOCK:  # another thread's trace of the same module has its own there
            return Slots.of(self.code)

    vars(slots)["lock"] = LOCK  # Python 3.11 takes one for all instances: no other before that

    @functools.cached_property
    def paths(self) -> dict[int, str]:
        """Paths of the submodules by ``id``."""
        return {id(module): path for path, module in named_modules(self.code).items() if path}

    @functools.cached_property
    def submodules(self) -> list[torch.nn.Module]:
        """The submodules that torch's hooks see."""
        modules = [x for x in named_modules(self.code).values() if id(x) in self.paths]
        return [x for x in modules if not isinstance(x, torch.jit.ScriptModule)]

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The signature of forward, without self."""
        try:
            return inspect.signature(self.module.forward)
        except ValueError:  # a builtin that does not tell
            return inspect.signature(lambda *args, **kwargs: None)

    def in_mode(self, training: bool) -> TorchSource:
        """Returns the same source in training or evaluation mode, as the module's own ``train`` has
        it.
        """
        with LOCK:
            modes, snapshot = in_mode(self.code, self.training, training)
        return self.with_modes(modes, snapshot or self.snapshot)

    def with_modes(self, modes: tuple[bool, ...], snapshot: Snapshot | None = None) -> TorchSource:
        """Returns the same source with a mode for every submodule."""
        snapshot = snapshot or self.snapshot
        cache = self.cache.variant((self.training, self.snapshot), (modes, snapshot))
        return replace(self, training=modes, snapshot=snapshot, cache=cache)

    def tapped(self, tap: Tap) -> TorchSource:
        """Returns the same source with a tap on its modules.

        Raises:
          WrongArguments: no module has such a path.
        """
        tap.check_paths([*self.paths.values()])
        return replace(self, taps=(*self.taps, tap), cache=SourceCache())

    def initial(self, *args: Any) -> dict[str, jax.Array]:
        """Returns what the initialisers of the module draw, by name."""
        return import_module("anyjax.torch.initialise").initial(self, *args)

    flags = property(lambda self: torch.get_default_dtype())  # of numbers, as it is set now

    @property
    def unpicklable(self) -> str:
        """The reason why no pickle can hold it, "" where one can."""
        modules = [*self.module.modules()]
        if any(map(is_parametrized, modules)):
            return "torch pickles no parametrized module"
        if any(isinstance(x, torch.jit.ScriptModule) for x in modules):
            return "torch pickles no TorchScript"
        return ""

    def __getstate__(self) -> dict[str, object]:
        with LOCK:  # a copy that no trace fills while it is pickled
            snapshot = self.snapshot and Snapshot.of(self.code)
        return super().__getstate__() | {"snapshot": snapshot}

    def as_array(self, leaf: object) -> Any:
        """Returns an input leaf as JAX takes it."""
        return interop.to_jax(leaf) if isinstance(leaf, torch.Tensor) else super().as_array(leaf)

    def __call__(self, params, state, args, kwargs, rng=None) -> tuple[Any, trees.Written]:
        """Runs forward on arrays or tracers; returns its output and the state entries that it
        wrote.
        """
        self.slots.check(params, state)
        trees.register((args, kwargs))
        if "transformers" in sys.modules:
            kwargs = hf_cache.renamed(self.module, self.signature, kwargs)
        arguments.check(self.signature, args, kwargs)
        settings = {k: self._setting(k, v) for k, v in state.items() if trees.is_setting(v)}
        traced = {k: v for k, v in state.items() if k not in settings}
        uncarried = Uncarried()
        weights = params, traced, settings
        forward: Any = partial(self._forward, weights, (args, kwargs), rng, uncarried)
        if not walk.ARRAYS.issuperset(map(type, (*args, *kwargs.values()))):
            forward = walk.giving_back((args, kwargs), forward)
        state_before = lambda name: state.get(name, self.slots.attributes.leaves().get(name))
        run = partial(branches.all_paths, forward, state_before)
        with LOCK, census.taken():  # of the tensors of this thread alone
            out = self._knowing(run)
            if out[1]:
                shared_memory.check(self.slots.overlapping, out[1])
            if uncarried.changes or uncarried.counts:
                uncarried.check(run, self.cache.notes.setdefault(Uncarried, set()))
            uncarried.over()
        return out

    def _knowing(self, run: Callable[[], tuple]) -> tuple[Any, trees.Written]:
        """Returns the results of the first run that needs to know nothing more."""
        while True:
            try:
                return run()
            except Restart as end:
                end.__traceback__ = None  # its frames hold tensors of a trace that is over
                end.remember(self.cache.notes)
            except (AnyjaxError, jax.errors.UnexpectedTracerError):
                gives_up = self.cache.notes.get(GIVES_UP)
                if gives_up is None or not gives_up(self.cache.notes):
                    raise

    def _forward(self, weights, given, rng, uncarried, path) -> tuple[Any, trees.Written]:
        """Runs the module once, with these answers to conditions."""
        args, kwargs = given
        inputs = (*trees.names(args, kwargs, self.positional), "the parameters", trees.STATE)
        options = self.on_missing == "callback", Tape in self.cache.notes, self.precision
        with tracing(rng, inputs, *options) as trace:
            trace.path, trace.paths, trace.notes = path, self.paths, self.cache.notes
            trace.readings = readings = Readings(self.taps) if self.taps else None
            args, kwargs = self._inputs(given)
            tensors, state_ids = self._tensors(trace, *weights)
            with (
                restarted(self.cache.notes),
                self.slots.filled(tensors, self.training, uncarried) as read_state,
                arguments.explained(trace),
                jax_functions.explained(),
            ):
                with (
                    module_calls.scoped(trace, self.submodules),
                    readings.around() if readings else nullcontext(),
                ):
                    out = self.code(*args, **kwargs)
                if readings is not None:
                    out = readings.beside(out, self.taps_must_run)
                if trace.path.first:  # of several ways one may have no gradient
                    lost.check(weights[0], given, out)
                out, unchecked = self._arrays(trace, out)
                written = read_state()
            trace.unread.difference_update(map(id, jax.tree.leaves((out, dict(written)))))
            out, holds = enforced(out, trace.conditions) if trace.conditions else (out, None)
            overwritten_unread = {k for k, at in state_ids.items() if at in trace.unread}
            missed = written.missed | (written.keys() & {*weights[0], *trace.state})
            missed -= overwritten_unread
        entries = trees.Written(written, missed, holds, unchecked, trace.stepped)
        return trees.plain_dicts(out), entries

    def _inputs(self, given: tuple[tuple, dict[str, Any]]) -> tuple[tuple, dict[str, Any]]:
        """Returns the arguments of forward as tensors of the trace."""
        leaves, structure = jax.tree.flatten(given)
        wrapped = [interop.input_tensor(leaf, 2 << i) for i, leaf in enumerate(leaves)]
        lifted = [lift(x) if isinstance(x, torch.Tensor) else x for x in wrapped]
        requires_grad.ask_for_gradients([x for x in lifted if isinstance(x, torch.Tensor)])
        return jax.tree.unflatten(structure, lifted)

    def _tensors(
        self, trace, params, traced, settings
    ) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
        """(Params and state as tensors of the trace, by name; ids of the state's traced arrays.)"""
        last = 1 << len(trace.inputs)
        trace.state = self._weights(traced, last)
        state_ids = {k: id(value_in(v)) for k, v in trace.state.items()}
        trace.unread = {*state_ids.values()}
        trace.state |= {k: lift(v) for k, v in settings.items()}
        tensors = self._weights(params, last >> 1) | trace.state
        module_tensors = self.slots.tensors
        if self.slots.hooked:
            hooks.of_parameters(module_tensors, tensors)
        trace.weights = {id(t): tensors[k] for k, t in module_tensors.items() if k in tensors}
        return tensors, state_ids

    def _arrays(self, trace, out: PyTree) -> tuple[Any, str | None]:
        """Returns (the output with arrays in the place of tensors, which integers in it nothing
        checks.)
        """
        out = trees.keep_order(trees.register(out))
        trace.path.check(inner(x) for x in jax.tree.leaves(out) if isinstance(x, torch.Tensor))
        unchecked = int64.unchecked(out) if trace.conditions else None
        is_tensor = lambda x: isinstance(x, torch.Tensor)
        return jax.tree.map(result.known, out, is_leaf=is_tensor), unchecked

    def _weights(self, arrays, origin: int) -> dict[str, torch.Tensor]:
        """They have the module's dtypes, or those that the caller gave them (bfloat16)."""
        by_name = {k: jax.numpy.asarray(v) for k, v in arrays.items()}
        declared = self.slots.dtypes.items()
        dtypes = {k: x for k, x in declared if k in by_name and to_jax(x) == by_name[k].dtype}
        lifted = {k: lift(JaxTensor(v, dtypes.get(k), origin)) for k, v in by_name.items()}
        requires_grad.as_they_were(self.slots.tensors, lifted)
        return lifted

    def _setting(self, name: str, array) -> torch.Tensor:
        """A buffer that stays a constant of the trace, so that shapes may come from it."""
        tensor = interop.to_torch(array)
        return tensor.to(self.slots.dtypes.get(name, tensor.dtype))

    def own_plan(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Returns (the plan for tensor parallelism that the module brings along, all names of
        weights.)
        """
        paths: dict[str, list[str]] = {}
        names = {id(t): k for k, t in self.slots.tensors.items()}
        for name, tensor in self.code.named_parameters(remove_duplicate=False):
            paths.setdefault(names[id(tensor)], []).append(name)
        return hf_plans.own_plan(self.code), paths

    def examples(self) -> list[hf_plans.Call]:
        """Calls that the module can take, where it tells."""
        return hf_plans.examples(self.code)

    def write_back(self, params, state) -> torch.nn.Module:
        """Copies params and state into the module's own tensors and returns it."""
        self.slots.check(params, state)
        with torch.no_grad():
            for name, array in {**params, **state}.items():
                if not self.slots.optimizers.keeps(name):
                    self.slots.tensors[name].copy_(interop.to_torch(array))
        Slots.of(self.module).optimizers.write_back(state)
        return self.module


def source_of(
    module: torch.nn.Module, on_missing: str = "error", precision: Option = "torch"
) -> TorchSource:
    """Returns a module as a source, in the mode that it is in."""
    return TorchSource(module, modes(module), on_missing, precision_of(precision))


@private.uncompiled
def from_torch(
    source: torch.nn.Module | Callable[..., object],
    *,
    on_missing: Literal["error", "callback"] = "error",
    precision: Option = "torch",
) -> Model:
    """Returns a torch module, or any function of torch tensors, as a pure JAX function plus a
    params pytree.

    The module is taken as it is: changes of its attributes afterwards are not seen, and other
    threads may use it at any time. Its mode (train or eval, submodule by submodule) is kept.
    Inputs of floats require a gradient, as those of a torch user do who asks for it, so hooks and
    ``torch.autograd.grad`` inside act on the gradients that JAX takes; ``x.detach()`` does not.
    Weights are copied, large ones when torch writes to them; tied weights are one entry under their
    first name. Optimizers and schedules that a function refers to are its state, and so are the
    weights that they own: a training step, one call of ``apply(..., mutable=True)`` each, the first
    of which makes moments and gradients. Modules that a function refers to (as a method, in its
    closure, in a partial) bring their weights along under the name that it knows them by.

    Args:
      source: an ``nn.Module``, or a callable whose tensors come in as arguments. TorchScript
        modules (also from a file), compiled ones and a ``torch.export.ExportedProgram`` count as
        the modules that they were made of; frozen TorchScript has no params.
      on_missing: what happens at operators that have neither a lowering nor a decomposition:
        "error" names them all, "callback" runs them in torch on the CPU, with torch's gradients,
        and says so once (``TorchCallback``).
      precision: of products and convolutions in float32 on GPUs and TPUs. "torch" asks JAX for what
        torch's flags say now (``torch.get_float32_matmul_precision()``,
        ``torch.backends.cudnn.allow_tf32``), "default" leaves it to JAX, which computes in TF32 or
        bfloat16 there, "highest" is float32, "exact" computes attention by its formula, too.

    Returns:
      A Model: ``params`` holds the parameters that require a gradient, ``state`` the others and the
        buffers.

    Raises:
      Unsupported: ``source`` is neither, or one of its tensors has no JAX counterpart.
      WrongArguments: ``on_missing`` or ``precision`` is none of those.

    Example:
      >>> import torch, numpy as np
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> model(np.ones((5, 3), np.float32)).shape
      (5, 2)
      >>> sorted(model.params)
      ['bias', 'weight']
      >>> anyjax.from_torch(lambda x: x.flip(0))(np.arange(3)).tolist()
      [2, 1, 0]
    """
    source = original(source)
    if isinstance(source, type) or not callable(source):
        raise Unsupported(
            f"from_torch takes an nn.Module or a function, not {source!r}",
            why="a class has no weights yet" if isinstance(source, type) else "it cannot be called",
            do="pass an instance, Module(...); anyjax.from_pretrained takes folders and hub ids",
        )
    if isinstance(source, torch.nn.Module) and any(map(is_lazy, source.parameters())):
        raise Unsupported(
            f"{type(source).__name__} has parameters without a shape",
            where=", ".join(n for n, p in source.named_parameters() if is_lazy(p)),
            why="lazy modules make them when they are first called",
            do="call the torch module once before converting it",
        )
    check_on_missing(on_missing)
    compare_cache.load()
    module = source if isinstance(source, torch.nn.Module) else as_module(source)
    with LOCK:  # what cannot be copied is not read while another thread traces it
        built = replace(source_of(module, on_missing, precision), snapshot=Snapshot.of(module))
        slots = built.slots
        slots.warn_unregistered()
        params = {k: interop.to_jax(slots.tensors[k]) for k in slots.params}
        state = {k: interop.to_jax(slots.tensors[k]) for k in slots.state}
    return Model(params, state | slots.optimizers.initial(), built)


# Code that torch.compile watches may call a Model: Dynamo's graph ends there.
for method in (Model.__call__, Model.apply):
    private.uncompiled(method)
