"""Models of other people's torch packages, small, with random weights, and example inputs of each.

A file for each field. Packages are imported where a case is built, so that the table can be read
without them.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping

import torch

Arguments = tuple[object, ...]


@dataclasses.dataclass(frozen=True)
class Example:
    """A module or a function of tensors, with inputs.

    Attributes:
      function: what is converted.
      inputs: draws its arguments; told true, of other sizes where ``shapes`` leaves them open.
      shapes: the open sizes, as ``Model.save`` takes them.
      constraints: what holds for these, as ``Model.save`` takes it.
      train: in training mode, where the package's own use of this is.
      random: the output is drawn at random, and only its shape counts.
    """

    function: Callable[..., object]
    inputs: Callable[[bool], Arguments]
    shapes: Mapping[str, str] | None = None
    constraints: tuple[str, ...] = ()
    train: bool = False
    random: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the table: what builds the example, and whether in float64."""

    package: str
    name: str
    build: Callable[[str], Example]
    wide: bool = False

    def example(self) -> Example:
        """Returns the example with the weights of seed 0."""
        torch.set_default_dtype(torch.float64 if self.wide else torch.float32)
        torch.manual_seed(0)
        example = self.build(self.name)
        if isinstance(example.function, torch.nn.Module):
            example.function.train(example.train)
        return example


CASES: dict[str, Case] = {}


def cases(package: str, *names: str, wide: bool = False) -> Callable[[Callable], Callable]:
    """Enters a function as what builds these cases of a package; it is told the case's name."""

    def enter(build: Callable[[str], Example]) -> Callable[[str], Example]:
        for name in names:
            CASES[f"{package}/{name}"] = Case(package, name, build, wide)
        return build

    return enter


def table() -> dict[str, Case]:
    """Returns all cases by package and name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return CASES
