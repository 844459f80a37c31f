"""A module as the program that ``torch.export`` makes of it, by whichever way takes it."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from typing import Any

import torch
from torch.export import Dim, export
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tojax.errors import Unsupported, WrongArguments
from tojax.flax.codegen.graph.data_dependent import (
    Undecided,
    deciding,
    sizes_from_arrays,
    tells_sizes,
    watched,
)
from tojax.flax.codegen.graph.dropout_rates import unchanged
from tojax.flax.codegen.graph.dynamic_sizes import (
    Involved,
    but_for_pictures,
    every_size,
    simple_sizes,
)
from tojax.flax.codegen.graph.empty_masks import always
from tojax.flax.codegen.graph.private import grouped_experts, masks_in_full, same_modes
from tojax.flax.codegen.graph.quiet import quiet
from tojax.flax.codegen.graph.size_arrays import computed


def program_of(module, args, kwargs):
    """(the exported program, its constants, inputs that are constants, those of fixed sizes).

    Raises:
      Unsupported: torch.export refuses the module.
      WrongArguments: it fails on this example.
    """
    names = _plainly_called(module, args, kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    program: Any = None
    failure: Exception | None = None
    picture: dict[str, int] = {}
    try:
        with simple_sizes(module):
            program = _attempted(module, args, kwargs, set(names), every_size)
    except Exception as error:
        failure = error
    pictures = any(len(every_size(x)) > len(but_for_pictures(x)) for x in leaves)
    if pictures and failure and not isinstance(failure, GuardOnDataDependentSymNode):
        try:
            program = _attempted(module, args, kwargs, set(names), but_for_pictures)
            failure = None
            inputs = zip(program.graph_signature.user_inputs, leaves)
            picture = {k: 1 for k, x in inputs if len(every_size(x)) > len(but_for_pictures(x))}
        except Exception as error:
            failure = error if isinstance(failure, Involved) else failure
    if failure is not None or sizes_from_arrays(program):
        for attempt in (_always, _grouped, _computed, _decided):
            try:
                return attempt(module, args, kwargs, set(names))
            except Exception as error:
                other = error
        if failure is not None:
            raise _refused(module, failure) from other
    return program, program.constants, {}, picture


def _always(module, args, kwargs, names: set[str]):
    """The same where masks that may be empty are written to anyway."""
    with grouped_experts(module), always(module) as taken:
        program = _attempted(module, args, kwargs, names, every_size)
    if not taken or sizes_from_arrays(program):
        raise Undecided("sizes follow from what arrays hold")
    return program, program.constants, {}, {}


def _grouped(module, args, kwargs, names: set[str]):
    """The same with experts as grouped products, where the loop over those hit decides."""
    with grouped_experts(module) as found:
        if not found:
            raise Undecided("there are no experts")
        program = _attempted(module, args, kwargs, names, every_size)
    return program, program.constants, {}, {}


def _computed(module, args, kwargs, names: set[str]):
    """The same with the numbers that follow from arrays of sizes (size_arrays.py)."""
    leaves = pytree.tree_leaves((args, kwargs))
    telling = lambda x: tells_sizes(x, leaves)
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    values = {k: x for k, x in bound.items() if any(map(telling, pytree.tree_leaves(x)))}
    if not values:
        raise Undecided("no input is an array of sizes")
    some = lambda x: [] if telling(x) else every_size(x)
    with grouped_experts(module), computed(module, values):
        program = _attempted(module, args, kwargs, names, some)
    if sizes_from_arrays(program):
        raise Undecided("sizes follow from what arrays hold")
    inputs = zip(program.graph_signature.user_inputs, leaves)
    return program, program.constants, {name: x for name, x in inputs if telling(x)}, {}


def _attempted(module, args, kwargs, names: set[str], varying: Any):
    """The program; submodules that are called in several ways go without signature."""
    sizes = lambda x: dict.fromkeys(varying(x), Dim.AUTO) if isinstance(x, torch.Tensor) else None
    shapes = _by_argument(module, *pytree.tree_map(sizes, (args, kwargs)))
    while True:
        try:
            with warnings.catch_warnings(), quiet(), masks_in_full(), same_modes():
                warnings.simplefilter("ignore")  # of torch's own modules
                return export(
                    module,
                    args,
                    kwargs,
                    dynamic_shapes=shapes,
                    strict=False,
                    preserve_module_call_signature=tuple(names),
                )
        except AssertionError as error:
            found = re.search(r"mismatch for _export_root\.(\S+?):", str(error))
            if found is None or found[1] not in names:
                raise
            names.discard(found[1])
        except Exception as error:
            if not names or isinstance(error, (GuardOnDataDependentSymNode, Involved)):
                raise
            names.clear()  # how submodules are called then follows from what they read


def _decided(module, args, kwargs, names: set[str]):
    """The same where numbers in arrays decide: see ``tojax.flax.codegen.graph.data_dependent``."""
    leaves = pytree.tree_leaves((args, kwargs))
    fixed = False
    while True:
        some = lambda x: [] if fixed or tells_sizes(x, leaves) else every_size(x)  # noqa: B023
        with grouped_experts(module), watched() as decisions:
            program = _attempted(module, args, kwargs, names, some)
        inputs, fixes = deciding(program, decisions.symbols)
        if fixed or not fixes:
            break
        fixed = True  # sizes reach numbers that decide: no other sizes can be right
    values = dict(zip(program.graph_signature.user_inputs, leaves))
    given = {name: values[name] for name in inputs if name in values}
    if not all(tells_sizes(value, leaves) for value in given.values()):
        raise Undecided(f"the numbers in {', '.join(given)} decide")
    return program, program.constants, given, dict.fromkeys(values, 0) if fixed else {}


def _plainly_called(module, args, kwargs) -> set[str]:
    """The submodules that take and give arrays, flags and nothing else."""
    found: set[str] = set()
    left_out: set[str] = set()
    handles = []

    def hook(name):
        def note(_, args, kwargs, out):
            leaves = pytree.tree_leaves((args, kwargs, out))
            plain = all(x is None or isinstance(x, (torch.Tensor, bool, float)) for x in leaves)
            (found if plain else left_out).add(name)

        return note

    for name, part in module.named_modules():
        if name:
            handles.append(part.register_forward_hook(hook(name), with_kwargs=True))
    try:
        with unchanged(module), torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        raise _fails(module, bool(args or kwargs), error) from error
    finally:
        for handle in handles:
            handle.remove()
    return found - left_out


def _by_argument(module, args, kwargs):
    """Dynamic shapes are given by the names of arguments, positional ones included."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        found |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def _fails(module, called: bool, error: Exception) -> WrongArguments:
    """What is wrong with an example that the module does not take, or that there is none."""
    if not called:
        takes = [*inspect.signature(module.forward).parameters]
        return WrongArguments(
            f"no example of what {type(module).__name__} takes",
            where=f"forward({', '.join(takes)})",
            why="the code is written from a call, which is traced",
            do="give inputs as the module takes them: "
            f"tojax.flax.source(module, {', '.join(takes[:1]) or '...'})",
        )
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [x for x in frames if "/torch/" not in x.filename][1:]
    return WrongArguments(
        f"{type(module).__name__} fails on this example",
        where=f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else "",
        why=next(iter(str(error).strip().splitlines()), "") or type(error).__name__,
        do="give inputs that module(...) takes in PyTorch",
    )


def _refused(module, error: Exception) -> Unsupported:
    said = str(error).strip().splitlines()
    where = re.findall(r'File "(.+?)", line (\d+)', str(error))
    return Unsupported(
        f"torch.export refuses {type(module).__name__}",
        where=":".join(where[-1]) if where else "",
        why=" ".join(said[:3])[:400] or type(error).__name__,
        do="change what it names, or pass partial=True to leave that submodule a call into tojax",
    )
