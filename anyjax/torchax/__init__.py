"""torchax's names over anyjax: ``anyjax.torchax.install()`` before a program imports torchax.

After it ``import torchax`` is this package. Tensors of ``device="jax"`` are
``anyjax.torch.on_jax``'s; here they have that device, as torchax's have.
"""

# torch is Any here (pyproject.toml), in which all overloads are one.
# mypy: disable-error-code="overload-cannot-match"

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
import torch

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.eager import jittable
from anyjax.torch.eager.tensor import made_as
from anyjax.torchax import amp as amp
from anyjax.torchax import checkpoint as checkpoint
from anyjax.torchax import config as config
from anyjax.torchax import device_module as device_module
from anyjax.torchax import export as export
from anyjax.torchax import flax as flax
from anyjax.torchax import interop as interop
from anyjax.torchax import mesh_util as mesh_util
from anyjax.torchax import ops as ops
from anyjax.torchax import tensor as tensor
from anyjax.torchax import train as train
from anyjax.torchax import types as types
from anyjax.torchax import util as util
from anyjax.torchax import view as view
from anyjax.torchax.checkpoint import load_checkpoint, save_checkpoint
from anyjax.torchax.interop import JittableModule
from anyjax.torchax.tensor import default_env
from anyjax.typing import PyTree, TorchOutput

__all__ = [
    "CompileOptions", "JittableModule", "compile", "default_env", "disable_globally",
    "disable_temporarily", "enable_accuracy_mode", "enable_globally", "enable_performance_mode",
    "extract_jax", "install", "load_checkpoint", "save_checkpoint",
]  # fmt: skip

__version__ = VERSION = "0.0.14"  # the release whose names these are
MODULES = ("_torch_compat", "ops.jaten", "ops.jlibrary", "ops.jtorch", "ops.mappings")
for module in MODULES:
    importlib.import_module(f"{__name__}.{module}")

device_module.register()


def install() -> None:
    """Makes ``import torchax`` import this package, in all of this process from now on.

    Raises:
      Unsupported: torchax itself was imported before.

    Example:
      >>> install()
      >>> import torchax
      >>> torchax is sys.modules["anyjax.torchax"]
      True
    """
    name = "torchax"
    if sys.modules.get(name, sys.modules[__name__]) is not sys.modules[__name__]:
        raise Unsupported(
            "anyjax.torchax.install() after torchax was imported",
            why="parts of the program would have its tensors, parts those of anyjax",
            do="call it before the first import torchax",
        )
    loaded = [x for x in sys.modules if x == __name__ or x.startswith(f"{__name__}.")]
    for module in loaded:
        sys.modules[name + module.removeprefix(__name__)] = sys.modules[module]


def extract_jax(
    mod: torch.nn.Module, env: tensor.Environment | None = None, *, dedup_parameters: bool = True,
    tie_weights: bool = True,
) -> tuple[dict[str, jax.Array], Callable[..., Any]]:  # fmt: skip
    """Returns the module as ``(states, func)`` with ``func(states, args, kwargs)``.

    What forward writes to the state is not returned; ``anyjax.from_torch`` has a way for that.

    Args:
      mod: a torch module.
      env: the environment that it runs in.
      dedup_parameters, tie_weights: whether tied parameters have one name.

    Example:
      >>> states, func = extract_jax(torch.nn.Linear(3, 2))
      >>> jax.jit(func)(states, (jnp.ones((5, 3)),)).shape, sorted(states)
      ((5, 2), ['bias', 'weight'])
    """
    env = env or default_env()
    with made_as(tensor.Tensor):  # a copy: the module stays where it is
        module = jittable.JittableModule(mod)
    trained, constant = interop.tensors_of(module._model, dedup_parameters and tie_weights)
    states: Any = env.t2j_copy(constant | trained)

    def func(states: dict[str, jax.Array], args: tuple, kwargs: dict | None = None) -> Any:
        params = {name: x for name, x in states.items() if name in trained}
        buffers = {name: x for name, x in states.items() if name in constant}
        sizes = {d for x in jax.tree.leaves((args, kwargs)) for d in getattr(x, "shape", ())}
        if not {*map(type, sizes)} <= {int}:  # jax.export
            return export.of_open_sizes(mod, env)(states, args, kwargs or {})
        is_numpy = lambda x: isinstance(x, np.ndarray)
        args, kwargs = jax.tree.map(
            lambda x: jnp.asarray(x) if is_numpy(x) else x, trees.register((args, kwargs or {}))
        )
        arguments = env.j2t_iso((params, buffers, args, kwargs))
        params, buffers, args, kwargs = arguments
        with env:
            out = module.functional_call("forward", params, buffers, *args, **kwargs)
        return env.t2j_iso(out)

    return states, func


