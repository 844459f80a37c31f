"""Weights of torch into a hand-written flax module of the same architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tojax.errors import ForwardFailed, WrongArguments
from tojax.flax.matching import flax_layers, given, recurrent, running, torch_layers, trouble
from tojax.flax.matching.agreement import Search
from tojax.flax.matching.checking import check, epsilons
from tojax.flax.matching.layer import Choice, Slot, Tensor, Torch
from tojax.flax.matching.names import split
from tojax.flax.matching.pairing import Pairing, families, pair
from tojax.flax.matching.report import Match, Report
from tojax.flax.matching.sides import LinenSide, NnxSide, side
from tojax.flax.matching.stored import Stored, read

# Torch stores these, and no inference of a flax module needs them.
_IDLE = {
    "num_batches_tracked": "counts training steps",
    "position_ids": "counts positions",
    "token_type_ids": "zeros",
    "inv_freq": "computed from the configuration",
    "masked_bias": "a constant of the mask",
    "relative_position_index": "computed from the window",
}


def load_into(
    flax_module: Any,
    source: Any,
    *,
    variables: Any = None,
    example: Any = None,
    torch_example: tuple | Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    match: Mapping[str, Any] | None = None,
    ignore: Iterable[str] = (),
    tolerance: float = 1e-4,
) -> tuple[Any, Report]:
    """Fills a hand-written flax module with the weights of a torch module of the same architecture.

    Layers are matched by their names in one spelling, then by shape, then by running submodules of
    both sides on the same numbers. Kernels are transposed by the kind of layer; packed attention
    and recurrent weights are split; rows of a matrix after a flattened feature map are reordered
    where the outputs say so. What stays unclear is an error, and then nothing is changed.

    Args:
      flax_module: an ``nnx.Module`` (an abstract one of ``nnx.eval_shape``, too), which is filled
        in place, or a ``linen.Module``.
      source: a ``torch.nn.Module``, its ``state_dict()``, a mapping of names to arrays, a
        ``tojax.Model``, a safetensors file, or a folder of them. Only modules can be run, so only
        with them agreement decides.
      variables: of a Linen module. Without them, ``example`` gives their shapes.
      example: positional arguments of the flax module. With them both modules run, in evaluation
        mode, and their first outputs must be equal.
      torch_example: the same arguments for torch, or a mapping of names. Without it those of
        ``example``; where torch does not take these, with channels second instead of last.
      kwargs: named arguments for the flax module's call, such as ``{"train": False}``.
      match: decisions of yours by flax path: the torch name, a pair (torch name, layout), an array
        in the variable's own layout, or None for what stays as it is. ``*`` stands for one step.
      ignore: torch names that belong nowhere; ``*`` stands for one step.
      tolerance: the largest difference of outputs, as a fraction of the largest value; 8 eps of
        the variables' dtype where that is larger.

    Returns:
      The filled nnx module, or Linen's new variables; and the report, which prints as a table.
      Arrays have the flax variables' dtypes.

    Raises:
      WrongWeights: variables or tensors are left, layers fit more than one way, or the outputs
        differ; all such layers are listed, or the first submodule that differs.
      WrongArguments: an argument is not what it should be.
      BadCheckpoint: a file cannot be read.
      ForwardFailed: torch does not take the example.

    Example:
      >>> import jax.numpy as jnp, torch
      >>> from flax import nnx
      >>> from tojax.flax import load_into
      >>> class Net(nnx.Module):
      ...   def __init__(self, rngs):
      ...     self.inner, self.outer = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)
      ...   def __call__(self, x):
      ...     return self.outer(nnx.relu(self.inner(x)))
      >>> theirs = torch.nn.Sequential(
      ...   torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
      >>> net, report = load_into(Net(nnx.Rngs(0)), theirs, example=(jnp.ones((4, 3)),))
      >>> report["inner/kernel"].torch, report["inner/kernel"].layout
      ('0.weight', 'transposed')
    """
    if isinstance(example, list):
        example = tuple(example)
    if example is not None and not isinstance(example, tuple):
        raise WrongArguments(
            f"example is a {type(example).__name__}",
            where="load_into",
            why="it holds all positional arguments",
            do="write example=(x,)",
        )
    stored, flax = read(source), side(flax_module, variables, example, kwargs or {})
    values, slots = given.arrays(match or {}, flax.slots())
    stored, left_out = _without_idle(stored, ignore)
    pairing = _paired(stored, flax, slots, match or {})
    tolerance = max([tolerance, *(8 * float(jnp.finfo(s.dtype).eps) for s in slots if _real(s))])
    calls = _calls(stored.module, example, torch_example)
    fixed = {path: value for path, value in values.items() if value is not None}
    search = _search(stored, flax, pairing, calls, example, tolerance, fixed)
    search.settle()
    _take_the_sure(pairing)
    left_out += _complete(pairing, slots, stored, _why_open(stored, search, example))
    notes = epsilons(pairing, search.runner)
    checked = "nothing, for lack of an example or of a torch module"
    if calls:
        checked = f"the outputs differ by {check(search, calls, notes):.1e} of the largest value"
    return _written(flax, pairing, values, slots, left_out, notes, checked)


def _real(slot: Slot) -> bool:
    return jnp.issubdtype(slot.dtype, jnp.floating)


def _without_idle(stored: Stored, ignore: Iterable[str]) -> tuple[Stored, list[tuple[str, str]]]:
    patterns = [given.pattern(text) for text in ([ignore] if isinstance(ignore, str) else ignore)]
    out = {}
    for name in stored.tensors:
        if any(p.fullmatch(name) for p in patterns):
            out[name] = "ignored, as asked"
        elif why := _IDLE.get(name.rpartition(".")[2]):
            out[name] = why
    kept = {name: t for name, t in stored.tensors.items() if name not in out}
    return Stored(kept, stored.module), list(out.items())


def _paired(
    stored: Stored, flax: NnxSide | LinenSide, slots: list[Slot], match: Mapping[str, Any]
) -> Pairing:
    ours = flax_layers.layers(slots, flax.modules)
    words = {split(f.parts[-1])[0] for f in ours if f.parts}
    fused = "qkv" in words and "query" not in words
    theirs = torch_layers.layers(stored, fused)
    pairing = Pairing(ours, torch_layers.joined(theirs) if fused else theirs)
    given.pairs(match, pairing)
    pair(pairing)
    return pairing


def _calls(module: Any, example: Any, torch_example: Any) -> list[running.Call]:
    """The calls of torch's submodules, none where there is nothing to call."""
    if module is None or (example is None and torch_example is None):
        return []
    if torch_example is not None:
        options = [torch_example]
    else:
        turned = lambda x: running.first(np.asarray(x)) if getattr(x, "ndim", 0) > 2 else x
        options = [example, jax.tree.map(turned, example)]
    failed: Exception | None = None
    for args in options:
        try:
            return running.calls(module, args)
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
    flax: NnxSide | LinenSide,
    pairing: Pairing,
    calls: list[running.Call],
    example: tuple | None,
    tolerance: float,
    fixed: Mapping[tuple, Any],
) -> Search:
    modules = dict(stored.module.named_modules()) if stored.module is not None else {}
    recorded: dict[str, running.Call | None] = {call.path: call for call in calls}

    def call(path: str) -> running.Call | None:
        if path not in recorded:
            steps = tuple(path.split(".")) if path else ()
            under = [t for t in pairing.torch if t.parts[: len(steps)] == steps]
            recorded[path] = running.alone(modules[path], _widths(under))
        return recorded[path]

    known = example if calls else None
    return Search(pairing, flax.runner(), call, modules, known, tolerance, fixed)


