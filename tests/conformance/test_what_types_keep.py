"""After a trace, a call and an error every type of transformers is what it was, to the last
attribute, nothing of the trace is left anywhere, and torch computes the same.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import resource
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import AnyjaxError
from anyjax.torch.core import private
from proof.checks import floats
from proof.tiny_inputs import call, tiny
from proof.tiny_models import NoTinyModel
from proof.tiny_models import types as model_types

pytestmark = [pytest.mark.conformance, pytest.mark.filterwarnings("ignore")]

NOT_ENTERED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, property)


def facts(root: object) -> dict[str, Any]:
    """Returns what can be reached from an object, by place."""
    found: dict[str, Any] = {}
    seen: dict[int, object] = {}
    todo: list[tuple[str, Any]] = [("", root)]
    while todo:
        place, x = todo.pop()
        if isinstance(x, torch.Tensor):
            found[place] = (id(x), x.requires_grad, x.grad is None, x.dtype, digest(x))
        elif isinstance(x, np.ndarray):
            found[place] = (id(x), x.shape, str(x.dtype), x.tobytes())
        elif isinstance(x, (bool, int, float, complex, str, bytes, type(None))):
            found[place] = repr(x)
        elif isinstance(x, NOT_ENTERED) or id(x) in seen:
            found[place] = id(x)
        else:
            seen[id(x)] = x
            found[place] = (type(x), id(x) if hasattr(x, "__dict__") else None)
            todo += [(f"{place}.{key}", inner) for key, inner in inside(x)]
    return found


def inside(x: Any) -> Iterator[tuple[object, object]]:
    """Yields what an object holds."""
    if isinstance(x, dict):
        yield from ((repr(k)[:80], v) for k, v in x.items())
    elif isinstance(x, (list, tuple)):
        yield from enumerate(x)
    elif isinstance(x, (set, frozenset)):
        yield from enumerate(sorted(map(repr, x)))
    yield from getattr(x, "__dict__", {}).items()


def digest(x: torch.Tensor) -> str:
    """Returns a checksum of a tensor's values."""
    values = x.detach()
    values = values.view(torch.uint8) if values.is_contiguous() and values.dim() else values
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()


def left_over() -> list[torch.Tensor]:
    """Returns the tensors of traces that are alive."""
    gc.collect()
    return [x for x in gc.get_objects() if type(x) is torch.Tensor and private.is_functional(x)]


class Stop(Exception):
    """Ends a forward pass in its middle."""


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Lets no config make a model of more than 8 GB: some are large whatever they say."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (8 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("name", model_types())
def test_nothing_is_left(name):
    try:
        with bounded_memory():
            case = tiny(name)
    except NoTinyModel as error:
        pytest.skip(str(error))
    module = case.model
    arrays = {k: v.numpy() for k, v in case.inputs.items() if isinstance(v, torch.Tensor)}
    static = {k: v for k, v in case.inputs.items() if k not in arrays}
    before = facts(module)
    model = anyjax.from_torch(module)
    run = lambda p, x: floats(model.apply(p, rng=jax.random.key(0), **x, **static))
    with contextlib.suppress(AnyjaxError):
        jax.jit(run).lower(model.params, arrays)
    assert facts(module) == before
    assert left_over() == []

    children = [*model.source.code.modules()]
    handle = children[len(children) // 2].register_forward_hook(stop)
    with contextlib.suppress(AnyjaxError, Stop):
        jax.jit(run).lower(model.params, arrays)
    handle.remove()
    assert facts(module) == before
    assert left_over() == []
    again = call(module, case.inputs)
    assert all(
        torch.equal(x, y)
        for i, (x, y) in enumerate(zip(again, case.outputs))
        if i not in case.random
    )


def stop(*_: object) -> None:
    """Raises in the middle of a forward pass."""
    raise Stop
