"""``If``, ``Case`` and ``While``: functions of a graph as branches and bodies of lax.

Values that a body returns unchanged are not carried, so that known values stay known in it.
Variables that a function assigns, lists that it fills and keys for its random numbers are carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from anyjax import trees
from anyjax.dtypes import shape_of
from anyjax.errors import Unsupported
from anyjax.numerics.wide_integers import Checks
from anyjax.stablehlo.control_flow import loops
from anyjax.stablehlo.core.static_values import as_jax, is_known
from anyjax.tensorflow.control_flow import optional, tensor_list
from anyjax.tensorflow.control_flow.tensor_list import TensorList
from anyjax.tensorflow.core.running import handles
from anyjax.tensorflow.state.variables import Handle
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef


@handles("If", "StatelessIf")
def if_(run, node, inputs):
    pred, *operands = inputs
    names = [node.attr("then_branch"), node.attr("else_branch")]
    if is_known(pred):
        is_true = bool(pred) if not pred.ndim else pred.size > 0
        return run.call(names[0 if is_true else 1], operands, node.used)
    if pred.ndim or pred.dtype != bool:
        pred = pred != 0 if not pred.ndim else jnp.asarray(pred.size > 0)
    return _choose(run, node, jnp.where(pred, 0, 1), names, operands)


@handles("Case", "StatelessCase")
def case(run, node, inputs):
    """Chooses the last branch for an index without one."""
    index, *operands = inputs
    names = node.attr("branches")
    last = len(names) - 1
    if is_known(index):
        name = names[int(index) if 0 <= index <= last else last]
        return run.call(name, operands, node.used)
    index = jnp.where((index < 0) | (index > last), last, index)
    return _choose(run, node, index, names, operands)


def _choose(run, node, index, names: Sequence[str], operands: Sequence[object]) -> tuple:
    """Runs one of the functions, chosen by a traced index."""
    probes = [_effects(run, name, operands, node.used) for name in names]
    written = {h for handles_, _ in probes for h in handles_}
    shapes = [_common(values) for values in zip(*(out for _, out in probes))]
    handles_ = sorted(written, key=lambda h: h.name)
    output_handles: list[Any] = []

    def branch(name):
        def function(rng):
            inner = run.nested(rng)
            out = inner.call(name, operands, node.used)
            out = [_filled(x, shape) for x, shape in zip(out, shapes)]
            output_handles[:] = [x if isinstance(x, Handle) else None for x in out]
            arrays = [0 if isinstance(x, Handle) else jax.tree.map(_array, x) for x in out]
            return arrays, [_array(inner.variables[h]) for h in handles_]

        return function

    rng = None if run.rng is None else run.key(node)
    out, values = lax.switch(index, [branch(name) for name in names], rng)
    for handle, value in zip(handles_, values):
        run.variables[handle] = value
        run.written.add(handle)
    out = [h if h is not None else x for h, x in zip(output_handles, out)]
    return tuple(_described(x, shape) for x, shape in zip(out, shapes))


def _array(value: object) -> Any:
    return jnp.asarray(as_jax(value))


def _as_shape(value: PyTree) -> PyTree:
    """Returns a list or an optional value with the shapes of its arrays, which are tracers."""
    if isinstance(value, TensorList):
        return value.shape()
    return jax.tree.map(shape_of, value) if isinstance(value, optional.Optional) else None


def _common(values: Sequence[PyTree]) -> PyTree:
    """Returns the shape that the structures of all branches get."""
    if all(isinstance(x, TensorList) for x in values):
        return tensor_list.common(values)
    return optional.shape_of(values)


def _filled(value: PyTree, shape: PyTree) -> PyTree:
    """Returns the value of one branch in the shape of all."""
    if isinstance(shape, TensorList):
        return tensor_list.widened(value, shape)
    return optional.filled(value, shape)


def _described(value: PyTree, shape: PyTree) -> PyTree:
    """Returns a list with what is known of it beside its arrays."""
    if not isinstance(shape, TensorList):
        return value
    return replace(shape, buffer=value.buffer, length=value.length)


def _effects(run, name: str, operands: Sequence[object], used) -> tuple[set[Handle], Sequence[Any]]:
    """Returns the variables that a function assigns, and its structures as shapes."""
    effects: list[Any] = []

    def probe(rng):
        inner = run.nested(rng)
        out = inner.call(name, operands, used)
        effects[:] = [set(inner.written), [*map(_as_shape, out)]]  # no tracers
        return [x for x in jax.tree.leaves(out) if isinstance(x, jax.Array)]

    jax.eval_shape(probe, None if run.rng is None else jax.random.key(0))
    return effects[0], effects[1]


@handles("While", "StatelessWhile", "_While")
def while_(run, node, inputs):
    cond, body = node.attr("cond"), node.attr("body")
    needed = _needed(run.library[cond].needs | node.used, run.library[body])
    passed = passed_on(run.library, body)
    moving = [i for i in sorted(needed) if passed[i] != i]
    return _Loop(run, node, cond, body, list(inputs), moving).run()


def _needed(places: set[int], body: Any) -> set[int]:
    """Adds the carried values that others are computed from."""
    while missing := body.for_outputs(places).needs - places:
        places = places | missing
    return places


def passed_on(library, name: str) -> list[int | None]:
    """Returns for every output of a function the input that it is, None if it is computed."""
    graph = library[name]
    places = {x: i for i, x in enumerate(graph.inputs)}
    passed: list[int | None] = []
    for edge in graph.outputs:
        while edge.node not in places and graph.by_name[edge.node].op == "Identity":
            (edge,) = graph.by_name[edge.node].inputs
        passed.append(places.get(edge.node))
    return passed


class _Loop:
    """One loop: its carry is the changing values, the variables it assigns, a key if it draws."""

    def __init__(self, run, node, cond, body, inputs, moving):
        self.outer, self.node, self.cond, self.body = run, node, cond, body
        self.inputs, self.moving = inputs, moving
        self.variables: list[Handle] = []
        self.grown: dict[int, int | None] = {}  # lists that it lengthens -> their final length
        self.spare: dict[int, int] = {}  # the same -> elements that one turn adds
        self.start = list(inputs)
        self.draws = False

    def run(self) -> tuple:
        self._prepare()
        carry = [self.inputs[i] for i in self.moving]
        carry += [self.outer.variables[h] for h in self.variables]
        carry += [self.outer.key(self.node)] if self.draws else []
        flat, structure = jax.tree.flatten(carry)
        unflatten = lambda xs: jax.tree.unflatten(structure, xs)
        out = loops.while_loop(
            lambda *xs: self._test(unflatten(xs)),
            lambda *xs: self._flat(self._step(unflatten(xs)), structure, flat),
            flat,
        )
        return self._finish(unflatten(out))

    def _inside(self, carry: Sequence[PyTree]) -> tuple[Any, list[Any]]:
        """Returns a run inside of the loop, and the operands of its functions."""
        count = len(self.moving)
        key = None
        if self.draws:
            key = jax.random.fold_in(carry[-1], 1)
        inner = self.outer.nested(key)
        for handle, value in zip(self.variables, carry[count:]):
            inner.variables[handle] = value
        operands = list(self.inputs)
        for i, value in zip(self.moving, carry):
            operands[i] = replace(value, spare=self.spare[i]) if i in self.spare else value
        return inner, operands

    def _test(self, carry: Sequence[PyTree]) -> Any:
        inner, operands = self._inside(carry)
        (out,) = inner.call(self.cond, operands)
        out = _array(out)
        return out.reshape(()) if out.ndim else out

    def _step(self, carry: Sequence[PyTree]) -> list[Any]:
        inner, operands = self._inside(carry)
        out = inner.call(self.body, operands, self.moving)
        new = [out[i] for i in self.moving]
        new += [inner.variables[h] for h in self.variables]
        return new + ([jax.random.fold_in(carry[-1], 2)] if self.draws else [])

    def _flat(self, carry: list[PyTree], structure: PyTreeDef, start: list[PyTree]) -> list[Any]:
        flat, new_structure = jax.tree.flatten(carry)
        if new_structure != structure:
            raise Unsupported(
                "a loop changes the structure of what it carries",
                why=f"it starts with {structure} and goes on with {new_structure}",
                do="give TensorArrays a size and an element shape",
            )
        arrays = [_array(x) for x in flat]
        for x, x0 in zip(arrays, start):
            if x.shape != x0.shape:
                raise Unsupported(
                    "a loop changes the shape of what it carries",
                    why=f"it starts with {x0.shape} and goes on with {x.shape}",
                    do="write to an array of a fixed size",
                )
        return arrays

    def _prepare(self) -> None:
        """Makes room in lists, and finds the variables and keys that belong to the carry."""
        written: set[Handle] = set()
        drawn: list[bool] = []
        shapes: list[Any] = []

        def probe(rng, arrays):
            inner = self.outer.nested(rng)
            start = [replace(x, grown=0) if isinstance(x, TensorList) else x for x in self.inputs]
            for i, x in arrays.items():
                start[i] = x
            out = inner.call(self.body, start, self.moving)
            written.update(inner.written)
            drawn.append(inner.drawn > 0)
            shapes[:] = [_as_shape(out[i]) for i in self.moving]
            return 0

        changing = {i: x for i in self.moving if trees.is_array(x := self.inputs[i])}
        key = None if self.outer.rng is None else jax.random.key(0)
        jax.eval_shape(probe, key, jax.tree.map(_array, changing))
        self.variables = sorted(written, key=lambda h: h.name)
        self.draws = any(drawn)
        for i, stepped in zip(self.moving, shapes):
            items = self.inputs[i]
            if isinstance(items, TensorList):
                self.inputs[i] = self._with_room(i, items, stepped)

    def _with_room(self, place: int, items: TensorList, stepped: TensorList) -> TensorList:
        """Returns a list with the room for all turns; ``stepped`` is the list after one turn."""
        if stepped.buffer is None:
            return items
        shape = stepped.buffer.shape[1:]
        known_length = isinstance(items.length, int)
        items = replace(items, same=stepped.same)
        if not stepped.grown and known_length and stepped.length is not None:
            return items.room(items.length, shape)
        capacity = max(items.capacity, stepped.capacity)
        if stepped.grown > 0:
            count, exact = self._trips()
            longest = (items.length if known_length else items.capacity) + stepped.grown * count
            capacity = max(capacity, longest)
            exact = exact and known_length and not stepped.varies
            self.grown[place] = longest if exact else None
            self.spare[place] = stepped.grown
        return replace(items.room(capacity, shape), length=jnp.asarray(items.length, jnp.int32))

    def _trips(self) -> tuple[int, bool]:
        """Returns the number of turns and True, or an upper bound and False.

        Raises:
          Unsupported: the number depends on values.
        """
        arrays = [i for i in self.moving if not isinstance(self.inputs[i], TensorList)]
        start = [self.inputs[i] for i in arrays]

        def jaxpr_of(name, outputs):
            def function(*carry):
                operands = list(self.inputs)
                for i, value in zip(arrays, carry):
                    operands[i] = value
                out = self.outer.nested(None).call(name, operands, outputs)
                return [_array(out[i]) for i in outputs]

            return jax.make_jaxpr(function)(*map(as_jax, start))

        test, step = jaxpr_of(self.cond, [0]), jaxpr_of(self.body, arrays)
        exact = loops.trips(test, step, start)
        count = loops.bound(test, step, start) if exact is None else exact
        if count is None:
            raise Unsupported(
                "a TensorArray grows in a loop whose length depends on values",
                why="an array of JAX has a fixed size",
                do="give the TensorArray a size, or the loop maximum_iterations=",
            )
        return count, exact is not None

    def _finish(self, carry: Sequence[PyTree]) -> tuple:
        out = list(self.inputs)
        for i, value in zip(self.moving, carry):
            out[i] = _full(value, self.grown[i], self.outer.checks) if i in self.grown else value
            if isinstance(value, TensorList):
                growth = max(0, value.capacity - self.start[i].room_for)
                out[i] = replace(out[i], grown=self.start[i].grown + growth)
        for handle, value in zip(self.variables, carry[len(self.moving) :]):
            self.outer.variables[handle] = value
            self.outer.written.add(handle)
        return tuple(out)


def _full(items: TensorList, length: int | None, checks: Checks) -> TensorList:
    """Returns a list that the loop lengthened, with this length if it is known; it has no numbers
    if the loop grew it otherwise.
    """
    fits = items.length <= items.capacity if length is None else items.length == length
    items = tensor_list.unless(items, fits, checks)
    return items if length is None else replace(items, length=length)
