"""``torch.export`` of a module, by the first of several ways that succeeds."""

from __future__ import annotations

import inspect
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tojax.errors import Unsupported, WrongArguments
from tojax.flax.codegen.graph.data_dependent import (
    DataDependentSizes,
    deciding_inputs,
    may_hold_sizes,
    recorded_decisions,
    sizes_from_arrays,
)
from tojax.flax.codegen.graph.dropout_rates import unmodified
from tojax.flax.codegen.graph.dynamic_sizes import (
    ComplicatedSizes,
    all_but_picture_sizes,
    every_size,
    refuse_complicated_sizes,
)
from tojax.flax.codegen.graph.empty_masks import take_mask_branches
from tojax.flax.codegen.graph.private import grouped_experts, masks_not_inspected, restored_modes
from tojax.flax.codegen.graph.quiet import quiet
from tojax.flax.codegen.graph.size_arrays import tracked_numbers

Kwargs = dict[str, Any]
# The program, its constants, inputs that are constants, first fixed dimensions of inputs.
Exported = tuple[ExportedProgram, dict[str, Any], dict[str, Any], dict[str, int]]


def program_of(module: torch.nn.Module, args: tuple, kwargs: Kwargs) -> Exported:
    """Returns the exported program, its constants, inputs that are constants, and inputs of fixed
    sizes.

    Raises:
      Unsupported: torch.export refuses the module.
      WrongArguments: it fails on this example.
    """
    names = _simple_calls(module, args, kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    program: Any = None
    failure: Exception | None = None
    batch_only: dict[str, int] = {}
    try:
        with refuse_complicated_sizes(module):
            program = _export(module, args, kwargs, set(names), every_size)
    except Exception as error:
        failure = error
    pictures = any(len(every_size(x)) > len(all_but_picture_sizes(x)) for x in leaves)
    if pictures and failure and not isinstance(failure, GuardOnDataDependentSymNode):
        try:
            program = _export(module, args, kwargs, set(names), all_but_picture_sizes)
            failure = None
            inputs = zip(program.graph_signature.user_inputs, leaves)
            batch_only = {
                k: 1 for k, x in inputs if len(every_size(x)) > len(all_but_picture_sizes(x))
            }
        except Exception as error:
            failure = error if isinstance(failure, ComplicatedSizes) else failure
    if failure is not None or sizes_from_arrays(program):
        for export_with in (
            _with_mask_branches,
            _with_grouped_experts,
            _with_tracked_sizes,
            _with_example_numbers,
        ):
            try:
                return export_with(module, args, kwargs, set(names))
            except Exception as error:
                later_error = error
        if failure is not None:
            raise _refused(module, failure) from later_error
    return program, program.constants, {}, batch_only


def _with_mask_branches(
    module: torch.nn.Module, args: tuple, kwargs: Kwargs, names: set[str]
) -> Exported:
    """Exports with writes to masks done even where the mask is empty."""
    with grouped_experts(module), take_mask_branches(module) as branch_lines:
        program = _export(module, args, kwargs, names, every_size)
    if not branch_lines or sizes_from_arrays(program):
        raise DataDependentSizes("sizes follow from what arrays hold")
    return program, program.constants, {}, {}


def _with_grouped_experts(
    module: torch.nn.Module, args: tuple, kwargs: Kwargs, names: set[str]
) -> Exported:
    """Exports with experts as grouped products, where the loop over those hit decides."""
    with grouped_experts(module) as has_experts:
        if not has_experts:
            raise DataDependentSizes("there are no experts")
        program = _export(module, args, kwargs, names, every_size)
    return program, program.constants, {}, {}


def _with_tracked_sizes(
    module: torch.nn.Module, args: tuple, kwargs: Kwargs, names: set[str]
) -> Exported:
    """Exports with the numbers that depend on arrays of sizes (size_arrays.py)."""
    leaves = pytree.tree_leaves((args, kwargs))
    holds_sizes = lambda x: may_hold_sizes(x, leaves)
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    values = {k: x for k, x in bound.items() if any(map(holds_sizes, pytree.tree_leaves(x)))}
    if not values:
        raise DataDependentSizes("no input is an array of sizes")
    dims = lambda x: [] if holds_sizes(x) else every_size(x)
    with grouped_experts(module), tracked_numbers(module, values):
        program = _export(module, args, kwargs, names, dims)
    if sizes_from_arrays(program):
        raise DataDependentSizes("sizes follow from what arrays hold")
    inputs = zip(program.graph_signature.user_inputs, leaves)
    return program, program.constants, {name: x for name, x in inputs if holds_sizes(x)}, {}


def _export(
    module: torch.nn.Module, args: tuple, kwargs: Kwargs, names: set[str], dynamic_dims: Callable
) -> ExportedProgram:
    """Exports; submodules that are called in several ways go without signature."""
    sizes = lambda x: (
        dict.fromkeys(dynamic_dims(x), Dim.AUTO) if isinstance(x, torch.Tensor) else None
    )
    shapes = _shapes_by_parameter(module, *pytree.tree_map(sizes, (args, kwargs)))
    while True:
        try:
            with warnings.catch_warnings(), quiet(), masks_not_inspected(), restored_modes():
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
            mismatch = re.search(r"mismatch for _export_root\.(\S+?):", str(error))
            if mismatch is None or mismatch[1] not in names:
                raise
            names.discard(mismatch[1])
        except Exception as error:
            if not names or isinstance(error, (GuardOnDataDependentSymNode, ComplicatedSizes)):
                raise
            names.clear()  # how submodules are called then follows from what they read


def _with_example_numbers(
    module: torch.nn.Module, args: tuple, kwargs: Kwargs, names: set[str]
) -> Exported:
    """Exports with the example's numbers where numbers in arrays decide (data_dependent.py)."""
    leaves = pytree.tree_leaves((args, kwargs))
    fix_sizes = False
    while True:
        is_fixed = lambda x: fix_sizes or may_hold_sizes(x, leaves)  # noqa: B023
        dims = lambda x: [] if is_fixed(x) else every_size(x)  # noqa: B023
        with grouped_experts(module), recorded_decisions() as decisions:
            program = _export(module, args, kwargs, names, dims)
        inputs, fixes = deciding_inputs(program, decisions.symbols)
        if fix_sizes or not fixes:
            break
        fix_sizes = True  # sizes reach numbers that decide: no other sizes can be right
    values = dict(zip(program.graph_signature.user_inputs, leaves))
    constant_inputs = {name: values[name] for name in inputs if name in values}
    if not all(may_hold_sizes(value, leaves) for value in constant_inputs.values()):
        raise DataDependentSizes(f"the numbers in {', '.join(constant_inputs)} decide")
    return (
        program,
        program.constants,
        constant_inputs,
        dict.fromkeys(values, 0) if fix_sizes else {},
    )


def _simple_calls(module: torch.nn.Module, args: tuple, kwargs: Kwargs) -> set[str]:
    """Returns the submodules that take and return arrays and flags only."""
    simple: set[str] = set()
    not_simple: set[str] = set()
    handles = []

    def hook(name):
        def note(_, args, kwargs, out):
            leaves = pytree.tree_leaves((args, kwargs, out))
            is_simple = all(x is None or isinstance(x, (torch.Tensor, bool, float)) for x in leaves)
            (simple if is_simple else not_simple).add(name)

        return note

    for name, submodule in module.named_modules():
        if name:
            handles.append(submodule.register_forward_hook(hook(name), with_kwargs=True))
    try:
        with unmodified(module), torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        raise _failed(module, bool(args or kwargs), error) from error
    finally:
        for handle in handles:
            handle.remove()
    return simple - not_simple


def _shapes_by_parameter(module: torch.nn.Module, args: tuple, kwargs: Kwargs):
    """Returns dynamic shapes by parameter, positional ones included."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    shapes: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        shapes |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return shapes


def _failed(module: torch.nn.Module, called: bool, error: Exception) -> WrongArguments:
    """Returns the error for an example that the module refuses, or for no example."""
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
    user_frames = [x for x in frames if "/torch/" not in x.filename][1:]
    return WrongArguments(
        f"{type(module).__name__} fails on this example",
        where=f"{user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else "",
        why=next(iter(str(error).strip().splitlines()), "") or type(error).__name__,
        do="give inputs that module(...) takes in PyTorch",
    )


def _refused(module: torch.nn.Module, error: Exception) -> Unsupported:
    lines = str(error).strip().splitlines()
    where = re.findall(r'File "(.+?)", line (\d+)', str(error))
    return Unsupported(
        f"torch.export refuses {type(module).__name__}",
        where=":".join(where[-1]) if where else "",
        why=" ".join(lines[:3])[:400] or type(error).__name__,
        do="change what it names, or pass partial=True to leave that submodule a call into tojax",
    )