def _widths(layers: list[Torch]) -> list[int]:
    """How many features the first layers take."""
    shapes = [t.tensors["weight"].shape for t in layers if "weight" in t.tensors]
    return list(dict.fromkeys(s[-1] if len(s) < 3 else s[1] for s in shapes if s))[:4]


def _take_the_sure(pairing: Pairing) -> None:
    """Takes the layout that the kinds of layers tell, and what is equal whichever way."""
    for f, how in pairing.found.items():
        if f in pairing.open and pairing.open[f][0].sure:
            pairing.take(f, pairing.open[f][0], how)
    for family in families(pairing):
        for group in family:
            torches = dict.fromkeys(c.torch for f in group for c in pairing.open[f])
            if len(torches) < len(group):  # some stay unfilled, and so it is said
                pairing.left |= torches.keys()
                for f in group:
                    del pairing.open[f]
            elif all(_one_value(pairing.open[f]) for f in group):
                for f, torch in zip(group, torches):
                    choice = next(c for c in pairing.open[f] if c.torch is torch)
                    pairing.take(f, choice, "shape")


def _one_value(ways: list[Choice]) -> bool:
    values = [[fill.value() for fill in c.fills] for c in ways]
    return all(np.array_equal(a, b) for v in values[1:] for a, b in zip(values[0], v))


