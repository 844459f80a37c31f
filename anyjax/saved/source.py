"""The source of a loaded model: it runs the program for the kind of call."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from anyjax import trees
from anyjax.dtypes import canonical, fitting
from anyjax.errors import DataDependent, ForwardFailed, MissingRng, Unsupported, WrongArguments
from anyjax.private_names import Inconclusive
from anyjax.saved import derivatives
from anyjax.saved.calls import build_output, describe_call, misfit, same, shapes_of
from anyjax.saved.checksum import Json
from anyjax.saved.dimensions import suggested
from anyjax.saved.executables import in_order
from anyjax.source import SourceBase


@dataclass(frozen=True, eq=False)
class SavedSource(SourceBase):
    """A source of saved programs by kind of call, and of further ones by name: (description,
    program).

    Its training mode is that of the save.
    """

    framework: str
    name: str
    argument_names: list[str]
    training: tuple[bool, ...]
    calls: list[dict[str, Any]]
    programs: list[Any] = field(repr=False)
    extras: dict[str, tuple[dict[str, Any], Any]] = field(default_factory=dict, repr=False)
    executables: dict[str, Any] = field(default_factory=dict, repr=False)

    module = None

    def __getstate__(self) -> dict[str, object]:
        """Returns the fields, with programs as bytes."""
        programs = [serialized(x) for x in self.programs]
        extras = [(k, about, serialized(x)) for k, (about, x) in self.extras.items()]
        return super().__getstate__() | {"programs": programs, "extras": extras, "executables": {}}

    def __setstate__(self, state: dict[str, list]) -> None:
        read = lambda data: jax.export.deserialize(bytearray(data))
        vars(self).update(state, programs=[*map(read, state["programs"])])
        vars(self)["extras"] = {k: (about, read(x)) for k, about, x in state["extras"]}

    @property
    def positional(self) -> list[str]:
        """Returns the names of the arguments that may be given by position."""
        return self.argument_names

    @property
    def layouts(self) -> frozenset[str]:  # type: ignore[override]
        """Returns the names of arguments whose values are part of its programs."""
        described = (item for call in self.calls for item in call["inputs"].items())
        return frozenset(name for name, about in described if isinstance(about, dict))

    @property
    def signature(self) -> inspect.Signature:
        """The arguments that may be given by position."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(n, kind) for n in self.argument_names])

    def as_array(self, leaf: object) -> Any:
        """Turns an input leaf into what JAX takes, also tensors of torch and TensorFlow."""
        if isinstance(leaf, jax.Array) or not hasattr(leaf, "__array__"):
            return leaf
        tensor: Any = leaf.detach() if hasattr(leaf, "detach") else leaf
        try:
            return fitting(np.asarray(tensor))
        except TypeError:  # torch gives numpy neither bfloat16 nor the memory of a GPU
            return np.asarray(jax.numpy.from_dlpack(tensor.contiguous()))

    def in_mode(self, training: bool) -> SavedSource:
        """Returns the source if it was saved in this mode.

        Raises:
          Unsupported: it was saved in the other mode.
        """
        if any(t != training for t in self.training):
            raise Unsupported(
                "a saved model has one mode",
                why="its programs are compiled",
                do="save the other mode, too",
            )
        return self

    def write_back(self, params, state):
        """Raises Unsupported: there is no module."""
        raise Unsupported(
            "a saved model has no torch module",
            why="it runs without torch",
            do="keep the checkpoint it came from",
        )

    def __call__(self, params, state, args, kwargs, rng=None):
        """Runs the program for this kind of call."""
        i, arrays, key = self._arguments(state, args, kwargs, rng)
        program = self.programs[i]
        _check_weights(program, params, state)
        out = derivatives.call(program, self.name, dict(params), dict(state), arrays, key)
        return self._result(i, *out)

    def compiled(self, params, state, args, kwargs, rng=None):
        """Runs the compiled program for this call; returns None if there is none."""
        if not self.executables:
            return None
        i, arrays, key = self._arguments(state, args, kwargs, rng)
        out = self.execute(f"call-{i}", params, state, arrays, key)
        return None if out is None else self._result(i, *out)

    def execute(self, name: str, params, state, *arrays) -> Any:
        """Runs a compiled program; returns None if there is none, for these shapes and devices, or
        if something is traced.
        """
        executable = self.executables.get(name)
        if executable is None:
            return None
        weights = in_order(params), in_order(state)
        arrays = jax.tree.map(_narrowed, arrays)  # as jit does: numpy's integers have 64 bits
        leaves, expected = (jax.tree.leaves(x) for x in ((weights, arrays), executable.args_info))
        fits = len(leaves) == len(expected) and all(map(_fits, leaves, expected))
        return executable(*weights, *arrays) if fits else None

    def try_executables(self) -> None:
        """Runs each compiled program on zeros."""
        for executable in self.executables.values():
            args, kwargs = executable.args_info
            zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), args)
            jax.block_until_ready(executable(*zeros, **kwargs))

    def held(self, state, args, kwargs, rng) -> tuple[Json, bytes, list]:
        """Returns the program that serves a call: (its description, itself, the call's arrays).

        Raises:
          WrongArguments: there is none.
        """
        try:
            i, arrays, _ = self._arguments(state, args, kwargs, rng)
        except Inconclusive as error:
            raise Unsupported(
                f"{self.name}, which was loaded, is not saved for these open sizes",
                why=str(error).partition("\n")[0][:300],
                do=f"name them as it was saved: {'; '.join(map(_shown, self.calls))}",
            ) from error
        return self.calls[i], serialized(self.programs[i]), arrays

    def platforms(self, asked: Sequence[str]) -> Sequence[str]:
        """Returns the platforms of its programs.

        Raises:
          Unsupported: others are asked for.
        """
        programs = [*self.programs, *(x for _, x in self.extras.values())]
        common = [p for p in self.programs[0].platforms if all(p in x.platforms for x in programs)]
        if missing := sorted({*asked} - {*common}):
            raise Unsupported(
                f"{self.name}, which was loaded, has no programs for {', '.join(missing)}",
                why=f"they were made for {', '.join(common)}, and are saved again as they are",
                do=f"platforms={tuple(common)}, or save the model that it was made of",
            )
        return common

    def _arguments(self, state, args, kwargs, rng) -> tuple[int, list, Any]:
        """Returns (the number of the call that fits, its arrays, the numbers of its key)."""
        leaves = [self.as_array(x) for x in jax.tree.leaves((args, kwargs))]
        leaves = [x.array if isinstance(x, trees.Constant) else x for x in leaves]
        names = trees.names(args, kwargs, self.positional)
        i = self._select(leaves, names, rng)
        call = self.calls[i]
        _check_known(call["known"], state)
        by_name = dict(zip(names, leaves))  # the program has its own order of arguments
        arrays = [
            by_name[name]
            for name, about in call["inputs"].items()
            if trees.is_array(by_name[name]) and not isinstance(about, dict)
        ]
        return i, arrays, _key_data(call["rng"], rng)

    def _result(self, i: int, flat, written, holds) -> tuple[Any, trees.Written]:
        """Returns the output of a program, and what the forward pass wrote."""
        call = self.calls[i]
        if holds is not None and not isinstance(holds, jax.core.Tracer) and not holds:
            raise ForwardFailed(
                f"the forward pass of {self.name} checks its values, and a check does not hold",
                why="the inputs are not what the model takes",
                do="compare them with those of the source framework, whose own error says more",
            )
        return build_output(call["output"], flat), trees.Written(written, {*call["missed"]}, holds)

    def _select(self, leaves: Sequence[object], names: list[str], rng: jax.Array | None) -> int:
        """Returns the number of the call that was saved with these shapes, and with or without a
        key, else of the first whose sizes fit.

        Raises:
          WrongArguments: no call fits.
        """
        misfits = [misfit(call, leaves, names) for call in self.calls]
        described = describe_call(leaves, names)
        priority = lambda call: (
            not same(call["inputs"], described),
            (call["rng"] is None) != (rng is None),
        )
        for i in sorted(range(len(misfits)), key=lambda i: priority(self.calls[i])):
            if misfits[i] is None:
                return i
        by_name = dict(zip(names, leaves))
        layouts = {k for c in self.calls for k, x in c["inputs"].items() if isinstance(x, dict)}
        if traced := [
            n for n in by_name if n in layouts and isinstance(by_name[n], jax.core.Tracer)
        ]:
            place = f"the saved program of {self.name}"
            raise DataDependent(
                f"{place} needs the values of {', '.join(traced)} while they are traced",
                arguments=tuple(traced),
                general=True,
                why="it was saved for some values of them, which decide what is computed",
                do="close over them as numpy arrays",
            )
        reasons = [f"{_shown(c)}: {why}" for c, why in zip(self.calls, misfits)]
        raise WrongArguments(
            f"no program was saved for {json.dumps(described)}",
            why="saved are " + "; ".join(reasons),
            do="save it again with an example of this call: model.save(folder, *args, **kwargs), "
            f"for any size shapes={suggested(names, leaves)}",
        )


