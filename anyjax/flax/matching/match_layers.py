"""The layers of both sides matched by names, shapes and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from anyjax.errors import ForwardFailed, WrongArguments
from anyjax.flax.matching import (
    load_errors,
    match_argument,
    recurrent,
    submodule_runs,
    torch_layers,
)
from anyjax.flax.matching.agreement import Search
from anyjax.flax.matching.checking import check_outputs, epsilons
from anyjax.flax.matching.layer import Choice, Slot, Tensor, Torch
from anyjax.flax.matching.names import word_and_number
from anyjax.flax.matching.pairing import Pairing, families, pair
from anyjax.flax.matching.sides import JaxSide
from anyjax.flax.matching.stored import Stored
from anyjax.trees import is_array

if TYPE_CHECKING:
    import torch

# Stored by torch, not needed for inference, with the reason.
_NOT_NEEDED = {
    "num_batches_tracked": "counts training steps",
    "position_ids": "counts positions",
    "token_type_ids": "zeros",
    "inv_freq": "computed from the configuration",
    "masked_bias": "a constant of the mask",
    "relative_position_index": "computed from the window",
}


@dataclass(frozen=True)
class Matching:
    """The layers of both sides, each with its counterpart.

    Attributes:
      pairing: the choices.
      search: what decided them.
      values: the user's arrays by flax path, None for what stays as it is.
      left_out: (torch name, reason) of tensors that are not needed.
      calls: of torch's submodules; none without a module or an example.
      notes: possible reasons of different outputs.
    """

    pairing: Pairing
    search: Search
    values: Mapping[tuple, Any]
    left_out: list[tuple[str, str]]
    calls: list[submodule_runs.Call]
    notes: list[str]

    def check_outputs(self) -> str:
        """Runs both sides on the example; returns the comparison in words.

        Raises:
          WrongWeights: the outputs differ; the first submodule that differs is named.
        """
        if not self.calls:
            return "nothing, for lack of an example or of a torch module"
        error = check_outputs(self.search, self.calls, self.notes)
        return f"the outputs differ by {error:.1e} of the largest value"

    def again(self, stored: Stored, torch_example: tuple | Mapping[str, Any] | None) -> Matching:
        """Returns the same matches, to be checked with the weights that torch has now."""
        calls = _calls(stored.module, self.search.example, torch_example) if self.calls else []
        example, tolerance = self.search.example, self.search.tolerance
        search = _search(stored, self.search.side, self.pairing, calls, example, tolerance, {})
        return replace(self, search=search, calls=calls)


def as_arguments(example: object, name: str = "example") -> tuple | None:
    """Returns an example as positional arguments: an array is the only one.

    Raises:
      WrongArguments: it is neither arguments nor an array.
    """
    if is_array(example):
        return (example,)
    if example is None or isinstance(example, tuple | list):
        return None if example is None else tuple(example)
    raise WrongArguments(
        f"{name} is a {type(example).__name__}",
        where=name,
        why="it holds all positional arguments",
        do=f"write {name}=(x,)",
    )


def as_torch_arguments(example: object) -> tuple | Mapping[str, Any] | None:
    """Returns torch's example as positional arguments, or those by name as they are."""
    if isinstance(example, Mapping):
        return example
    return as_arguments(example, "torch_example")


def match_layers(
    stored: Stored,
    side: JaxSide,
    example: tuple | None,
    torch_example: tuple | Mapping[str, Any] | None,
    match: Mapping[str, Any],
    ignore: Iterable[str],
    tolerance: float,
) -> Matching:
    """Matches all layers; the arguments are those of ``load_into``.

    Raises:
      WrongWeights: layers of one side have no counterpart, or more than one.
    """
    values, slots = match_argument.array_values(match, side.slots())
    stored, left_out = _without_ignored(stored, ignore)
    pairing = _pair_layers(stored, side, slots, match)
    floats = (s.dtype for s in slots if jnp.issubdtype(s.dtype, jnp.floating))
    tolerance = max([tolerance, *(8 * float(jnp.finfo(dtype).eps) for dtype in floats)])
    calls = _calls(stored.module, example, torch_example)
    fixed = {path: value for path, value in values.items() if value is not None}
    search = _search(stored, side, pairing, calls, example, tolerance, fixed)
    search.decide_all()
    _take_certain(pairing)
    _take_conventions(pairing)
    left_out += _check_complete(pairing, slots, stored, _why_open(stored, search, example))
    return Matching(pairing, search, values, left_out, calls, epsilons(pairing, search.side))


