"""Help where a program needs values that it does not know: a call that works."""

from __future__ import annotations

import re
from collections.abc import Mapping

import jax

from anyjax.errors import DataDependent, WrongArguments

EAGER = (
    "call {} outside of jax.jit, grad and vmap, where each operator runs on its own and all values "
    "are known; or write that line with tensors alone (torch.where, x.sum() in place of "
    "float(x.sum()))"
)


def advise(
    error: DataDependent, leaves: Mapping[str, object], call: str, argument: str = ", {}=..."
) -> None:
    """Has the error say what works.

    Args:
      leaves: the call's arguments by name.
      call: how it is written, with a place for further arguments.
      argument: how one of these is written.

    Example:
      >>> error = DataDependent("it", arguments=("x",), general=True)
      >>> advise(error, {"x": 1.0}, "model(x{})")
      >>> error.do.startswith("call model.apply(model.params, ...) outside of jax.jit")
      True
    """
    deciding = {name: leaves[name] for name in error.arguments if name in leaves}
    takes = call.partition("(")[2].partition("{")[0].replace("(x,)", "x").strip(", ")
    if python_values := [name for name, leaf in deciding.items() if _was_python(leaf)]:
        error.why = (
            f"jax.jit around this call made an array of the Python value of {python_values[0]}"
        )
        written = call.format(argument.format(python_values[0]))
        error.advise(
            f"write {' and '.join(python_values)} inside of what is jitted, as the Python value "
            f"that it is: jax.jit(lambda {takes}: {written})"
        )
    elif not error.general:
        return
    elif 0 < len(deciding) == len(error.arguments) and all(map(_may_be_static, deciding.values())):
        names = ", ".join(deciding)
        if call.startswith("model.apply"):
            error.advise(
                f"batch = anyjax.static(model, batch) makes static what decides ({names}), and "
                "jax.jit takes that batch, one program for each of the values; or call model(...) "
                "outside of jax.jit, which does so itself"
            )
        else:
            error.advise(f"close over {names} instead of tracing it, as a numpy array")
    else:
        is_function = call.startswith("func")
        error.advise(EAGER.format("func" if is_function else "model.apply(model.params, ...)"))


# What torch says of another class in a tensor's place, and Python of one without its attributes.
NO_TENSOR = re.compile(
    r"must be Tensor, not (\w+)"
    r"|'(\w+)' object has no attribute '(?:bool|device|dim|dtype|long|ndim|shape|size|to|view)'"
)


def refuse_lists(error: Exception, arguments: Mapping[str, object]) -> None:
    """Raises WrongArguments if torch or the model met an argument that should be an array: a text,
    lists of tokens, all that a tokenizer gives as one.
    """
    met = NO_TENSOR.search(str(error))
    for name, value in arguments.items():
        kind = type(value).__name__
        if met and kind in met.groups() and not hasattr(value, "shape"):
            raise WrongArguments(
                f"{name} is a {kind}, not an array",
                why="what is no array is part of the program, and the model computes with it",
                do="give np.asarray of a list; model(**inputs) with inputs = "
                'tokenizer(texts, padding=True, return_tensors="np"); tokenizers have no "jax"',
            ) from error


def _was_python(leaf: object) -> bool:
    """Returns whether a traced array is what JAX makes of a Python number."""
    if not isinstance(leaf, jax.core.Tracer) or leaf.shape:
        return False
    return leaf.dtype == bool or getattr(leaf.aval, "weak_type", False)


def _may_be_static(leaf: object) -> bool:
    """Returns whether a traced array may become a known one: floats are not made static."""
    return isinstance(leaf, jax.core.Tracer) and leaf.dtype.kind in "iub"