def serialized(program: jax.export.Exported) -> bytes:
    """Returns a program as bytes, with its derivative if it has one."""
    return bytes(program.serialize(vjp_order=int(program.has_vjp())))


def _narrowed(array: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
    """Returns a numpy array in the dtype that JAX gives it, anything else as it is."""
    is_numpy = isinstance(array, np.ndarray)
    return array.astype(canonical(array.dtype), copy=False) if is_numpy else array


def _fits(array: jax.Array | np.ndarray, expected: jax.stages.ArgInfo) -> bool:
    """Returns whether a compiled program takes an array: by shape, dtype and device."""
    if isinstance(array, jax.core.Tracer) or array.shape != expected.shape:
        return False
    if array.dtype != expected.dtype:
        return False
    return not isinstance(array, jax.Array) or array.devices() == {jax.devices()[0]}


def _shown(call: Json) -> str:
    constraints = call.get("constraints", [])
    shown = json.dumps(shapes_of(call["inputs"]))
    return shown + (f" with {', '.join(constraints)}" if constraints else "")


def _key_data(kind: str | None, rng: jax.Array | None) -> jax.Array | None:
    """Returns the key's numbers, None if the program takes no key."""
    if kind is None:
        return None
    if rng is None:
        raise MissingRng(
            "the call was saved with a key, and there is none",
            why="its program has the key as an argument",
            do="pass rng=jax.random.key(0)",
        )
    if (implementation := str(jax.random.key_impl(rng))) != kind:
        raise WrongArguments(
            f"rng is a key of {implementation}",
            why=f"the call was saved with one of {kind}",
            do=f"give that kind: jax.random.key(seed, impl={kind!r})",
        )
    return jax.random.key_data(rng)


def _check_weights(program: jax.export.Exported, *weights: Mapping[str, Any]) -> None:
    """Raises WrongArguments if params or state are not those that the program takes."""
    (*expected, _, _), _ = jax.tree.unflatten(program.in_tree, program.in_avals)
    wrong = []
    for pair in zip(expected, weights):
        want, have = (describe_call([*x.values()], [*x]) for x in pair)
        wrong += [f"{k} is missing" for k in want if k not in have]
        wrong += [f"{k} is unknown" for k in have if k not in want]
        wrong += [f"{k} is {have[k]}, not {v}" for k, v in want.items() if have.get(k, v) != v]
    if wrong:
        raise WrongArguments(
            f"params and state do not fit the program: {'; '.join(wrong[:12])}"
            + (f"; and {len(wrong) - 12} more" if len(wrong) > 12 else ""),
            why="it was saved for arrays of these names, dtypes and shapes",
            do="give those, or save the model again with the others",
        )


def _check_known(known: Json, state) -> None:
    """Raises WrongArguments if the state has other values than the program was made for, and
    DataDependent if they are traced.
    """
    for name, value in known.items():
        if isinstance(state[name], jax.core.Tracer):
            raise DataDependent(
                f"the saved program has {name} = {value}",
                arguments=(trees.STATE,),
                why="shapes depend on it, so it is no argument of the program",
                do="close over the state instead of tracing it",
            )
        if np.asarray(state[name]).tolist() != value:
            raise WrongArguments(
                f"{name} is {np.asarray(state[name]).tolist()}, in the saved program {value}",
                why="shapes depend on it, so it is no argument of the program",
                do="save the model again with the new value",
            )