def _without_ignored(stored: Stored, ignore: Iterable[str]) -> tuple[Stored, list[tuple[str, str]]]:
    """Returns (the arrays to load, the names of the others with the reason)."""
    texts = [ignore] if isinstance(ignore, str) else ignore
    patterns = [match_argument.pattern(text) for text in texts]
    ignored = {}
    for name in stored.tensors:
        if any(p.fullmatch(name) for p in patterns):
            ignored[name] = "ignored, as asked"
        elif why := _NOT_NEEDED.get(name.rpartition(".")[2]):
            ignored[name] = why
    tensors = {name: t for name, t in stored.tensors.items() if name not in ignored}
    return Stored(tensors, stored.module), list(ignored.items())


def _pair_layers(
    stored: Stored, side: JaxSide, slots: list[Slot], match: Mapping[str, Any]
) -> Pairing:
    """Pairs the layers of both sides by the user's decisions, names and shapes."""
    ours = side.layers(slots)
    words = {word_and_number(f.parts[-1])[0] for f in ours if f.parts}
    fused = "qkv" in words and "query" not in words
    theirs = torch_layers.layers(stored, fused)
    pairing = Pairing(ours, torch_layers.with_fused_qkv(theirs) if fused else theirs)
    match_argument.apply_names(match, pairing)
    pair(pairing)
    return pairing


def _calls(
    module: torch.nn.Module | None, example: Any, torch_example: Any
) -> list[submodule_runs.Call]:
    """Records the calls of torch's submodules; none without a module or an example."""
    if module is None or (example is None and torch_example is None):
        return []
    if torch_example is not None:
        options = [torch_example]
    else:
        is_map = lambda x: getattr(x, "ndim", 0) > 2
        first = lambda x: submodule_runs.channels_first(np.asarray(x)) if is_map(x) else x
        options = [example, jax.tree.map(first, example)]
    failed: Exception | None = None
    for args in options:
        try:
            return submodule_runs.record_calls(module, args)
        except Exception as error:
            failed = failed or error
    raise ForwardFailed(
        "the torch module does not take the example",
        where=type(module).__name__,
        why=f"it raised {type(failed).__name__}: {failed}"[:300],
        do="give the arguments that it takes as torch_example=(...)",
    ) from failed


def _search(
    stored: Stored,
    side: JaxSide,
    pairing: Pairing,
    calls: list[submodule_runs.Call],
    example: tuple | None,
    tolerance: float,
    fixed: Mapping[tuple, Any],
) -> Search:
    modules = dict(stored.module.named_modules()) if stored.module is not None else {}
    recorded: dict[str, submodule_runs.Call | None] = {call.path: call for call in calls}

    def call(path: str) -> submodule_runs.Call | None:
        if path not in recorded:
            steps = tuple(path.split(".")) if path else ()
            inner = [t for t in pairing.torch if t.parts[: len(steps)] == steps]
            recorded[path] = submodule_runs.call_on_random(modules[path], _widths(inner))
        return recorded[path]

    return Search(pairing, side, call, modules, example if calls else None, tolerance, fixed)


def _widths(layers: list[Torch]) -> list[int]:
    """Returns the numbers of input features of the first layers."""
    shapes = [t.tensors["weight"].shape for t in layers if "weight" in t.tensors]
    return list(dict.fromkeys(s[-1] if len(s) < 3 else s[1] for s in shapes if s))[:4]


