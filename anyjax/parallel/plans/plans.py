"""Plans as a PartitionSpec for each parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anyjax import multiprocess
from anyjax.errors import WrongArguments
from anyjax.numerics.mesh_axes import NAMES
from anyjax.parallel.plans import declared, derived
from anyjax.parallel.plans.axes import axis

Rules = Mapping[str, PartitionSpec] | Iterable[tuple[str, PartitionSpec]]
Plan = str | Rules  # words joined by "+", or rules
BY_NAME = ("tp", "fsdp", "tp+fsdp")  # plans for the weights of any model
Derive = Callable[[Callable, int], dict[str, int]]  # (a function of plans/derived.py, shards)
Fits = Callable[[str, int, int], bool]  # (name, dimension, shards)
WORDS = ("tp", "fsdp", "expert", "sequence")


def all_fit(name: str, dimension: int, shards: int) -> bool:
    """Returns True: any dimension of any parameter may be divided."""
    return True


def specs(
    shapes: Mapping[str, Any],
    mesh: Mesh,
    plan: Plan | None,
    paths: Mapping[str, list[str]] | None = None,
    model_plan: Mapping[str, str] | None = None,
    derive: Derive | None = None,
    fits: Fits = all_fit,
) -> dict[str, PartitionSpec]:
    """Returns a spec for each parameter.

    Args:
      shapes: the parameters, or their shapes and dtypes, by name.
      mesh: the mesh; names of axes say what they are for (``plans/axes.py``).
      plan: some of "tp", "fsdp", "expert" and "sequence", joined by "+", or rules: the first whose
        regular expression matches in a name. Experts are divided wherever there is an axis for
        them; "sequence" is about inputs and divides no weights.
      paths: all names of each parameter, its own by default.
      model_plan: the model's own plan for "tp", as transformers writes it.
      derive: derives dimensions from the model's program, where there is no plan.
      fits: whether "fsdp" may divide a dimension of a parameter over so many devices.

    Raises:
      WrongArguments: no such plan, no such axis, or rules that do not divide the arrays.
    """
    if not isinstance(plan, str):
        return by_rules(shapes, mesh, plan or ())
    words = words_of(plan, mesh)
    derive = derive or _derive_nothing
    axis_of: dict[str, dict[int, str]] = {k: {} for k in shapes}
    fsdp_axis = axis(mesh, "fsdp", allow_any_name=words == {"fsdp"}) if "fsdp" in words else ""
    if {*NAMES["expert"]} & {*mesh.axis_names}:
        expert_axis = axis(mesh, "expert")
        for name, i in experts(shapes, mesh.shape[expert_axis], derive).items():
            axis_of[name][i] = expert_axis
    if "tp" in words:
        tp_axis = axis(mesh, "tp", allow_any_name=words == {"tp"})
        shards = mesh.shape[tp_axis]
        if model_plan:
            tp_dims = declared.dimensions(
                model_plan, paths or {k: [k] for k in shapes}, shapes, shards
            )
        else:
            tp_dims = derive(derived.dimensions, shards)
        for name, i in tp_dims.items():
            if tp_axis not in axis_of[name].values():  # experts may lie along it
                axis_of[name].setdefault(i, tp_axis)
    if fsdp_axis:
        for name, x in shapes.items():
            free = [i for i in range(len(x.shape)) if i not in axis_of[name]]
            count = mesh.shape[fsdp_axis]
            free = [i for i in free if x.shape[i] % count == 0 and fits(name, i, count)]
            if free:
                axis_of[name][max(free, key=lambda i: x.shape[i])] = fsdp_axis
    return {k: spec(len(x.shape), axis_of[k]) for k, x in shapes.items()}


def words_of(plan: str, mesh: Mesh) -> set[str]:
    """Returns the words of a plan by name.

    Raises:
      WrongArguments: there is no such plan, or no axis for a sequence or experts.
    """
    words = plan.split("+")
    if {*words} - {*WORDS} or len({*words}) < len(words):
        raise WrongArguments(
            f"there is no plan {plan!r}",
            why=f'plans by name are {", ".join(WORDS)}, or several of them: "tp+fsdp"',
            do='take one, or give rules: {r"q_proj.weight": PartitionSpec("model", None)}',
        )
    for word in {"sequence", "expert"} & {*words}:
        axis(mesh, word, allow_any_name=False)
    return {*words}


def experts(shapes: Mapping[str, Any], shards: int, derive: Derive) -> dict[str, int]:
    """Returns the dimension of experts in their stacked weights, by name or by the program."""
    named = {k: x for k, x in shapes.items() if "expert" in k and len(x.shape) == 3}
    if not named:
        return derive(derived.experts, shards)
    return {k: 0 for k, x in named.items() if x.shape[0] % shards == 0}


def _derive_nothing(rule: Callable, shards: int) -> dict[str, int]:
    raise AssertionError("specs needs a program to derive from")


def spec(ndim: int, axis_of: Mapping[int, str]) -> PartitionSpec:
    """Returns a PartitionSpec with these dimensions divided.

    Example:
      >>> spec(3, {1: "model"})
      P(None, 'model')
    """
    last = max(axis_of, default=-1)
    return PartitionSpec(*(axis_of.get(i) for i in range(min(ndim, last + 1))))


def by_rules(shapes: Mapping[str, Any], mesh: Mesh, rules: Rules) -> dict[str, PartitionSpec]:
    """Returns the spec of the first rule that matches in a name; others are replicated."""
    pairs = pairs_of(rules)
    chosen, wrong = {}, []
    for name, x in shapes.items():
        chosen[name] = rule_spec = next(
            (s for p, s in pairs if re.search(p, name)), PartitionSpec()
        )
        try:
            axes = [a for x in rule_spec for a in ((x,) if isinstance(x, str) else x or ())]
            if len({*axes}) < len(axes):  # JAX raises another type of error
                raise ValueError("an axis lies along one dimension at most")
            sharding = NamedSharding(mesh, rule_spec)
            sharding.check_compatible_aval(tuple(x.shape))
            sharding.shard_shape(tuple(x.shape))
        except (TypeError, ValueError) as error:
            message = str(error).splitlines()[0]
            wrong.append(f"{name} {list(x.shape)} as {rule_spec}: {message}")
    if wrong:
        raise WrongArguments(
            f"the plan does not fit {len(wrong)} arrays: {'; '.join(wrong)}",
            where=f"mesh {dict(mesh.shape)}",
            why="a sharded dimension is a multiple of its mesh axes",
            do="change those rules; what no rule names is replicated",
        )
    return chosen


def pairs_of(rules: Rules) -> list[tuple[re.Pattern, PartitionSpec]]:
    """Returns rules with compiled expressions.

    Raises:
      WrongArguments: these are no rules.
    """
    try:
        items = rules.items() if isinstance(rules, Mapping) else rules
        pairs = [(re.compile(p), s) for p, s in items]
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


def shard_arrays(
    arrays: Mapping[str, jax.Array], mesh: Mesh, weight_specs: Mapping[str, PartitionSpec]
) -> dict:
    """Places arrays on the mesh; those without a spec are on every device."""
    if mesh.is_multi_process:
        do = "make the same model in all: set the seed that weights are drawn by, or load them"
        multiprocess.check_same(arrays, do=do)
    sharding = lambda k: NamedSharding(mesh, weight_specs.get(k, PartitionSpec()))
    return {k: multiprocess.put(x, sharding(k)) for k, x in arrays.items()}
