"""The options of each verb: a field is an argument of the command, with its default and help."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from anyjax.cli._help import Command

Source = Annotated[
    str,
    typer.Argument(metavar="FOLDER_OR_ID", help="checkpoint folder, or hub id such as owner/name"),
]
Adapter = Annotated[
    str | None, typer.Option(help="folder or hub id of an adapter (LoRA) to put on the model")
]
Json = Annotated[bool, typer.Option("--json", help="print JSON on standard output")]
PROMPT = typer.Option("--prompt", "-p", help="text to continue; - reads standard input")
NewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="how many tokens to add at most")
]
Dtype = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float16; the checkpoint's own by default")
]
Task = Annotated[
    str | None, typer.Option(help="head to load: the X in transformers' AutoModelForX")
]
Pickle = Annotated[
    bool, typer.Option("--allow-pickle", help="also load pickled weights (they can run any code)")
]


def command(
    app: typer.Typer, group: str, *examples: str
) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Registers a function of one dataclass as a command whose arguments are the fields.

    Args:
      app: the command line.
      group: the title under which the help lists the verb.
      *examples: lines for a shell, run from the folder of the project.
    """

    def register(verb: Callable[[Any], None]) -> Callable[..., None]:
        (options, _) = typing.get_type_hints(verb).values()

        def call(**arguments: Any) -> None:
            verb(options(**arguments))

        hints = typing.get_type_hints(options, include_extras=True)
        parameters = [
            parameter.replace(annotation=hints[name])
            for name, parameter in inspect.signature(options).parameters.items()
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        text = inspect.getdoc(verb) or ""
        return app.command(
            verb.__name__, cls=Command, help=text, short_help=text.partition("\n")[0],
            epilog="\n".join(examples), rich_help_panel=group,
        )(call)  # fmt: skip

    return register


@dataclass(frozen=True, kw_only=True)
class Run:
    """The options of ``anyjax run``."""

    source: Source
    prompt: Annotated[str, PROMPT] = ""
    max_new_tokens: NewTokens = 96
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    signature: Annotated[
        str | None, typer.Option(help="signature of a SavedModel; by default the one it serves")
    ] = None
    batch: Annotated[
        int, typer.Option(min=1, help="size of unknown dimensions (TensorFlow, ONNX)")
    ] = 1
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Verify:
    """The options of ``anyjax verify``."""

    source: Source
    gradients: Annotated[
        bool, typer.Option("--gradients", help="also compare gradients of params and inputs")
    ] = False
    prompt: Annotated[
        str, typer.Option("--prompt", "-p", help="text to compare on; - reads standard input")
    ] = ""
    operators: Annotated[
        str | None,
        typer.Option(help="also the operators of modules whose paths match, as layers.3.mlp"),
    ] = None
    html: Annotated[str | None, typer.Option(help="also write a page to this file")] = None
    reproduce: Annotated[
        str | None, typer.Option(help="write a folder that reproduces a fault by itself")
    ] = None
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Generate:
    """The options of ``anyjax generate``."""

    source: Source
    prompt: Annotated[str | None, PROMPT] = None
    max_new_tokens: NewTokens = 96
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="draw tokens; the likeliest one by default")
    ] = None
    seed: Annotated[int, typer.Option(help="of the draws")] = 0
    adapter: Adapter = None
    tokenizer: Annotated[
        str | None, typer.Option(help="folder of a tokenizer; the model's own by default")
    ] = None
    dtype: Dtype = None
    allow_pickle: Pickle = False
    profile: Annotated[
        bool, typer.Option("--profile", help="print where the time to the first token went")
    ] = False
    json: Json = False

    def sampling(self) -> dict[str, Any]:
        """Returns the sampling arguments of ``anyjax.generate``, none for the likeliest tokens."""
        if not self.temperature:
            return {}
        import jax

        key = jax.random.key(self.seed)
        return {"do_sample": True, "temperature": self.temperature, "rng": key}


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """The options of ``anyjax inspect``."""

    source: Source
    adapter: Adapter = None
    task: Task = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Explain:
    """The options of ``anyjax explain``."""

    name: Annotated[
        str | None, typer.Argument(help="class of the error or warning, as MissingRng")
    ] = None
    list: Annotated[bool, typer.Option("--list", help="names of all, with a line each")] = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Explore:
    """The options of ``anyjax explore``."""

    source: Source
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="page to write; explore.html, none with --json"),
    ] = None
    mesh: Annotated[
        str | None, typer.Option(help="also divide over these axes, as data=2,model=4")
    ] = None
    plan: Annotated[str, typer.Option(help="of the division: tp, fsdp, tp+fsdp")] = "tp"
    batch: Annotated[int, typer.Option(min=1, help="rows of the call")] = 1
    length: Annotated[int, typer.Option(min=1, help="tokens of each row")] = 16
    weights: Annotated[
        bool, typer.Option(help="read the weights, for their figures; else the config alone")
    ] = True
    open: Annotated[bool, typer.Option("--open", help="show the page in a browser")] = False
    adapter: Adapter = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Flax:
    """The options of ``anyjax flax``."""

    source: Annotated[
        str,
        typer.Argument(metavar="FOLDER_OR_IMPORT_PATH", help="checkpoint, or package.module:Class"),
    ]
    output: Annotated[str, typer.Option("--output", "-o", help="file to write; - prints it")] = "-"
    input: Annotated[
        list[str] | None, typer.Option(help="shape of an input, as 2x3x32x32 or 2x16:int")
    ] = None
    task: Task = None
    style: Annotated[str, typer.Option(help="nnx or linen")] = "nnx"
    check: Annotated[
        bool,
        typer.Option(
            help="run the file beside the module: values, gradients, another batch and length, "
            "training mode; what differs is an error and writes no file"
        ),
    ] = True
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """The options of ``anyjax finetune``."""

    source: Source
    data: Annotated[str, typer.Option(help="text file, or .jsonl with text or prompt, completion")]
    out: Annotated[str, typer.Option(help="folder for adapter, metrics and checkpoints")]
    rank: Annotated[int, typer.Option("--lora", min=1, help="rank of the adapters")] = 8
    dora: Annotated[bool, typer.Option("--dora", help="also train the lengths of rows")] = False
    targets: Annotated[
        str | None, typer.Option(help="regular expression of weights; all linear layers by default")
    ] = None
    quantize: Annotated[
        str | None, typer.Option(help="hold the adapted weights as int8, int4 or nf4")
    ] = None
    steps: Annotated[int, typer.Option(min=1, help="how many in all")] = 300
    batch: Annotated[int, typer.Option(min=1, help="rows of a step")] = 8
    length: Annotated[int, typer.Option(min=2, help="tokens of a row")] = 256
    rate: Annotated[float, typer.Option(min=0.0, help="highest learning rate")] = 1e-3
    every: Annotated[int, typer.Option(min=1, help="steps between evaluations")] = 50
    seed: Annotated[int, typer.Option(help="of adapters, order and dropout")] = 0
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only tell what it would do, and the memory")
    ] = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of ``anyjax plan``."""

    source: Source
    chips: Annotated[str, typer.Option(help="chip and number, as v6e-8, v5p-64, h100-16, cpu-8")]
    batch: Annotated[int, typer.Option(min=1, help="rows, of all chips together")] = 1
    length: Annotated[int, typer.Option(min=1, help="tokens of a row; of a cache")] = 2048
    plan: Annotated[
        str | None, typer.Option(help="tp, fsdp or tp+fsdp; fsdp to train, else tp, by default")
    ] = None
    mesh: Annotated[str | None, typer.Option(help="axes and sizes, as data=2,model=4")] = None
    train: Annotated[bool, typer.Option("--train", help="a training step")] = False
    decode: Annotated[bool, typer.Option("--decode", help="one token for each row")] = False
    prefill: Annotated[bool, typer.Option("--prefill", help="prompts into a cache")] = False
    dtype: Dtype = None
    optimizer: Annotated[str, typer.Option(help="adamw, adafactor, sgd or momentum")] = "adamw"
    remat: Annotated[
        bool, typer.Option("--remat", help="compute layers again for the gradient")
    ] = False
    quantize: Annotated[
        str | None, typer.Option(help="hold the weights as int8, fp8, int4 or nf4")
    ] = None
    task: Task = None
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="ask the chips' own compiler, which needs none of them; cpu alone does by default",
        ),
    ] = None
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False
    html: Annotated[str | None, typer.Option(help="also write a page to this file")] = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of ``anyjax export``."""

    source: Source
    out: Annotated[
        str, typer.Option("--output", "-o", help="folder to write, for onnx a file such as m.onnx")
    ]
    format: Annotated[str, typer.Option(help="jax, savedmodel or onnx")] = "jax"
    batch: Annotated[str, typer.Option(help="rows of a call: a number, or symbolic for any")] = "1"
    length: Annotated[str, typer.Option(help="tokens of a row: a number, or symbolic")] = "16"
    generate: Annotated[
        int, typer.Option(min=0, help="also the decoding loop, for so many new tokens (jax)")
    ] = 0
    sample: Annotated[
        bool, typer.Option("--sample", help="draw tokens by a key instead of the likeliest")
    ] = False
    platforms: Annotated[str, typer.Option(help="what it runs on, with commas")] = "cpu,cuda,tpu"
    executables: Annotated[
        bool, typer.Option("--executables", help="also as compiled for this machine (jax)")
    ] = False
    chips: Annotated[
        str | None, typer.Option(help="also as compiled for these, as v6e-4,h100-1 (jax)")
    ] = None
    roll: Annotated[bool, typer.Option("--roll", help="repeated layers as one loop")] = False
    quantize: Annotated[str | None, typer.Option(help="weights as int8, int4, nf4 or fp8")] = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Ops:
    """The options of ``anyjax ops``."""

    name: Annotated[str, typer.Argument(help="part of an operator's name; all by default")] = ""
    markdown: Annotated[bool, typer.Option("--markdown", help="print a Markdown table")] = False
    tensorflow: Annotated[bool, typer.Option("--tensorflow", help="TensorFlow's instead")] = False
    onnx: Annotated[bool, typer.Option("--onnx", help="ONNX's instead")] = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The options of ``anyjax weights``."""

    source: Annotated[
        str,
        typer.Argument(metavar="FROM", help="JAX checkpoint: Orbax, msgpack, safetensors or npz"),
    ]
    out: Annotated[
        str, typer.Argument(metavar="TO", help="folder of a checkpoint, or a .safetensors file")
    ]
    model: Annotated[
        str, typer.Option(help="the torch model: folder or hub id, or package.module:Class")
    ]
    jax: Annotated[
        str | None,
        typer.Option(
            help="the JAX model, to prove it: package.module:Class of nnx or Linen, or of a "
            "function apply(params, *inputs)"
        ),
    ] = None
    input: Annotated[
        list[str] | None,
        typer.Option(help="shape of an input of the JAX model, as 2x32x32x3 or 2x16:int"),
    ] = None
    key: Annotated[
        str | None, typer.Option(help="where the params are in the checkpoint, as ema_params")
    ] = None
    match: Annotated[
        list[str] | None,
        typer.Option(help="your decision, as blocks/*/fc=layers.*.linear; flax/path= leaves out"),
    ] = None
    ignore: Annotated[
        list[str] | None, typer.Option(help="torch name that keeps its value; * is one step")
    ] = None
    task: Task = None
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Cache:
    """The options of ``anyjax cache``."""

    clear: Annotated[bool, typer.Option("--clear", help="remove all programs")] = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """The options of ``anyjax doctor``."""

    imports: Annotated[
        bool, typer.Option("--imports", help="also import each package, in a process of its own")
    ] = False
    json: Json = False
