"""Arrays as lines of text: what ``repr`` shows of a Model and of a training state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from anyjax import html_text, units
from anyjax.source import Source
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import anyjax

WIDTH = 90  # of a call, and of a module's shapes beside its name


def of_model(model: anyjax.Model) -> str:
    """Returns ``repr(model)``: the call, params by module with sizes, state, source and mode."""
    source = model.source
    precision = getattr(source, "precision", None)
    rows = [
        f"Model({headline(source)})",
        f"  call    {source.name}({_arguments(source.signature)})",
        f"  params  {counted([*model.params.values()])}",
        *(f"          {line}" for line in lines(by_module(model.params), 16)),
        f"  state   {len(model.state)} arrays, {total(model.state.values())[0]:,} values",
    ]
    if precision is not None:
        rows.append(f"  float32 {precision}")
    return "\n".join(rows)


def html_of_model(model: anyjax.Model) -> str:
    """Returns ``repr(model)`` for notebooks, with params and state to open."""
    first, *rest = of_model(model).splitlines()
    facts = [x.split(maxsplit=1) for x in rest if x[2] != " "]
    arrays = {k: x for k, x in (("params", model.params), ("state", model.state)) if x}
    trees = (
        html_text.details(name, f"{len(x)} arrays", html_text.tree(x)) for name, x in arrays.items()
    )
    return html_text.div(html_text.line(first), html_text.table(("", ""), facts), *trees)


def headline(source: Source) -> str:
    """Returns what a model is: its name, framework and mode."""
    mode = source.training if isinstance(source.training, tuple) else (source.training,)
    mode_name = "train" if all(mode) else "eval" if not any(mode) else "mixed"
    return f"{source.name} from {source.framework}, {mode_name} mode"


def _arguments(signature: inspect.Signature) -> str:
    """Returns the names of a call's arguments with short defaults; types are left out."""
    names = []
    for p in signature.parameters.values():
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        has_short_default = p.default is not p.empty and len(repr(p.default)) < 12
        names.append(f"{stars}{p.name}" + (f"={p.default!r}" if has_short_default else ""))
    return shortened(names)


def total(arrays: Iterable[PyTree]) -> tuple[int, int]:
    """Returns how many values there are in arrays, and how many bytes; other leaves count nothing.

    Example:
      >>> import numpy as np
      >>> total([np.zeros((3, 2)), None])
      (6, 48)
    """
    sized = [x for x in arrays if hasattr(x, "dtype")]
    return sum(x.size for x in sized), sum(x.size * x.dtype.itemsize for x in sized)


def counted(arrays: Sequence[PyTree]) -> str:
    """Returns the numbers of arrays, values and bytes.

    Example:
      >>> import numpy as np
      >>> counted([np.zeros((300, 2))])
      '1 arrays, 600 values, 4.80 kB'
    """
    values, nbytes = total(arrays)
    return f"{len(arrays)} arrays, {values:,} values, {units.size(nbytes)}"


def by_module(arrays: Mapping[str, PyTree]) -> dict[str, dict[str, PyTree]]:
    """Returns arrays by the module that they belong to, and the part of their name that is theirs.

    Example:
      >>> by_module({"layers.0.norm.weight": 1, "head.weight": 2, "scale": 3})
      {'layers.0': {'norm.weight': 1}, 'head': {'weight': 2}, '(root)': {'scale': 3}}
    """
    groups: dict[str, dict[str, PyTree]] = {}
    for name, array in arrays.items():
        keys = name.split(".")
        cut = next((i + 1 for i, key in enumerate(keys) if key.isdigit()), min(2, len(keys) - 1))
        rest = ".".join(keys[cut:]) or name
        groups.setdefault(".".join(keys[:cut]) or "(root)", {})[rest] = array
    return groups


def lines(
    groups: Mapping[str, Mapping[str, PyTree]],
    most: int,
    tell: Callable[[Mapping[str, PyTree]], str] | None = None,
) -> list[str]:
    """Returns a line for each of the first ``most`` groups: its values, and what ``tell`` says of
    its arrays, by default their shapes.

    Example:
      >>> import numpy as np
      >>> for line in lines({"0": {"weight": np.zeros((3, 2)), "bias": np.zeros(3)}}, 16):
      ...     print(line)
      0                                                     9  weight [3, 2], bias [3]
    """
    tell = tell or _shapes
    shown = [
        f"{group:<40} {total(arrays.values())[0]:>14,}  {tell(arrays)}".rstrip()
        for group, arrays in [*groups.items()][:most]
    ]
    return shown if len(groups) <= most else [*shown, f"... and {len(groups) - most} more"]


def number_or_shape(arrays: Mapping[str, PyTree]) -> str:
    """Returns how many arrays there are, or the shape of the only one."""
    return f"{len(arrays)} arrays" if len(arrays) != 1 else _shape(*arrays.values())


def shortened(parts: Sequence[str], width: int = WIDTH) -> str:
    """Returns the first parts that there is room for, with commas.

    Example:
      >>> shortened(["one", "two", "three"], 8)
      'one, ... 2 more'
    """
    shown: list[str] = []
    room = width
    for i, item in enumerate(parts):
        room -= len(item) + 2
        if room < 0 and i:
            return ", ".join([*shown, f"... {len(parts) - i} more"])
        shown.append(item)
    return ", ".join(shown)


def _shapes(arrays: Mapping[str, PyTree]) -> str:
    named = [f"{name} {_shape(x)}".lstrip() for name, x in arrays.items()]
    return shortened(named, WIDTH // 2)


def _shape(leaf: PyTree) -> str:
    """Returns an array's shape, or the type of what jax.tree.map put in its place."""
    return str([*leaf.shape]) if hasattr(leaf, "dtype") else type(leaf).__name__
