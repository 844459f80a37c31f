"""One class per mistake; a message says what, where, why, what to do, and which page tells more."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator


def explain_command(kind: type) -> str:
    """Returns the command that shows the page of a class of this file, or of its nearest base here.

    Args:
      kind: a class of ``anyjax.errors``, or one derived from it.

    Example:
      >>> explain_command(MissingRng)
      'anyjax explain MissingRng'
    """
    name = next(base.__name__ for base in kind.__mro__ if base.__module__ == __name__)
    return f"anyjax explain {name}"


class AnyjaxError(Exception):
    """Base of all errors that anyjax raises on purpose.

    Args:
      what: what went wrong, one line.
      where: module path and the user's ``file:line``.
      why: the reason, as a fact.
      do: the way out.

    Example:
      >>> print(AnyjaxError("it broke", where="here", why="because", do="mend it"))
      it broke
        where: here
        why:   because
        do:    mend it
        see:   anyjax explain AnyjaxError
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", do: str = ""):
        self.what, self.where, self.why = what, where, why
        super().__init__(what)
        self.advise(do)

    def advise(self, do: str) -> None:
        """Replaces the way out: a caller may know a better one."""
        self.do = do
        see = explain_command(type(self))
        lines = {"where:": self.where, "why:": self.why, "do:": do, "see:": see}
        self.args = ("\n".join([self.what, *(f"  {k:<6} {v}" for k, v in lines.items() if v)]),)

    def __str__(self) -> str:
        return str(self.args[0])  # an ImportError keeps a message of its own


class TableError(AnyjaxError, TypeError):
    """A lowering does not fit its operator's schema; raised when the table is built."""


class MissingOps(AnyjaxError, NotImplementedError):
    """Operators that the model uses and no lowering serves, all of them in ``ops``."""

    def __init__(self, what: str, *, ops: tuple[str, ...] = (), **lines: str):
        super().__init__(what, **lines)
        self.ops = ops


class DataDependent(AnyjaxError, TypeError):
    """Python code or a shape depends on values that are traced.

    ``arguments`` names the model's inputs that the value was computed from, ``value`` is the traced
    one where it is known; ``general`` says that the way out does not know which call was made;
    ``leaves`` are the arguments of the calls that it went through.
    """

    value: object = None
    leaves: tuple[object, ...] = ()

    def __init__(
        self, what: str, *, arguments: tuple[str, ...] = (), general: bool = False, **lines: str
    ):
        super().__init__(what, **lines)
        self.arguments, self.general = arguments, general


class MissingRng(AnyjaxError, ValueError):
    """The forward pass draws random numbers and no ``rng`` key was given."""


class WrongArguments(AnyjaxError, TypeError):
    """The arguments do not fit the model: names, shapes, or the params and state given."""


class WrongWeights(AnyjaxError, ValueError):
    """Weights do not fill a module: some are missing or left over, it is not clear which belong
    where, or the filled module computes something else.
    """


class WrongValue(AnyjaxError, ValueError):
    """A value, or a switch's name, that is none of those that are possible."""


class NoGradient(AnyjaxError, LookupError):
    """The model forbids to differentiate what is differentiated."""


class MissingInputError(WrongArguments):
    """An argument that a function of ``anyjax.tensorflow.convert`` was traced with is not given."""


class ForwardFailed(AnyjaxError, RuntimeError):
    """The source model's own forward raised; its error is the cause."""


class WrongSource(AnyjaxError, ArithmeticError):
    """Source code that was written for a model computes something else than the model."""


class Unsupported(AnyjaxError, NotImplementedError):
    """Asked for something that anyjax knows about and does not do."""


class NotNumbers(AnyjaxError, FloatingPointError):
    """Values that something has to be chosen by are NaN."""


class BadCheckpoint(AnyjaxError, ValueError):
    """A folder or file that is no readable checkpoint."""


class OtherCheckpoint(BadCheckpoint):
    """A checkpoint of another model or optimizer."""


class NotWritten(AnyjaxError, OSError):
    """A folder cannot be written to, or its disk is full."""

    @classmethod
    def of(cls, target: object, error: Exception, remark: str = "") -> NotWritten:
        """Returns the error for a file or folder that the system, or a library, cannot write.

        Example:
          >>> print(NotWritten.of("out", FileExistsError(errno.EEXIST, "File exists")).do)
          look at the path and its permissions, or write elsewhere
        """
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        do = "free some space" if full else "look at the path and its permissions"
        why = " ".join(str(error).split())[:300]
        return cls(f"{target} cannot be written", why=why, do=f"{do}, or write elsewhere{remark}")


class WrongBatch(AnyjaxError, TypeError):
    """A batch is of another kind than the first one, or holds something that is no array."""


class NoData(AnyjaxError, ValueError):
    """There is no batch to train with."""


class Diverged(AnyjaxError, FloatingPointError):
    """The loss, or a gradient, is NaN or infinite."""


class ProcessLost(AnyjaxError, ConnectionError):
    """Another process of the job is gone: it was killed, failed, or cannot be reached."""


