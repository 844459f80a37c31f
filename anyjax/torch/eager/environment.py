"""torchax's environment: a context, a seed, and conversions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import jax
import torch

from anyjax import trees
from anyjax.errors import Unsupported
from anyjax.torch.core import interop
from anyjax.torch.eager import random_keys
from anyjax.torch.eager.mode import on_jax
from anyjax.torch.eager.moved import to_jax
from anyjax.torch.eager.tensor import EagerTensor
from anyjax.typing import Output, PyTree, T, TorchOutput


class Environment(contextlib.ContextDecorator):
    """The value of ``default_env()``; ``with env:`` is ``with anyjax.torch.on_jax():``.

    Each thread has its own seed and contexts.
    """

    def __init__(self) -> None:
        self._thread = threading.local()

    def __enter__(self) -> Environment:
        stack = contextlib.ExitStack()
        if not random_keys.compiled_with_key():
            stack.enter_context(random_keys.drawing(self._keys))
        stack.enter_context(on_jax())
        self._stacks.append(stack)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stacks.pop().__exit__(*exception)

    @property
    def _stacks(self) -> list[contextlib.ExitStack]:
        return self._thread.__dict__.setdefault("stacks", [])

    @property
    def _keys(self) -> random_keys.Seeded | None:
        return self._thread.__dict__.get("keys")

    def manual_seed(self, key: int | torch.Tensor) -> None:
        """Seeds the random numbers of this thread's contexts, from now on.

        Without it, they follow ``torch.manual_seed``.
        """
        self._thread.keys = random_keys.Seeded(jax.random.key(int(key)))
        if self._stacks:
            random_keys.reseed(self._thread.keys)

    @property
    def prng_key(self) -> jax.Array:
        """The key that the next draws are made from."""
        if self._keys is None:
            return jax.random.key(torch.initial_seed() % (1 << 63))
        assert self._keys.rng is not None
        return jax.random.fold_in(self._keys.rng, self._keys.draws)

    def get_and_rotate_prng_key(self, generator: torch.Generator | None = None) -> jax.Array:
        """Returns a key that nothing else was or will be drawn from."""
        if self._keys is not None and generator is None:
            return self._keys.draw("get_and_rotate_prng_key")
        seed = random_keys.draw("get_and_rotate_prng_key", generator)
        random_keys.check_fresh("get_and_rotate_prng_key", seed)
        return random_keys.as_key(seed)

    def to_xla(self, torchvalues: T) -> T:
        """Returns tensors of torch's own on JAX; a module moves itself."""
        return to_jax(torchvalues)

    def t2j_iso(self, torchtensors: object) -> Output:
        """Returns the arrays of tensors on JAX."""
        return mapped(lambda x: x.jax(), torchtensors)

    def j2t_iso(self, jaxarray: object) -> TorchOutput:
        """Returns tensors around arrays."""
        is_array = lambda x: isinstance(x, jax.Array)
        return jax.tree.map(
            lambda x: EagerTensor(x) if is_array(x) else x, trees.register(jaxarray)
        )

    def t2j_copy(self, args: object) -> Output:
        """Returns copies of torch's own tensors as arrays."""
        return mapped(interop.to_jax, args)

    def j2t_copy(self, args: object) -> TorchOutput:
        """Returns copies of arrays as tensors of torch's own."""
        copy = lambda x: EagerTensor(x).torch() if isinstance(x, jax.Array) else x
        return jax.tree.map(copy, trees.register(args))

    def override_op_definition(
        self, op_to_override: object, op_impl: Callable[..., PyTree], is_view_op: bool = False
    ) -> None:
        """Raises Unsupported: operators are defined for everybody."""
        raise Unsupported(
            f"override_op_definition of {op_to_override}",
            why="an operator has one lowering, from_torch's as well as on_jax's",
            do="@anyjax.lowers(op) on a function of arrays",
        )


def mapped(function: Callable[..., PyTree], tree: object) -> Any:
    """Returns a pytree with a function of its tensors."""
    is_tensor = lambda x: isinstance(x, torch.Tensor)
    convert = lambda x: function(x) if is_tensor(x) else x
    return jax.tree.map(convert, trees.register(tree), is_leaf=is_tensor)