def _take_conventions(pairing: Pairing) -> None:
    """Decides the layouts of square matrices as those of all others, of the same kind in torch and
    the same name in the JAX model, that are not square and agree.
    """
    layouts: dict[tuple[str, str], set[str]] = {}
    for choice, _ in pairing.decided.values():
        weight = choice.fills[0].slot
        if len(set(weight.shape)) == 2 == len(weight.shape):
            key = str(weight.path[-1]), choice.torch.kind
            layouts.setdefault(key, set()).add(choice.layout)
    for f in list(pairing.torch_decided_by):
        choices = pairing.open.get(f, [])
        if not choices:
            continue
        key = str(choices[0].fills[0].slot.path[-1]), choices[0].torch.kind
        fitting = [c for c in choices if {c.layout} == layouts.get(key)]
        if len(fitting) == 1:
            pairing.take(f, fitting[0], "convention")


def _take_certain(pairing: Pairing) -> None:
    """Decides layouts that follow from the kinds of layers, and choices of equal values."""
    for f, how in pairing.torch_decided_by.items():
        if f in pairing.open and pairing.open[f][0].sure:
            pairing.take(f, pairing.open[f][0], how)
    for family in families(pairing):
        for group in family:
            torches = dict.fromkeys(c.torch for f in group for c in pairing.open[f])
            if len(torches) < len(group):  # reported as unfilled
                pairing.unmatched |= torches.keys()
                for f in group:
                    del pairing.open[f]
            elif all(_equal_values(pairing.open[f]) for f in group):
                for f, torch in zip(group, torches):
                    choice = next(c for c in pairing.open[f] if c.torch is torch)
                    pairing.take(f, choice, "shape")


def _equal_values(choices: list[Choice]) -> bool:
    values = [[fill.value() for fill in c.fills] for c in choices]
    return all(np.array_equal(a, b) for v in values[1:] for a, b in zip(values[0], v))


def _why_open(stored: Stored, search: Search, example: object) -> str:
    if stored.module is None:
        return "names and shapes do not tell them apart, and arrays alone cannot be run"
    if example is None:
        return "names and shapes do not tell them apart, nor did submodules on random inputs"
    error = search.side.error
    raised = f"; the flax side last raised {str(error).splitlines()[0]!r}" if error else ""
    return "no single assignment makes the outputs equal" + raised


def _check_complete(
    pairing: Pairing, slots: list[Slot], stored: Stored, why_open: str
) -> list[tuple[str, str]]:
    """Returns the torch tensors that need not be loaded, with the reason.

    Raises:
      WrongWeights: other tensors are not used, variables are not filled, or layers are open.
    """
    fills = [fill for choice, _ in pairing.decided.values() for fill in choice.fills]
    filled = {fill.slot.path for fill in fills}
    used = {name for fill in fills for name in fill.tensor.sources}
    open_choices = [c for choices in pairing.open.values() for c in choices]
    used |= {name for c in open_choices for fill in c.fills for name in fill.tensor.sources}
    filled |= {slot.path for f in pairing.open for slot in f.slots.values()}
    lost_biases = []
    for f, (choice, _) in pairing.decided.items():
        if choice.torch.kind in ("lstm", "gru", "rnn"):
            lost_biases += recurrent.unplaced_biases(f, choice.torch)
            used |= {s for t in choice.torch.tensors.values() for s in t.sources}
    if lost_biases:
        raise load_errors.unplaced_biases(lost_biases)
    not_needed, unused = [], []
    for name, tensor in stored.tensors.items():
        if name not in used:
            why = _why_not_needed(tensor, used, stored)
            not_needed += [(name, why)] if why else []
            unused += [] if why else [tensor]
    unfilled = [s for s in slots if s.needed and s.path not in filled]
    if unused or unfilled or pairing.open:
        raise load_errors.incomplete(pairing, unfilled, unused, why_open)
    return not_needed


def _why_not_needed(tensor: Tensor, used: set[str], stored: Stored) -> str:
    """Returns why a tensor may be left out (integers, a tied weight), or an empty string."""
    array = tensor.read()
    if array.dtype.kind in "iub":
        return "holds no floating-point numbers"
    for name in used:
        if stored.tensors[name].shape == tensor.shape:
            used_array = stored.tensors[name].read()
            if used_array.ctypes.data == array.ctypes.data:
                return f"tied to {name}"
            is_matrix = array.ndim > 1 and array.size > 1 and array.std() > 0
            if is_matrix and np.array_equal(used_array, array):
                return f"tied to {name}"
    return ""