class HubUnreachable(AnyjaxError, OSError):
    """The model hub cannot be reached from this machine."""


class MissingDependency(AnyjaxError, ImportError):
    """An optional package that this feature needs is not installed."""


class IncompatibleVersion(AnyjaxError, ImportError):
    """The installed version of a package lacks, or no longer calls, something private of its own
    that anyjax builds on.
    """


class StateDropped(UserWarning):
    """The forward pass wrote to the model's state and the caller did not ask for it back, or
    changed what no state carries, such as a string.
    """


class UntestedVersion(UserWarning):
    """A package has a version that anyjax was not tested with."""


class StaticArgument(UserWarning):
    """An argument is part of the program, which is compiled anew for each of its values: an array
    that decides shapes, or a Python number.
    """


class LostGradient(UserWarning):
    """Weights of a module are no params, a model cuts off all of its results from gradients, or a
    SavedModel lacks a custom gradient.
    """


class TorchCallback(UserWarning):
    """An operator without a lowering runs in torch, because ``on_missing="callback"`` allows it."""


class SlowGeneration(UserWarning):
    """A model generates without a program that serves all lengths of its text."""


class FrozenDraw(UserWarning):
    """A compiled program repeats random numbers that did not come from torch."""


class UncheckedValues(UserWarning):
    """A compiled program leaves out an ``assert`` or ``if ...: raise`` about traced values."""


class UnusedExecutables(UserWarning):
    """Compiled programs of a saved model are for another machine, or by another user."""


class NewWeights(UserWarning):
    """The checkpoint has no weights for a head that was asked for: they are random."""


class NoInitialiser(UserWarning):
    """No initialiser covers a parameter: a fresh model has its pretrained value."""


class ManyCompilations(UserWarning):
    """A step of training is compiled again and again, for batches of ever new shapes; or a JAX
    function in torch, for ever new numbers.
    """


class SameRows(UserWarning):
    """All processes give the same rows as their parts of a batch."""


class RightPadded(UserWarning):
    """Prompts of a decoder end in padding, after which new tokens would stand."""


class NotRolled(UserWarning):
    """No layers repeat, so that nothing was rolled into a loop."""


# First and last versions that the private names of these packages were tested with: `make compat`.
TESTED = {
    "jax": ("0.10.0", "0.12.0.1"),
    "torch": ("2.10.0", "2.15.0"),
    "transformers": ("4.57.6", "5.24.0"),
    "tensorflow": ("2.21.0", "2.21.0"),
}
# The extra of pyproject.toml that brings a package.
EXTRAS = {
    "torch": "torch",
    **dict.fromkeys(("transformers", "huggingface_hub", "tokenizers", "tqdm"), "hf"),
    **dict.fromkeys(("optax", "orbax", "grain", "qwix"), "train"),
    **dict.fromkeys(("tensorflow", "keras"), "tensorflow"),
    **dict.fromkeys(("typer", "rich", "click"), "cli"),
    **dict.fromkeys(("jax2onnx", "onnx", "onnxruntime"), "onnx"),
    **dict.fromkeys(("ase", "openmm", "lammps_jax"), "atoms"),
    **{name: name for name in ("diffusers", "gguf", "flax", "ray")},
    "libtpu": "tpu",
    "jax_plugins": "cuda",
}
CORE = ("jax", "jaxlib", "jaxtyping", "numpy", "safetensors", "flatbuffers")
# They need torch and transformers.
OF_CHECKPOINTS = {"run", "generate", "inspect", "finetune", "plan", "export"}
OF_CHECKPOINTS |= {"from_pretrained", "from_diffusers", "pipeline", "register_exporters"}


@contextlib.contextmanager
def imports_of(user: str) -> Iterator[None]:
    """Raises ``MissingDependency`` for a package that a part imports and that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (explained := missing(error, user)) is error:
            raise
        raise explained from error


def missing(error: ImportError, user: str = "anyjax") -> ImportError:
    """Returns the error that says what to install, of an import that failed in a verb or a part;
    other failures stay as they are.

    Example:
      >>> error = ModuleNotFoundError("No module named 'optax'", name="optax")
      >>> print(missing(error, "anyjax.train"))
      anyjax.train needs the package optax, which is not installed
        where: No module named 'optax'
        why:   the extra anyjax[train] brings it
        do:    pip install "anyjax[train]"
        see:   anyjax explain MissingDependency
    """
    named = error.name or next(iter(re.findall(r"No module named '([\w.]+)'", str(error))), "")
    package = named.partition(".")[0]
    if package not in EXTRAS and package not in CORE:
        return error
    extra = EXTRAS.get(package)
    if package == "torch" and re.split(r"[ .]", user)[-1] in OF_CHECKPOINTS:
        extra = "hf"
    requirement = f"anyjax[{extra}]" if extra else "anyjax"
    return MissingDependency(
        f"{user} needs the package {package}, which is not installed",
        where=str(error).splitlines()[0] if str(error) else "",
        why=f"the extra {requirement} brings it" if extra else "nothing runs without it",
        do=f'pip install "{requirement}"',
    )