def _why_open(stored: Stored, search: Search, example: Any) -> str:
    if stored.module is None:
        return "names and shapes do not tell them apart, and arrays alone cannot be run"
    if example is None:
        return "names and shapes do not tell them apart, nor did submodules on random inputs"
    error = getattr(search.runner, "error", None)
    raised = f"; the flax side last raised {str(error).splitlines()[0]!r}" if error else ""
    return "no single assignment makes the outputs equal" + raised


def _complete(
    pairing: Pairing, slots: list[Slot], stored: Stored, why_open: str
) -> list[tuple[str, str]]:
    """The torch tensors that are left with good reason.

    Raises:
      WrongWeights: others are left, variables are not filled, or layers are open.
    """
    fills = [fill for choice, _ in pairing.decided.values() for fill in choice.fills]
    filled = {fill.slot.path for fill in fills}
    used = {name for fill in fills for name in fill.tensor.sources}
    open_ = [c for ways in pairing.open.values() for c in ways]
    used |= {name for c in open_ for fill in c.fills for name in fill.tensor.sources}
    filled |= {slot.path for f in pairing.open for slot in f.slots.values()}
    lost = []
    for f, (choice, _) in pairing.decided.items():
        if choice.torch.kind in ("lstm", "gru", "rnn"):
            lost += recurrent.homeless(f, choice.torch)
            used |= {s for t in choice.torch.tensors.values() for s in t.sources}
    if lost:
        raise trouble.homeless(lost)
    out, unused = [], []
    for name, tensor in stored.tensors.items():
        if name not in used:
            why = _excuse(tensor, used, stored)
            out += [(name, why)] if why else []
            unused += [] if why else [tensor]
    unfilled = [s for s in slots if s.needed and s.path not in filled]
    if unused or unfilled or pairing.open:
        raise trouble.unsettled(pairing, unfilled, unused, why_open)
    return out


def _excuse(tensor: Tensor, used: set[str], stored: Stored) -> str:
    """Why a tensor may be left out: it holds no real numbers, or is another one once more."""
    array = tensor.read()
    if array.dtype.kind in "iub":
        return "holds no floating-point numbers"
    if array.ndim < 2 or prod(array.shape) < 2:
        return ""
    for name in used:
        other = stored.tensors[name]
        if other.shape == tensor.shape and np.array_equal(other.read(), array) and array.std() > 0:
            return f"tied to {name}"
    return ""


def _written(
    flax: NnxSide | LinenSide,
    pairing: Pairing,
    values: Mapping[tuple, Any],
    slots: list[Slot],
    left_out: list[tuple[str, str]],
    notes: list[str],
    checked: str,
) -> tuple[Any, Report]:
    matches, done = [], {}
    old = {s.path: s for s in flax.slots()}
    placed = lambda p, v: flax_layers.place(v.astype(old[p].dtype), old[p].value)
    for path, value in values.items():
        if value is not None:
            done[path] = placed(path, value)
            matches.append(Match(old[path].name, "(array)", "as it is", "given"))
    for choice, how in pairing.decided.values():
        for fill in choice.fills:
            value = fill.value()
            want = jnp.dtype(fill.slot.dtype)
            cast = "" if value.dtype == want else f"{value.dtype} -> {want}"
            done[fill.slot.path] = placed(fill.slot.path, value)
            name = fill.slot.name
            matches.append(Match(name, fill.tensor.label, fill.layout.name, how, cast))
    stays = tuple(s.name for s in old.values() if s.path not in done)
    filled = flax.write(done)
    return filled, Report(tuple(matches), tuple(left_out), stays, tuple(notes), checked)
