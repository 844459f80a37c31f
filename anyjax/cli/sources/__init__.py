"""FOLDER_OR_ID of the command line: which framework's model it is, and how that is opened.

Each module opens models of its framework with an example of their call, and says what is in one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from anyjax.cli._stages import START
from anyjax.errors import WrongValue
from anyjax.typing import PyTree

if TYPE_CHECKING:
    from rich.table import Table

    from anyjax.model import Model

LENGTH = 16  # tokens, and sizes of ONNX that a file leaves open
SAVED = "model.json"
CHECKPOINTS = (
    "adapter", "dtype", "task", "allow_pickle", "prompt", "image", "audio", "max_new_tokens",
    "length", "weights",
)  # fmt: skip
# By kind: the module that opens it, its name in messages, options that are of others.
KINDS = {
    "hf": ("checkpoint", "a checkpoint", ("signature",)),
    "tensorflow": ("tensorflow", "a TensorFlow model", CHECKPOINTS),
    "onnx": ("onnx", "an ONNX model", (*CHECKPOINTS, "signature")),
    "saved": ("saved", "a saved model", (*CHECKPOINTS, "signature")),
}
WHOSE = {
    True: "SavedModels have signatures",
    False: "they are options of Hugging Face checkpoints",
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options that say how a model is opened, and its example.

    Attributes:
      rows, length: of the example.
      image, audio: files of pictures and sounds of the prompt.
      weights: whether they are read; without them only the model's shapes are known.
      cache: whether a language model's example may return its cache.
      peer: whether the model's own framework is to run it, too.
      report: is told what is being done.
    """

    source: str
    rows: int = 1
    length: int = LENGTH
    prompt: str = ""
    image: Sequence[str] | None = None
    audio: Sequence[str] | None = None
    signature: str | None = None
    adapter: str | None = None
    dtype: str | None = None
    task: str | None = None
    allow_pickle: bool = False
    weights: bool = True
    cache: bool = True
    peer: bool = False
    report: Callable[[str], None] = lambda text: None

    @classmethod
    def of(cls, options: object, **changes: Any) -> Request:
        """Picks the options of a verb that say it."""
        names = {x.name for x in fields(cls)}
        return cls(**{k: x for k, x in vars(options).items() if k in names} | changes)


class Peer(NamedTuple):
    """The framework that a model comes from: how it runs the example, and its outputs by name.

    Attributes:
      named: takes the outputs of ``run``, or those of JAX.
    """

    name: str
    run: Callable[[], PyTree]
    named: Callable[[PyTree], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A model, and an example of its call.

    Attributes:
      place: the folder or file that it lies in.
      seconds: of the imports since the process started, of reading and of converting.
      note: a remark about the example.
      tokenizer, ids: of a language model, and the prompt's tokens.
      media: what else the model generates from: pictures and sounds.
      writes: whether it can continue them.
    """

    model: Model
    args: tuple[PyTree, ...] = ()
    kwargs: dict[str, PyTree] = field(default_factory=dict)
    place: str | Path
    seconds: dict[str, float] = field(default_factory=dict)
    note: str = ""
    peer: Peer | None = None
    tokenizer: Any = None
    ids: np.ndarray | None = None
    media: dict[str, np.ndarray] = field(default_factory=dict)
    writes: bool = False
    adapter: Path | None = None


@dataclass(frozen=True)
class Contents:
    """A file or folder as ``anyjax inspect`` shows it.

    Attributes:
      about: all of it by name, for JSON.
      body: lines and tables, below each other.
      missing: operators without a lowering.
    """

    about: dict[str, Any]
    body: list[str | Table]
    missing: Sequence[str] = ()


class Source(Protocol):
    """The module of a framework."""

    def opened(self, request: Request) -> Opened:
        """Opens a model with an example of its call."""

    def contents(self, request: Request) -> Contents:
        """Looks into a model; no more is loaded than that takes."""


def kind_of(source: str, kinds: Collection[str] = tuple(KINDS)) -> str:
    """Returns which of some kinds a source is, a checkpoint where it is none of them."""
    folder = Path(source).expanduser()
    if (folder / SAVED).is_file() and not (folder / "config.json").exists():
        kind: str | None = "saved"
    elif len(kinds) > 2 or "tensorflow" in kinds:
        from anyjax.frontends import frontend_of

        kind = frontend_of(source)
    else:
        kind = "hf"
    return kind if kind is not None and kind in kinds else "hf"


def find(
    options: object, kinds: Collection[str] = tuple(KINDS), takes: Collection[str] = ()
) -> Source:
    """Returns the module that opens the model of a verb's options.

    Args:
      options: the verb's dataclass, with a ``source``.
      kinds: that the verb serves; all else is taken for a checkpoint.
      takes: options that the verb has for all of its kinds.

    Raises:
      WrongValue: an option is set that models of this kind do not have.
    """
    values = vars(options)
    module, noun, foreign = KINDS[kind_of(values["source"], kinds)]
    defaults = {x.name: x.default for x in fields(options)}  # type: ignore[arg-type]
    wrong = [k for k in foreign if k in values and k not in takes and values[k] != defaults[k]]
    if wrong:
        flags = ["no-weights" if k == "weights" else k.replace("_", "-") for k in wrong]
        raise WrongValue(
            f"--{' and --'.join(flags)} for {noun}",
            where=values["source"],
            why=WHOSE[wrong == ["signature"]],
            do="leave them out",
        )
    result: Source = importlib.import_module(f"anyjax.cli.sources.{module}")
    return result


def since_start() -> float:
    """Returns the seconds since the process started."""
    return time.time() - START


def drawn(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Draws an array for an example: integers are 0 or 1."""
    integers = dtype.kind in "iub"
    values = rng.integers(0, 2, shape) if integers else rng.standard_normal(shape)
    return np.asarray(values, dtype)


def described(arrays: dict[str, PyTree]) -> dict[str, str]:
    """Returns dtypes and shapes of the arrays among some values, by name."""
    return {k: f"{x.dtype}{[*x.shape]}" for k, x in arrays.items() if hasattr(x, "shape")}


def listed(values: Mapping[str, object]) -> str:
    """Returns names and values in a line."""
    return ", ".join(f"{k} {x}" for k, x in values.items())
