"""Verbs of the command line as dataclasses: a field is an argument, the docstring the help."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, dataclass_transform

import typer
from typer import Argument, Option

from anyjax.cli._help import Command, Group

RUN, LOOK, WRITE, TRAIN, PLAN, KEEP = (
    "Run", "Look inside", "Convert and write", "Train", "Plan", "Housekeeping",
)  # fmt: skip
DEMO = "examples/tiny-llama"
ABOUT = "Run PyTorch, Hugging Face, TensorFlow and ONNX models in JAX."
app = typer.Typer(
    name="anyjax",
    cls=Group,
    help=ABOUT,
    epilog=f"Start with: anyjax run {DEMO} --prompt 'def main(', or any hub id",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str,
    Argument(metavar="FOLDER_OR_ID", help="checkpoint folder, or hub id such as owner/name"),
]
Adapter = Annotated[
    str | None, Option(help="folder or hub id of an adapter (LoRA) to put on the model")
]
Json = Annotated[bool, Option("--json", help="print JSON on standard output")]
PROMPT = Option("--prompt", "-p", help="text to continue; - reads standard input")
Pictures = Annotated[
    list[str] | None, Option("--image", help="picture of the prompt; once for each")
]
Sounds = Annotated[
    list[str] | None, Option("--audio", help=".wav file of the prompt; once for each")
]
NewTokens = Annotated[
    int, Option("--max-new-tokens", "-n", min=1, help="how many tokens to add at most")
]
Dtype = Annotated[
    str | None, Option(help="float32, bfloat16 or float16; the checkpoint's own by default")
]
Task = Annotated[str | None, Option(help="head to load: the X in transformers' AutoModelForX")]
Pickle = Annotated[
    bool, Option("--allow-pickle", help="also load pickled weights (they can run any code)")
]
Inputs = Annotated[list[str] | None, Option(help="shape of an input, as 2x3x32x32 or 2x16:int")]
Html = Annotated[str | None, Option(help="also write a page to this file")]
Markdown = Annotated[bool, Option("--markdown", help="print a Markdown table")]


class Verb:
    """The options of a verb, which is a function in a module of its name."""

    def around(self) -> contextlib.AbstractContextManager[None]:
        """Returns what is entered before the verb's module is imported."""
        return contextlib.nullcontext()


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command(group: str, *examples: str) -> Callable[[type[Verb]], Any]:
    """Registers a class as a command: ``Plan`` is ``anyjax plan``, by ``plan`` in ``_plan.py``,
    which is imported when it is called.

    Args:
      group: the title under which the help lists the verb.
      *examples: lines for a shell, run from the folder of the project.
    """

    def register(options: type[Verb]) -> type[Verb]:
        verb = options.__name__.lower()
        options = dataclass(frozen=True, kw_only=True)(options)

        def call(**arguments: Any) -> None:
            values = options(**arguments)
            with values.around():
                getattr(importlib.import_module(f"anyjax.cli._{verb}"), verb)(values)

        hints = typing.get_type_hints(options, include_extras=True)
        parameters = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(options).parameters.items()
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        text = inspect.getdoc(options) or ""
        app.command(
            verb, cls=Command, help=text, short_help=text.partition("\n")[0],
            epilog="\n".join(examples), rich_help_panel=group,
        )(call)  # fmt: skip
        return options

    return register
