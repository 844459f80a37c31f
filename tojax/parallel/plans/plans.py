"""Plans: which dimension of which parameter lies along which axis of the mesh."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tojax import multiprocess
from tojax.errors import WrongArguments
from tojax.parallel.plans import declared, derived
from tojax.parallel.plans.axes import NAMES, axis

Rules = Mapping[str, PartitionSpec] | Iterable[tuple[str, PartitionSpec]]
Plan = str | Rules  # words joined by "+", or rules
BY_NAME = ("tp", "fsdp", "tp+fsdp")  # those that divide weights of any model
Derive = Callable[[Callable, int], dict[str, int]]  # by a function of plans/derived.py, and parts
Fits = Callable[[str, int, int], bool]  # of a name, a dimension, and parts
WORDS = ("tp", "fsdp", "expert", "sequence")


def all_fit(name: str, dimension: int, parts: int) -> bool:
    """Any dimension of any parameter may be divided."""
    return True


def specs(
    shapes: Mapping[str, Any],
    mesh: Mesh,
    plan: Plan | None,
    paths: Mapping[str, list[str]] | None = None,
    own: Mapping[str, str] | None = None,
    derive: Derive | None = None,
    fits: Fits = all_fit,
) -> dict[str, PartitionSpec]:
    """A spec for each parameter.

    Args:
      shapes: the parameters, or their shapes and dtypes, by name.
      mesh: its axes are told apart by their names (``plans/axes.py``).
      plan: some of "tp", "fsdp", "expert" and "sequence", joined by "+", or rules: the first whose
        regular expression is found in a name. Experts are divided wherever there is an axis for
        them; "sequence" is about inputs and divides no weights.
      paths: all names of each parameter, its own by default.
      own: the model's own plan for "tp", as transformers writes them.
      derive: reads dimensions from the model's program, where no plan says them.
      fits: whether a dimension of a parameter may be divided into so many parts by "fsdp".

    Raises:
      WrongArguments: no such plan, no such axis, or rules that do not divide the arrays.
    """
    if not isinstance(plan, str):
        return by_rules(shapes, mesh, plan or ())
    words = words_of(plan, mesh)
    derive = derive or _missing
    placed: dict[str, dict[int, str]] = {k: {} for k in shapes}
    data = axis(mesh, "fsdp", alone=words == {"fsdp"}) if "fsdp" in words else ""
    if {*NAMES["expert"]} & {*mesh.axis_names}:
        home = axis(mesh, "expert")
        for name, i in experts(shapes, mesh.shape[home], derive).items():
            placed[name][i] = home
    if "tp" in words:
        model = axis(mesh, "tp", alone=words == {"tp"})
        parts = mesh.shape[model]
        if own:
            found = declared.dimensions(own, paths or {k: [k] for k in shapes}, shapes, parts)
        else:
            found = derive(derived.dimensions, parts)
        for name, i in found.items():
            if model not in placed[name].values():  # experts may lie along it
                placed[name].setdefault(i, model)
    if data:
        for name, x in shapes.items():
            free = [i for i in range(len(x.shape)) if i not in placed[name]]
            count = mesh.shape[data]
            free = [i for i in free if x.shape[i] % count == 0 and fits(name, i, count)]
            if free:
                placed[name][max(free, key=lambda i: x.shape[i])] = data
    return {k: spec(len(x.shape), placed[k]) for k, x in shapes.items()}


def words_of(plan: str, mesh: Mesh) -> set[str]:
    """The words of a plan by name.

    Raises:
      WrongArguments: there is no such plan, or no axis for a sequence.
    """
    words = plan.split("+")
    if {*words} - {*WORDS} or len({*words}) < len(words):
        raise WrongArguments(
            f"there is no plan {plan!r}",
            why=f'plans by name are {", ".join(WORDS)}, or several of them: "tp+fsdp"',
            do='take one, or give rules: {r"q_proj.weight": PartitionSpec("model", None)}',
        )
    for word in {"sequence", "expert"} & {*words}:
        axis(mesh, word, alone=False)
    return {*words}


def experts(shapes: Mapping[str, Any], parts: int, derive: Derive) -> dict[str, int]:
    """The dimension of experts in their stacked weights: by name, else by the program."""
    named = {k: x for k, x in shapes.items() if "expert" in k and len(x.shape) == 3}
    if not named:
        return derive(derived.experts, parts)
    return {k: 0 for k, x in named.items() if x.shape[0] % parts == 0}


def _missing(rule: Callable, parts: int) -> dict[str, int]:
    raise AssertionError("specs needs a program to derive from")


def spec(ndim: int, placed: Mapping[int, str]) -> PartitionSpec:
    """A PartitionSpec with these dimensions divided.

    Example:
      >>> spec(3, {1: "model"})
      P(None, 'model')
    """
    last = max(placed, default=-1)
    return PartitionSpec(*(placed.get(i) for i in range(min(ndim, last + 1))))


def by_rules(shapes: Mapping[str, Any], mesh: Mesh, rules: Rules) -> dict[str, PartitionSpec]:
    """The first rule that is found in a name; what no rule names is replicated."""
    pairs = pairs_of(rules)
    found, wrong = {}, []
    for name, x in shapes.items():
        found[name] = given = next((s for p, s in pairs if re.search(p, name)), PartitionSpec())
        try:
            axes = [a for x in given for a in ((x,) if isinstance(x, str) else x or ())]
            if len({*axes}) < len(axes):  # JAX's own error of this is no ValueError
                raise ValueError("an axis lies along one dimension at most")
            sharding = NamedSharding(mesh, given)
            sharding.check_compatible_aval(tuple(x.shape))
            sharding.shard_shape(tuple(x.shape))
        except (TypeError, ValueError) as error:
            said = str(error).splitlines()[0]
            wrong.append(f"{name} {list(x.shape)} as {given}: {said}")
    if wrong:
        raise WrongArguments(
            f"the plan does not fit {len(wrong)} arrays: {'; '.join(wrong)}",
            where=f"mesh {dict(mesh.shape)}",
            why="a sharded dimension is a multiple of its mesh axes",
            do="change those rules; what no rule names is replicated",
        )
    return found


def pairs_of(rules: Rules) -> list[tuple[re.Pattern, PartitionSpec]]:
    """The rules, each with its expression compiled.

    Raises:
      WrongArguments: they are something else.
    """
    try:
        given = rules.items() if isinstance(rules, Mapping) else rules
        pairs = [(re.compile(p), s) for p, s in given]
        if wrong := [s for _, s in pairs if not isinstance(s, PartitionSpec)]:
            raise TypeError(f"{wrong[0]!r} is no PartitionSpec")
    except (TypeError, ValueError, re.error) as error:
        raise WrongArguments(
            "the plan is neither a name nor rules",
            where=str(rules)[:200],
            why=str(error),
            do='give "tp", "fsdp", or {r"q_proj.weight": PartitionSpec("model", None)}',
        ) from None
    return pairs


def sharded(arrays: Mapping[str, Any], mesh: Mesh, found: Mapping[str, PartitionSpec]) -> dict:
    """The arrays in their places; what the plan does not name is on every device."""
    if mesh.is_multi_process:
        do = "make the same model in all: set the seed that weights are drawn by, or load them"
        multiprocess.check_same(arrays, do=do)
    place = lambda k: NamedSharding(mesh, found.get(k, PartitionSpec()))
    return {k: multiprocess.put(x, place(k)) for k, x in arrays.items()}
