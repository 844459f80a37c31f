"""A model as a TensorFlow SavedModel, by jax2tf.

``jax.experimental.jax2tf`` has no other name, and nothing else gives TensorFlow a program of JAX
together with its derivative.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from anyjax.errors import MissingDependency, Unsupported
from anyjax.export.flat import Call, call_of, check_outputs
from anyjax.export.portable import FILE, make_portable
from anyjax.model import Model
from anyjax.private_names import Inconclusive
from anyjax.saved import PLATFORMS, whole
from anyjax.saved.folder import check_others
from anyjax.saved.programs import check_platforms, kernel_checks
from anyjax.takes_model import takes_model

# Files that TensorFlow and Keras write into a SavedModel's folder.
PARTS = {FILE, "variables", "assets", "assets.extra", "fingerprint.pb", "keras_metadata.pb"}


@takes_model
def to_savedmodel(
    model: Model,
    folder: str | os.PathLike[str],
    *args: Any,
    shapes: Mapping[str, str] | None = None,
    constraints: Sequence[str] = (),
    signature: str = "serving_default",
    platforms: Sequence[str] = PLATFORMS,
    **kwargs: Any,
) -> Path:
    """Writes the model as a SavedModel, and runs that once to compare.

    Params are trainable ``tf.Variable``s of the same names, state the others; TensorFlow takes no
    name that begins with an underscore, so a dot stands before it, and letters, digits and
    ``_./>-`` alone: all else is an underscore. TensorFlow differentiates it once.
    ``anyjax.from_tensorflow(folder)`` reads it back.

    Args:
      model: a Model of any framework, in evaluation mode.
      folder: where to; it appears whole or not at all.
      *args: an example of the call; inputs have the names of the arguments, outputs those
        of the fields.
      **kwargs: the same, by name.
      shapes: the arguments that may have other sizes, as for ``model.save``; these are None in
        TensorFlow.
      constraints: what holds for these sizes.
      signature: the name that it is served under.
      platforms: what it runs on: "cpu", "cuda", "rocm", "tpu".

    Returns:
      The folder's path.

    Raises:
      MissingDependency: TensorFlow is not installed.
      Unsupported: it computes something else, or the model's code asks for a size.
      WrongArguments: the folder holds something else, or ``shapes`` do not fit.
      NotWritten: the disk is full; an earlier one is still there.

    Example:
      >>> import numpy as np, tempfile, torch
      >>> x, folder = np.ones((5, 3), np.float32), tempfile.mkdtemp() + "/linear"
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> path = anyjax.export.to_savedmodel(model, folder, x)
      >>> anyjax.from_tensorflow(path)(x)["output"].shape
      (5, 2)
    """
    tf = _tensorflow()
    check_platforms(platforms)
    check_target(folder)
    call = call_of(model, args, kwargs, shapes, constraints)
    want = call.want(call.examples)
    served = _module(tf, call, platforms)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    with whole(folder, FILE) as scratch:
        try:
            signatures = {signature: served.__call__}
            tf.saved_model.save(served, os.fspath(scratch), signatures, options)
        except Inconclusive as error:
            raise Unsupported(
                "the model's code depends on a size that is not known",
                why=str(error).partition("\n")[0][:300],
                do="fix that size in shapes=, or say more of it by constraints=",
            ) from error
        except tf.errors.OpError as error:  # of its files: not one of Python's
            raise OSError(error.message.rpartition("; ")[2]) from error  # behind a long path
        make_portable(scratch)
        got = _run_signature(tf, scratch, signature, call)
        check_outputs("a SavedModel", call, want, [got[name] for name in call.outputs])
    return Path(folder).expanduser()


def check_target(folder: str | os.PathLike[str]) -> None:
    """Raises WrongArguments if a SavedModel would replace a folder with other files."""
    if (Path(folder).expanduser() / FILE).is_file():
        check_others(Path(folder).expanduser(), PARTS)


def _tensorflow() -> ModuleType:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingDependency(
            "a SavedModel needs the package tensorflow",
            why="TensorFlow writes it",
            do="pip install anyjax[tensorflow]",
        ) from error
    return tensorflow


def _module(tf: Any, call: Call, platforms: Sequence[str]) -> Any:
    """Returns a tf.Module that holds the weights and calls the program."""
    from jax.experimental import jax2tf

    sizes = [f"({', '.join(map(str, x.shape))})" for x in call.specs]
    converted = jax2tf.convert(
        lambda params, state, arrays: dict(_named(call, call(params, state, *arrays))),
        polymorphic_shapes=(None, None, sizes),
        polymorphic_constraints=call.constraints,
        native_serialization_platforms=tuple(platforms),
        native_serialization_disabled_checks=kernel_checks(),
        with_gradient=True,
    )
    specs = [
        tf.TensorSpec([n if isinstance(n, int) else None for n in x.shape], x.dtype, name)
        for name, x in zip(call.names, call.specs)
    ]

    class Served(tf.Module):
        """The weights by name, and the call."""

        def __init__(self):
            super().__init__(name="served")
            make = lambda tree, trained: {
                k: tf.Variable(np.asarray(v), trainable=trained, name=_variable(k))
                for k, v in tree.items()
            }
            weights = make(call.model.params, True), make(call.model.state, False)
            self.weights = [*weights[0].values(), *weights[1].values()]
            self._by_name = NoTracking(weights)

        def _call(self, *arrays):
            return converted(*self._by_name.value, list(arrays))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [inspect.Parameter(name, kind) for name in ("self", *call.names)]
    run: Any = lambda self, *args, **kwargs: self._call(*args, *kwargs.values())
    run.__signature__ = inspect.Signature(names)
    Served.__call__ = tf.function(run, input_signature=specs, autograph=False)
    return Served()


def _variable(name: str) -> str:
    """Returns the name in characters that TensorFlow allows."""
    name = re.sub(r"[^A-Za-z0-9_./>-]", "_", name)
    return name if re.match("[A-Za-z0-9.]", name) else f".{name}"


class NoTracking:
    """Hides a value from TensorFlow, which would give its keys other names in the folder."""

    def __init__(self, value: tuple):
        self.value = value


def _named(call: Call, arrays: list[jax.Array]) -> list[tuple[str, jax.Array]]:
    return list(zip(call.outputs, arrays))


def _run_signature(tf: ModuleType, folder: Path, signature: str, call: Call) -> dict[str, Any]:
    function = tf.saved_model.load(os.fspath(folder)).signatures[signature]
    inputs = {n: tf.constant(x) for n, x in zip(call.names, call.examples)}
    return {k: v.numpy() for k, v in function(**inputs).items()}