def enable_globally() -> None:
    """Enters the environment in this thread, until ``disable_globally``.

    Example:
      >>> enable_globally()
      >>> torch.ones(2, device="jax").jax()
      Array([1., 1.], dtype=float32)
      >>> disable_globally()
    """
    default_env().enable_torch_modes()


def disable_globally() -> None:
    """Leaves the environment in this thread.

    Example:
      >>> enable_globally()
      >>> disable_globally()
      >>> torch.ones(2).device.type
      'cpu'
    """
    default_env().disable_torch_modes()


@contextlib.contextmanager
def disable_temporarily() -> Iterator[None]:
    """Leaves the environment for a while.

    Example:
      >>> with default_env(), disable_temporarily():
      ...     torch.ones(2).device.type
      'cpu'
    """
    enabled = default_env().enabled
    if enabled:
        disable_globally()
    try:
        yield
    finally:
        if enabled:
            enable_globally()


def enable_accuracy_mode() -> None:
    """Has 64-bit numbers, and products of full precision, in all of this process.

    Example:
      >>> enable_accuracy_mode()
      >>> jnp.ones(2).dtype
      dtype('float64')
      >>> enable_performance_mode()
    """
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")


def enable_performance_mode() -> None:
    """Has 32-bit numbers, and products of the platform's precision, in all of this process.

    Example:
      >>> enable_performance_mode()
      >>> jnp.ones(2).dtype
      dtype('float32')
    """
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_default_matmul_precision", "default")


@dataclasses.dataclass
class CompileOptions:
    """Options of ``compile``.

    Attributes:
      methods_to_compile: of a module.
      jax_jit_kwargs: those of ``jax.jit``.
      mode: "jax".

    Example:
      >>> CompileOptions(methods_to_compile=["encode"], jax_jit_kwargs={"donate_argnums": 0}).mode
      'jax'
    """

    methods_to_compile: list[str] = dataclasses.field(default_factory=lambda: ["forward"])
    jax_jit_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    mode: str = "jax"


@overload
def compile(fn: torch.nn.Module, options: CompileOptions | None = None) -> JittableModule: ...
@overload
def compile(
    fn: Callable[..., PyTree], options: CompileOptions | None = None
) -> Callable[..., TorchOutput]: ...


def compile(fn: Callable[..., PyTree], options: CompileOptions | None = None) -> object:
    """Returns a module as a ``JittableModule``, and a function as ``interop.jax_jit`` does.

    Args:
      fn: a module, or a function of tensors.
      options: what to compile, and how.

    Raises:
      RuntimeError: ``options.mode`` is another one than "jax".

    Example:
      >>> with default_env():
      ...     compile(lambda x: x * 2)(torch.ones(2, device="jax")).tolist()
      [2.0, 2.0]
    """
    options = options or CompileOptions()
    if options.mode != "jax":
        raise RuntimeError(f"{options.mode} mode is not supported yet")
    if not isinstance(fn, torch.nn.Module):
        return interop.jax_jit(fn, options.jax_jit_kwargs)
    module = JittableModule(fn, options.jax_jit_kwargs)
    for name in options.methods_to_compile:
        module.make_jitted(name)
    return module
