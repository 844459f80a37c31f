"""Arguments whose values decide what is computed: grids of pictures, lengths, masks that lay out.

A program knows their values, and is compiled once for each of them. In a batch such an array is a
node without leaves, compared and hashed by content, so that ``jax.jit`` itself keeps the programs
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import jax

from anyjax import trees, warn_once
from anyjax.errors import DataDependent, ManyCompilations, StaticArgument, WrongArguments
from anyjax.source import Source
from anyjax.trees import Constant, Static
from anyjax.typing import PyTree

MANY = 16  # layouts that look as if there were more to come
HOLDERS: set[type] = {Static, Constant, tuple, list, dict}  # arguments that may be static, in part
Batch = TypeVar("Batch")


def static(model: Any, batch: Batch, *, rng: jax.Array | None = None) -> Batch:
    """Makes the arrays of a batch static whose values decide what the model computes.

    Grids of pictures, lengths of sounds, masks that lay out: the model reads them as numbers while
    it is traced. They are found by the model's own refusals, once for all batches of this kind, and
    become a part of the batch's structure. ``jax.jit`` and other transformations then take the
    batch as it is, and compile one program for each of their values.

    Args:
      model: any Model.
      batch: its arguments, a dict by name or a tuple, with values.
      rng: the key of the call, where it draws random numbers; only its kind counts.

    Returns:
      The batch, with those arrays static, and what is no array: Python numbers, bools, texts. The
      other arrays are untouched.

    Raises:
      DataDependent: floats or weights decide, or arrays whose values are not known.
      WrongArguments: the batch is neither a dict nor a tuple.

    Example:
      >>> import jax, numpy as np, torch
      >>> rows = lambda x, counts: torch.stack([part.sum() for part in x.split(counts.tolist())])
      >>> model = anyjax.from_torch(rows)
      >>> batch = anyjax.static(model, (np.arange(4.0), np.array([1, 3])))
      >>> jax.jit(model.apply)(model.params, *batch).tolist()
      [0.0, 6.0]
    """
    if not isinstance(batch, (dict, tuple)):
        raise WrongArguments(
            f"anyjax.static got a {type(batch).__name__} as its batch",
            why="a batch holds the model's arguments: a dict by name, or a tuple",
            do="give anyjax.static(model, {'input_ids': ids, ...}), or (x,) for one argument",
        )
    call = ((), batch) if isinstance(batch, dict) else (batch, {})
    source, layouts = model.source, Layouts(warns=False)
    leaves, structure = jax.tree.flatten(trees.register(call))
    leaves = [source.as_array(x) for x in leaves]
    args, kwargs = call
    names = trees.names(args, kwargs, source.positional)
    earlier = source.cache.static_arguments.get(structure, source.layouts)
    layouts.places[structure] = {i for i, n in enumerate(names) if n in earlier}

    def shapes(call: PyTree) -> None:
        arrays, form = jax.tree.flatten(call)
        is_dynamic = [trees.is_array(x) for x in arrays]

        def run(dynamic: list[jax.Array]) -> Any:
            rest = iter(dynamic)
            full = [next(rest) if d else x for d, x in zip(is_dynamic, arrays)]
            args, kwargs = layouts.traced(jax.tree.unflatten(form, full))
            out, _ = model.apply(model.params, *args, rng=rng, mutable=True, **kwargs)
            return [x for x in jax.tree.leaves(out) if trees.is_array(x)]

        jax.eval_shape(run, [x for d, x in zip(is_dynamic, arrays) if d])

    layouts(shapes, jax.tree.unflatten(structure, leaves))
    if layouts.places[structure]:
        deciding = {names[i] for i in layouts.places[structure]}
        source.cache.static_arguments.setdefault(structure, set()).update(deciding)
    layouts.places[structure] |= {i for i, x in enumerate(leaves) if not trees.is_array(x)}
    args, kwargs = layouts.fixed(call)
    HOLDERS.update(map(type, (*args, *kwargs.values())))
    return kwargs if isinstance(batch, dict) else args


def is_fixed(node: object) -> bool:
    """Returns whether a node of a tree is an array or another value that is static."""
    return isinstance(node, Static)


def opened(args: tuple, kwargs: dict[str, PyTree], source: Source) -> tuple[tuple, dict[str, Any]]:
    """Returns a call's arguments with leaves for what is static: ``trees.Constant`` for arrays.

    Warns:
      ManyCompilations: there were many layouts.
    """
    if HOLDERS.isdisjoint(map(type, args)) and HOLDERS.isdisjoint(map(type, kwargs.values())):
        return args, kwargs
    nodes, structure = jax.tree.flatten((args, kwargs), is_leaf=is_fixed)
    leaves = [x.value if is_fixed(x) else x for x in nodes]
    if constants := tuple(x for x in leaves if isinstance(x, Constant)):
        _count(source, constants)
    return jax.tree.unflatten(structure, leaves) if any(map(is_fixed, nodes)) else (args, kwargs)


def with_arrays(tree: PyTree) -> Any:
    """Returns the tree with leaves for what is static: numpy arrays, Python values."""

    def leaf(node: object) -> object:
        value = node.value if isinstance(node, Static) else node
        return value.array if isinstance(value, Constant) else value

    return jax.tree.map(leaf, tree, is_leaf=is_fixed)


def _count(source: Source, layout: tuple[Constant, ...]) -> None:
    seen = source.cache.notes.setdefault("layouts", set())
    is_new = layout not in seen
    seen.add(layout)
    if is_new and len(seen) == MANY:
        warn_once.warn(
            f"{source.name} was compiled for {MANY} layouts, values of arguments that decide what "
            "is computed: resize pictures to a few sizes and put those of one grid into a batch, "
            "pad lengths to a few (anyjax.train.bucket)",
            ManyCompilations,
        )


def has_values(leaf: object) -> bool:
    """Returns whether a leaf is an array of integers or bools whose values are known."""
    is_known = hasattr(leaf, "__array__") and not isinstance(leaf, jax.core.Tracer)
    return is_known and str(getattr(getattr(leaf, "dtype", None), "kind", "")) in {"i", "u", "b"}


def decidable(names: Iterable[str], arguments: Mapping[str, object]) -> bool:
    """Returns whether all of these may be static by value."""
    return all(has_values(arguments.get(n)) for n in names)


def notice(names: Collection[str]) -> None:
    """Says which arguments are static by value."""
    if names:
        warn_once.warn(
            f"{', '.join(sorted(names))}: the values decide what is computed, so they are static: "
            "the program is compiled once for each of them",
            StaticArgument,
        )


class Layouts:
    """Places in the batches of a function whose values decide what models in it compute.

    Attributes:
      places: the numbers of leaves, by the structure of a batch.
      tracers: the leaves of the batch that was traced last.
      warns: whether to say which ones are static.
    """

    def __init__(self, warns: bool = True) -> None:
        self.warns = warns
        self.places: dict[Any, set[int]] = {}
        self.tracers: list[object] = []

    def __call__(self, function: Callable[..., PyTree], batch: PyTree) -> Any:
        """Returns what a jitted function gives for a batch; it calls ``traced``."""
        nodes, structure = jax.tree.flatten(batch, is_leaf=is_fixed)
        if by_caller := {i for i, x in enumerate(nodes) if is_fixed(x)}:
            self.places.setdefault(structure, set()).update(by_caller)
            batch = with_arrays(batch)
        learned: set[str] = set()
        while True:
            try:
                out = function(self.fixed(batch))
            except DataDependent as error:
                if not (new := self._learn(error, batch)):
                    raise
                learned |= new
            else:
                notice(learned if self.warns else ())
                return out
            finally:
                self.tracers = []

    def fixed(self, batch: PyTree) -> Any:
        """Returns the batch with the arrays at those places static."""
        leaves, structure = jax.tree.flatten(batch)
        if not (places := self.places.get(structure)):
            return batch
        node = lambda x: Static(Constant(x) if trees.is_array(x) else x)
        return jax.tree.unflatten(
            structure, [node(x) if i in places else x for i, x in enumerate(leaves)]
        )

    def traced(self, batch: PyTree) -> Any:
        """Returns the batch within the function: what is static as numpy arrays."""
        self.tracers = jax.tree.leaves(batch, is_leaf=is_fixed)
        return with_arrays(batch)

    def _learn(self, error: DataDependent, batch: PyTree) -> set[str]:
        """Returns the names of the leaves that decided; none if it cannot be helped."""
        names = {*error.arguments} - {trees.STATE}
        deciding = [i for i, x in enumerate(self.tracers) if any(x is y for y in error.leaves)]
        paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(batch)]
        leaves, structure = jax.tree.flatten(batch)
        fits = len(leaves) == len(self.tracers) and len(deciding) == len(names)
        if not fits or not decidable(map(paths.__getitem__, deciding), dict(zip(paths, leaves))):
            return set()
        if any(isinstance(x, jax.Array) and not x.is_fully_addressable for x in leaves):
            return set()
        places = self.places.setdefault(structure, set())
        new = {*deciding} - places
        places |= new
        return {_plain(paths[i]) for i in new}


def _plain(path: str) -> str:
    """Returns the last key of a path, as the argument is called."""
    return path.rpartition("[")[2].strip("]'\"") or path


def help_with(
    error: DataDependent,
    arguments: Mapping[str, object],
    call: str,
    deciding: Collection[str] = (),
) -> None:
    """Has the error say what works, and keep the leaves that decided.

    ``deciding`` are names of arguments that decided in other calls of this kind.
    """
    if {*error.arguments} <= {*deciding}:  # all that decide
        error.arguments = tuple(n for n in arguments if n in deciding)
    error.leaves = (*error.leaves, *(arguments[n] for n in error.arguments if n in arguments))
    from anyjax.calls import concretization_help  # where something is wrong

    concretization_help.advise(error, arguments, call)
