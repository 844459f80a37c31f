"""Whether programs for machines that are not here compute attention by their kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

CALL = re.compile(r"@(?:tpu_custom_call|__cudnn\$fmha\w+)\(")
CONSTANTS = re.compile(r"dense<.*?>|backend_config = \".*?\"")


def text_of(function: Callable, args: tuple, platform: str) -> str:
    """Returns a program for a platform without its constants."""
    program = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,))
    return CONSTANTS.sub("", program.as_text())


def binds(function: Callable, *args: Any) -> bool:
    """Returns whether the operator is in a function's jaxpr."""
    return " attention[" in str(jax.make_jaxpr(function)(*args))


def narrow(x: Any) -> Any:
    """Returns an array, or arrays in a dict or a tuple, with floats of bfloat16."""
    if isinstance(x, dict):
        return {name: narrow(value) for name, value in x.items()}
    if isinstance(x, tuple):
        return tuple(map(narrow, x))
    floating = x is not None and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(jnp.bfloat16) if floating else x


def assert_kernels(function: Callable, *args: Any, platforms=("tpu", "cuda"), dense=()) -> None:
    """Fails unless programs of a function and of its gradient call a kernel for each platform.

    Args:
      function: of arrays; gradients are of its first argument.
      platforms: those to look at.
      dense: those whose kernel takes masks as arrays of all pairs of positions.
    """
    loss = lambda *x: (function(*x).astype(jnp.float32) ** 2).sum()
    narrowed = narrow(args)
    assert binds(function, *narrowed)
    for platform in platforms:
        for of, least in ((function, 1), (jax.grad(loss), 2)):
            text = text_of(of, narrowed, platform)
            assert len(CALL.findall(text)) >= least, platform
            pairs = re.findall(r"256x256x(?:f32|bf16|f16)", text)
            assert platform in dense or not pairs, platform
