"""Tensors on JAX by torchax's names, and the environment that torch code with them runs in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import torch

from anyjax.errors import MissingOps
from anyjax.torch.core import private
from anyjax.torch.eager import environment, random_keys
from anyjax.torch.eager.tensor import FORMULA, EagerTensor, Spec, made_as
from anyjax.torchax import config, modes
from anyjax.torchax.ops import ops_registry
from anyjax.torchax.ops.mappings import j2t as j2t
from anyjax.torchax.ops.mappings import t2j as t2j
from anyjax.typing import PyTree

OperatorNotFound = MissingOps
UNCHANGED: Any = object()
CURRENT: ContextVar[Environment | None] = ContextVar("CURRENT", default=None)
aten = torch.ops.aten
NARROWING = {"select", "slice", aten.slice.Tensor, aten.select.int, aten.diagonal.default}
NARROWING |= {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int}
NARROWING |= {aten.as_strided.default, aten.narrow.default, aten.unfold.default}


class Tensor(EagerTensor):
    """A tensor around a ``jax.Array``, whose device is "jax".

    Args:
      elem: the array, or a tracer.
      env: without meaning: there is nothing of an environment in a tensor.
      requires_grad: whether torch's autograd keeps gradients of it.

    Example:
      >>> import jax.numpy as jnp
      >>> x = Tensor(jnp.ones(2))
      >>> x.device, x.jax_device.platform, x.jax()
      (device(type='jax', index=0), 'cpu', Array([1., 1.], dtype=float32))
    """

    __module__ = "torchax.tensor"

    @staticmethod
    def __new__(cls, elem: jax.Array, env: Environment | None = None, requires_grad: bool = False):
        with made_as(Tensor):
            return EagerTensor(elem).requires_grad_(requires_grad)

    @classmethod
    def class_of(cls, spec: Spec) -> type[EagerTensor]:
        return View if any(step.op in NARROWING for step in spec.steps) else Tensor

    @staticmethod
    def context() -> contextlib.AbstractContextManager:
        return default_env()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with made_as(Tensor):
            if func in modes.MOVES:
                out = modes.moved(func, args, kwargs)
                if out is not NotImplemented:
                    return out
            out = cls.call(func, args, kwargs)
            is_index = func is torch.Tensor.__getitem__ and type(out) is Tensor
            if is_index and out.memory is args[0].memory:  # x[:]
                out.__class__ = View
            return out

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        with made_as(Tensor), private.DisableTorchFunctionSubclass():
            return cls.dispatched(op, args, kwargs or {})

    @classmethod
    def dispatched(cls, op: private.OpOverload, args: tuple, kwargs: dict[str, PyTree]) -> Any:
        env = CURRENT.get()
        if env is not None and (operator := env.find(op)) is not None:
            return modes.serve(env, operator, args, kwargs)
        return cls.run_op(op, args, modes.on_cpu(kwargs))

    @staticmethod
    def overridden() -> bool:
        env = CURRENT.get()
        return env is not None and any(env.tables)

    @property
    def device(self) -> torch.device:
        # torch's own formulas make tensors beside this one, which on_jax puts on JAX.
        return torch.device("cpu") if FORMULA.get() else torch.device("jax", 0)

    @property
    def jax_device(self) -> Any:
        """The device of the array, or its sharding where there are several."""
        return self.jax().device

    @property
    def _elem(self) -> jax.Array:
        return self.jax()

    @_elem.setter
    def _elem(self, array: jax.Array) -> None:
        self.become(Tensor(array))

    @property
    def _env(self) -> Environment:
        return default_env()

    def apply_jax(self, jax_function: Callable[..., PyTree], *args: Any, **kwargs: Any) -> Any:
        """Returns a function of the array, as tensors."""
        return default_env().j2t_iso(jax_function(self.jax(), *args, **kwargs))

    def apply_jax_(self, jax_function: Callable[..., PyTree], *args: Any, **kwargs: Any) -> Tensor:
        """Puts a function of the array in its place."""
        self._elem = jax_function(self.jax(), *args, **kwargs)
        return self

    def shard_(self, sharding: jax.sharding.Sharding) -> None:
        """Divides the array among devices."""
        self.apply_jax_(jax.lax.with_sharding_constraint, sharding)

    def __repr__(self, **kwargs: Any) -> str:
        return f"{type(self).__name__}({type(self.jax())} {self.jax()})"

    __str__ = __repr__


class View(Tensor):
    """A tensor in the memory of another one: what is written to either is seen by both."""

    __module__ = "torchax.view"


class RuntimeProperty:
    """Holds ``mesh``, ``prng`` (a key) and ``autocast_dtype`` of an environment in a thread."""

    def __init__(self, env: Environment, mesh: object = None, autocast_dtype: object = None):
        self._env, self.mesh, self.autocast_dtype = env, mesh, autocast_dtype

    @property
    def prng(self) -> jax.Array:
        return self._env.prng_key

    @prng.setter
    def prng(self, key: jax.Array) -> None:
        self._env.prng_key = key

    def get_and_rotate_prng_key(self) -> jax.Array:
        """Returns a key that nothing else was or will be drawn from."""
        return self._env.get_and_rotate_prng_key()


class Environment(environment.Environment):
    """A context in which ``device="jax"`` and ``x.to("jax")`` make tensors on JAX.

    Tensors without a device are torch's own, as everywhere. Functions put in the place of torch's
    count in this environment alone, those of ``ops.jtorch.register_function`` in all of them.

    Args:
      configuration: settings.

    Example:
      >>> env = Environment()
      >>> env.override_op_definition(torch.relu, lambda x: x * 7)
      >>> with env:
      ...     torch.relu(torch.ones(2, device="jax")).jax(), torch.relu(torch.ones(1))
      (Array([7., 7.], dtype=float32), tensor([1.]))
    """

    def __init__(self, configuration: config.Configuration | None = None):
        super().__init__()
        self.config = configuration or config.Configuration()
        self._ops: dict[Any, ops_registry.Operator] = {}
        self._running = threading.local()

    def __enter__(self) -> Environment:
        stack = contextlib.ExitStack()
        if not random_keys.compiled_with_key():
            stack.enter_context(random_keys.drawing(self._keys))
        stack.callback(CURRENT.reset, CURRENT.set(self))
        stack.enter_context(made_as(Tensor))
        stack.enter_context(modes.DispatchMode(self))
        stack.enter_context(modes.FunctionMode(self))
        self._stacks.append(stack)
        return self

    @property
    def enabled(self) -> bool:
        """Whether this thread is inside."""
        return bool(self._stacks)

    def enable_torch_modes(self) -> None:
        """Enters the context until ``disable_torch_modes``; does nothing where it was entered."""
        if not self.enabled:
            self.__enter__()

    def disable_torch_modes(self, *exc: Any) -> None:
        """Leaves the context, if it was entered."""
        if self.enabled:
            self.__exit__(*(exc or (None, None, None)))

    def load_ops(self) -> None:
        """Does nothing: what was registered counts from then on."""

    @property
    def tables(self) -> tuple[dict[Any, ops_registry.Operator], ...]:
        """Functions in the place of torch's: of this environment, and of all."""
        return self._ops, ops_registry.all_aten_ops, ops_registry.all_torch_functions

    def find(self, func: Any) -> ops_registry.Operator | None:
        """Returns what takes the place of a function or operator of torch, None for most."""
        for table in filter(None, self.tables):
            for key in _keys_of(func):
                operator = table.get(key)
                if operator is not None and operator not in self._served:
                    return operator
        return None

    @property
    def _served(self) -> list[ops_registry.Operator]:
        return self._running.__dict__.setdefault("operators", [])

    @contextlib.contextmanager
    def without(self, operator: ops_registry.Operator) -> Iterator[None]:
        """Leaves torch's own in its place for a while."""
        self._served.append(operator)
        try:
            yield
        finally:
            self._served.pop()

    def override_op_definition(
        self, op_to_override: object, op_impl: Callable[..., PyTree], is_view_op: bool = False
    ) -> None:
        """Puts a function of tensors in the place of a function or operator, here alone.

        Args:
          op_to_override: a torch function, an operator, or all overloads of one.
          op_impl: takes its arguments; ``interop.torch_view(f)`` of a function of arrays.
          is_view_op: without meaning: views are tensors.
        """
        options = False, True, False, is_view_op
        self._ops[op_to_override] = ops_registry.Operator(op_to_override, op_impl, *options)

    @property
    def param(self) -> RuntimeProperty:
        """The values in this thread."""
        return self._thread.__dict__.setdefault("param", RuntimeProperty(self))

    @property
    def prng_key(self) -> jax.Array:
        """The key that the next draws are made from."""
        keys = self._keys
        if keys is None or keys.rng is None or (keys.draws and random_keys.compiling()):
            return super().prng_key
        if keys.draws:
            keys.rng, keys.draws = jax.random.fold_in(keys.rng, keys.draws + 1), 0
        return keys.rng

    @prng_key.setter
    def prng_key(self, key: jax.Array) -> None:
        self._thread.keys = random_keys.Seeded(key)
        if self._stacks:
            random_keys.reseed(self._thread.keys)

    @contextlib.contextmanager
    def override_property(
        self, *, mesh: object = UNCHANGED, prng: jax.Array = UNCHANGED,
        autocast_dtype: torch.dtype | None = UNCHANGED,
    ) -> Iterator[None]:  # fmt: skip
        """Has another mesh, key or dtype of autocast for a while."""
        param, keys = self.param, self._keys
        outer = param.mesh, param.autocast_dtype
        param.mesh = outer[0] if mesh is UNCHANGED else mesh
        param.autocast_dtype = outer[1] if autocast_dtype is UNCHANGED else autocast_dtype
        with contextlib.ExitStack() as stack:
            if autocast_dtype not in (UNCHANGED, None):
                options = {"dtype": autocast_dtype, "cache_enabled": False}
                stack.enter_context(torch.autocast("cpu", **options))
            if prng is not UNCHANGED:
                self._thread.keys = random_keys.Seeded(prng)
                stack.enter_context(random_keys.drawing(self._thread.keys))
            try:
                yield
            finally:
                self._thread.keys, (param.mesh, param.autocast_dtype) = keys, outer

    def to_xla(self, torchvalues: PyTree) -> Any:
        """Returns tensors of torch's own on JAX; a module moves itself."""
        with made_as(Tensor):
            return super().to_xla(torchvalues)

    def j2t_iso(self, jaxarray: object) -> Any:
        """Returns tensors around arrays."""
        with made_as(Tensor):
            return super().j2t_iso(jaxarray)


def _keys_of(func: Any) -> list[Any]:
    if isinstance(func, private.OpOverload):
        return [func, func.overloadpacket]
    return [func, func.default] if _has_default(func) else [func]


def _has_default(func: Any) -> bool:
    return isinstance(func, private.OpOverloadPacket) and "default" in func.overloads()


_ENVIRONMENT = Environment()


def default_env() -> Environment:
    """Returns the environment that all functions of this package use.

    Example:
      >>> with default_env():
      ...     torch.ones(2, device="jax").jax()
      Array([1., 1.], dtype=float32)
    """
    return _ENVIRONMENT
