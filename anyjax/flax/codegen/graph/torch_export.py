"""``torch.export`` of a module, by the first of several ways that succeeds."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch.export import Dim, ExportedProgram, export
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from anyjax.compare.recorders.torch_calls import unmodified, watched
from anyjax.errors import Unsupported, WrongArguments
from anyjax.flax.codegen.graph.data_dependent import (
    DataDependentSizes,
    deciding_inputs,
    may_hold_sizes,
    recorded_decisions,
    sizes_from_arrays,
)
from anyjax.flax.codegen.graph.empty_masks import take_mask_branches
from anyjax.flax.codegen.graph.private import grouped_experts, masks_not_inspected, restored_modes
from anyjax.flax.codegen.graph.quiet import quiet
from anyjax.flax.codegen.graph.size_arrays import tracked_numbers
from anyjax.flax.codegen.python.sizes import symbolic

MAX_LENGTH = 60  # symbols, numbers and operators of one size


@dataclass(frozen=True)
class Exported:
    """A program of torch.export.

    Attributes:
      constant_inputs: the inputs that are constants of it, by name.
      fixed: inputs that have to have the example's sizes, each with the first dimension of these.
    """

    program: ExportedProgram
    constant_inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)


def program_of(module: torch.nn.Module, args: tuple, kwargs: dict) -> Exported:
    """Exports a module by the first way that succeeds.

    Raises:
      Unsupported: torch.export refuses the module.
      WrongArguments: it fails on this example.
    """
    ways = _Ways(module, args, kwargs, _simple_calls(module, args, kwargs))
    exported: Exported | None = None
    failures: list[Exception] = []
    for way in (ways.any_size, ways.any_size_but_of_pictures)[: 1 + ways.has_pictures()]:
        try:
            exported = way()
            break
        except Exception as error:
            failures.append(error)
            if isinstance(error, GuardOnDataDependentSymNode):
                break
    if exported is None or sizes_from_arrays(exported.program):
        for way in (ways.masks_and_experts, ways.tracked_sizes, ways.example_numbers):
            try:
                return way()
            except Exception as error:
                later_error = error
    if exported is None:
        complicated = isinstance(failures[0], ComplicatedSizes)
        raise _refused(module, failures[-1 if complicated else 0]) from later_error
    return exported


@dataclass(frozen=True)
class _Ways:
    """The ways to export a module with an example; one that does not apply raises an error.

    Attributes:
      simple_calls: the submodules whose calls torch.export can describe.
    """

    module: torch.nn.Module
    args: tuple
    kwargs: dict
    simple_calls: set[str]

    def leaves(self) -> list:
        return pytree.tree_leaves((self.args, self.kwargs))

    def has_pictures(self) -> bool:
        return any(map(_is_picture, self.leaves()))

    def any_size(self) -> Exported:
        """Exports with all sizes dynamic."""
        with refuse_complicated_sizes(self.module):
            return Exported(self.export(every_size))

    def any_size_but_of_pictures(self) -> Exported:
        """Exports with the sizes of pictures and volumes as in the example."""
        program = self.export(lambda x: [0] if _is_picture(x) else every_size(x))
        inputs = zip(program.graph_signature.user_inputs, self.leaves())
        return Exported(program, fixed={name: 1 for name, x in inputs if _is_picture(x)})

    def masks_and_experts(self) -> Exported:
        """Exports with writes to masks done even where the mask is empty, and with experts as
        grouped products instead of a loop over those that are hit.
        """
        with (
            grouped_experts(self.module) as has_experts,
            take_mask_branches(self.module) as branch_lines,
        ):
            program = self.export(every_size)
        if sizes_from_arrays(program) if branch_lines else not has_experts:
            raise DataDependentSizes("sizes follow from what arrays hold")
        return Exported(program)

    def tracked_sizes(self) -> Exported:
        """Exports with the numbers that depend on arrays of sizes (size_arrays.py)."""
        leaves = self.leaves()
        holds_sizes = lambda x: may_hold_sizes(x, leaves)
        bound = inspect.signature(self.module.forward).bind(*self.args, **self.kwargs).arguments
        values = {k: x for k, x in bound.items() if any(map(holds_sizes, pytree.tree_leaves(x)))}
        if not values:
            raise DataDependentSizes("no input is an array of sizes")
        with grouped_experts(self.module), tracked_numbers(self.module, values):
            program = self.export(lambda x: [] if holds_sizes(x) else every_size(x))
        if sizes_from_arrays(program):
            raise DataDependentSizes("sizes follow from what arrays hold")
        inputs = zip(program.graph_signature.user_inputs, leaves)
        return Exported(program, {name: x for name, x in inputs if holds_sizes(x)})

    def example_numbers(self, fix_sizes: bool = False) -> Exported:
        """Exports with the example's numbers where numbers in arrays decide (data_dependent.py)."""
        leaves = self.leaves()
        is_fixed = lambda x: fix_sizes or may_hold_sizes(x, leaves)
        with grouped_experts(self.module), recorded_decisions() as decisions:
            program = self.export(lambda x: [] if is_fixed(x) else every_size(x))
        names, fixes = deciding_inputs(program, decisions.symbols)
        if fixes and not fix_sizes:  # sizes reach numbers that decide: no other sizes can be right
            return self.example_numbers(fix_sizes=True)
        values = dict(zip(program.graph_signature.user_inputs, leaves))
        constant_inputs = {name: values[name] for name in names if name in values}
        if not all(may_hold_sizes(value, leaves) for value in constant_inputs.values()):
            raise DataDependentSizes(f"the numbers in {', '.join(constant_inputs)} decide")
        return Exported(program, constant_inputs, dict.fromkeys(values, 0) if fix_sizes else {})

    def export(self, dynamic_dims: Callable[[object], list[int]]) -> ExportedProgram:
        """Exports; submodules that are called in several ways go without signature."""
        sizes = lambda x: (
            dict.fromkeys(dynamic_dims(x), Dim.AUTO) if isinstance(x, torch.Tensor) else None
        )
        shapes = self.by_parameter(*pytree.tree_map(sizes, (self.args, self.kwargs)))
        names = set(self.simple_calls)
        while True:
            try:
                with warnings.catch_warnings(), quiet(), masks_not_inspected(), restored_modes():
                    warnings.simplefilter("ignore")  # of torch's own modules
                    return export(
                        self.module,
                        self.args,
                        self.kwargs,
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

    def by_parameter(self, args: tuple, kwargs: dict) -> dict[str, object]:
        """Returns values by parameter, positional ones included."""
        bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
        values: dict[str, object] = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            values |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return values


def _is_picture(x: object) -> bool:
    """Returns whether an input is a picture or a volume."""
    return len(every_size(x)) > 3


class ComplicatedSizes(Exception):
    """Raised for sizes that are long expressions: torch.export takes minutes for them."""


@contextlib.contextmanager
def refuse_complicated_sizes(module: torch.nn.Module) -> Iterator[None]:
    """Raises ComplicatedSizes where a submodule gets an array with such a size."""

    def check(_: str, args: tuple, kwargs: dict) -> None:
        for x in pytree.tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and any(
                _expression_length(size) > MAX_LENGTH for size in x.shape
            ):
                raise ComplicatedSizes

    with watched(module.named_modules(), check):
        yield


def _expression_length(size: object) -> int:
    args = getattr(symbolic(size), "args", ())
    return 1 + sum(map(_expression_length, args))


def every_size(x: object) -> list[int]:
    """Returns all dimensions of an array; of other values none."""
    return list(range(x.ndim)) if isinstance(x, torch.Tensor) else []


def _simple_calls(module: torch.nn.Module, args: tuple, kwargs: dict) -> set[str]:
    """Returns the submodules that take and return arrays and flags only."""
    simple: dict[str, bool] = {}

    def record(name: str, args: tuple, kwargs: dict, out: object) -> None:
        leaves = pytree.tree_leaves((args, kwargs, out))
        is_simple = all(x is None or isinstance(x, (torch.Tensor, bool, float)) for x in leaves)
        simple[name] = simple.get(name, True) and is_simple

    try:
        with watched(module.named_modules(), leave=record), unmodified(module), torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        raise _failed(module, bool(args or kwargs), error) from error
    return {name for name, is_simple in simple.items() if name and is_simple}


def _failed(module: torch.nn.Module, called: bool, error: Exception) -> WrongArguments:
    """Returns the error for an example that the module refuses, or for no example."""
    if not called:
        takes = [*inspect.signature(module.forward).parameters]
        return WrongArguments(
            f"no example of what {type(module).__name__} takes",
            where=f"forward({', '.join(takes)})",
            why="the code is written from a call, which is traced",
            do="give inputs as the module takes them: "
            f"anyjax.flax.source(module, {', '.join(takes[:1]) or '...'})",
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
        do="change what it names, or pass partial=True to leave that submodule a call into anyjax",
    )
