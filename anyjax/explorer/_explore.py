"""A model to look at: its modules and their work, its weights, its placement on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from anyjax.errors import AnyjaxError, WrongArguments
from anyjax.explorer.modules import Array, modules, owners
from anyjax.explorer.report import Report
from anyjax.explorer.scopes import Scopes
from anyjax.explorer.sharding import sharding_of
from anyjax.explorer.statistics import Statistics, statistics
from anyjax.explorer.texts import texts
from anyjax.explorer.work import Work, readers, work_by_module
from anyjax.model import Model
from anyjax.parallel.estimation.call import Traced, forward_call, trace_call
from anyjax.parallel.estimation.divide.nodes import value_of
from anyjax.parallel.plans.plans import Plan
from anyjax.takes_model import takes_model
from anyjax.trees import is_array

Progress = Callable[[str, int, int], object]


@takes_model
def explore(
    model: Model,
    *args: Any,
    mesh: Mesh | Mapping[str, int] | None = None,
    plan: Plan = "tp",
    values: bool = True,
    progress: Progress | None = None,
    rng: jax.Array | None = None,
    **kwargs: Any,
) -> Report:
    """Looks at a model: its modules with their weights and work, its params with their values.

    The call is traced and neither compiled nor run, and its work is counted operation by operation:
    two FLOPs for each pair of numbers in a matrix product, and one for each element of everything
    else. Bytes moved are those of a program whose elementwise operations are fused.

    Args:
      model: any Model; its arrays may be shapes and dtypes.
      *args: the call, as for ``model(...)``. Without one it is the last call, or one that the
        source makes up.
      mesh: also divide the call over this mesh, or over axes with these sizes, such as
        ``{"model": 4}``. The devices need not be there.
      plan: of the division, as for ``anyjax.parallel.shard``.
      values: read the weights, for moments and histograms.
      progress: called with the name of a step, its number, and their number.
      rng: the key of the call, where it draws random numbers.
      **kwargs: arguments of the call by name.

    Returns:
      A Report: ``to_html(file)`` writes a page, ``to_json()`` returns all figures. A call that
      cannot be traced is a note in it.

    Raises:
      WrongArguments: the arguments do not fit the model, or the plan does not fit the mesh.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU()))
      >>> report = anyjax.explore(model, np.ones((2, 3), np.float32))
      >>> [(x.path, x.kind, x.params, x.work.products) for x in report.modules]
      [('', 'Sequential', 32, 96.0), ('0', 'Linear', 32, 96.0), ('1', 'ReLU', 0, 0.0)]
    """
    progress = progress or (lambda step, i, count: None)
    both = {**model.params, **model.state}
    scopes = Scopes.of(model.source, both)
    progress("tracing", 0, 1)
    traced, notes = _traced(model, args, kwargs, rng)
    work: Work = {}
    by_reader: dict[str, str] = {}
    programs: dict[str, str] = {}
    if traced is not None:
        work, remarks = work_by_module(traced, scopes)
        notes += remarks
        by_reader = readers(traced, scopes)
        names = [role.name for role in traced.roles]
        programs = texts(traced.closed, names, scopes)
    modules_of = owners(both, by_reader, scopes)
    arrays = [_array(name, x, name in model.params, modules_of[name]) for name, x in both.items()]
    return Report(
        name=model.source.name,
        framework=model.source.framework,
        inputs=_inputs(traced),
        modules=modules(scopes, arrays, work),
        arrays=arrays,
        statistics=_statistics(both, progress) if values else {},
        programs=programs,
        traced=traced is not None,
        separator=scopes.separator,
        sharding=None if mesh is None or traced is None else sharding_of(traced, mesh, plan),
        notes=(*notes, *_notes(scopes, traced, mesh)),
    )


def _traced(
    model: Model, args: tuple, kwargs: dict[str, object], rng: jax.Array | None
) -> tuple[Traced | None, list[str]]:
    """Returns the traced call, or None and a note that says why there is none."""
    missing = "FLOPs, bytes moved and programs are missing"
    if getattr(model.source, "programs", None) is not None:
        return None, [f"{missing}: a saved program does not tell its operations."]
    try:
        return trace_call(forward_call(model, args, kwargs, rng)), []
    except AnyjaxError as error:
        if not isinstance(error, WrongArguments):
            return None, [f"{missing}: {error.what}. {error.why}".strip()]
        if args or kwargs:
            raise
        return None, [
            f"{missing}: there is no call to trace: none was given, and the source makes none."
        ]


def _array(name: str, x: jax.Array, trained: bool, module: str) -> Array:
    value = value_of(x)
    size = round(value.size * value.itemsize)
    return Array(name, value.shape, value.dtype, trained, value.size, size, module)


def _inputs(traced: Traced | None) -> dict[str, str]:
    """Returns dtypes and shapes of the call's arrays, by argument."""
    if traced is None:
        return {}
    model, (args, kwargs) = traced.call.model, traced.call.example
    if not (args or kwargs):
        leaves = [x for x, r in zip(traced.leaves, traced.roles) if r.kind == "inputs"]
        return {str(i): _form(x) for i, x in enumerate(leaves)}
    named = dict(zip([*model.source.positional, *map(str, range(len(args)))], args)) | kwargs
    arrays = {
        f"{name}{jax.tree_util.keystr(path)}": model.source.as_array(x)
        for name, tree in named.items()
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }
    return {name: _form(x) for name, x in arrays.items()}


def _form(x: object) -> str:
    return f"{x.dtype}{[*x.shape]}" if is_array(x) else repr(x)


def _statistics(arrays: Mapping[str, jax.Array], progress: Progress) -> dict[str, Statistics]:
    figures: dict[str, Statistics] = {}
    for i, (name, x) in enumerate(arrays.items()):
        progress(f"reading {name}", i, len(arrays))
        if (result := statistics(x)) is not None:
            figures[name] = result
    return figures


def _notes(scopes: Scopes, traced: Traced | None, mesh: object) -> list[str]:
    """Returns what a reader has to know besides."""
    notes = []
    if scopes.stacks:
        notes.append(
            "Repeated layers run as a loop over stacked weights: weights and work of all rounds "
            "are shown at the first layer."
        )
    if scopes.of_nodes and traced is not None:
        notes.append(
            "The program names no modules: the tree is that of the scopes in its nodes' names, and "
            "a weight is shown where it is read first."
        )
    elif not scopes.kinds:
        notes.append("The source names no modules: the tree is that of the names of its weights.")
    if mesh is not None and traced is None:
        notes.append("Sharding is missing, because it needs the traced program.")
    return notes
