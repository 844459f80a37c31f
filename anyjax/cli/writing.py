"""The verbs that write, train and plan, and those about the machine."""

from __future__ import annotations

import contextlib
from typing import Annotated

from typer import Argument, Option

from anyjax.cli import _reports
from anyjax.cli.options import (
    DEMO,
    KEEP,
    PLAN,
    TRAIN,
    WRITE,
    Dtype,
    Html,
    Inputs,
    Json,
    Markdown,
    Pickle,
    Source,
    Task,
    Verb,
    command,
)


@command(
    WRITE,
    f"anyjax export {DEMO} -o llama --generate 32",
    f"anyjax export {DEMO} -o any --batch symbolic --length symbolic",
    f"anyjax export {DEMO} -o llama.onnx --format onnx",
)
class Export(Verb):
    """Write a model for JAX, TensorFlow or onnxruntime alone.

    What is written runs without the model's framework, and is compared with the model.
    FOLDER_OR_ID is a Hugging Face checkpoint, a SavedModel's folder or a .keras file.

    jax: a folder for anyjax.load, which needs JAX alone; with --generate 32 anyjax.generate works,
    too. savedmodel: for TensorFlow, with derivatives. onnx: for onnxruntime (anyjax[onnx]).

    Exit code 3: what is written and the model disagree.
    """

    source: Source
    out: Annotated[
        str, Option("--output", "-o", help="folder to write, for onnx a file such as m.onnx")
    ]
    format: Annotated[str, Option(help="jax, savedmodel or onnx")] = "jax"
    batch: Annotated[str, Option(help="rows of a call: a number, or symbolic for any")] = "1"
    length: Annotated[str, Option(help="tokens of a row: a number, or symbolic")] = "16"
    generate: Annotated[
        int, Option(min=0, help="also the decoding loop, for so many new tokens (jax)")
    ] = 0
    sample: Annotated[
        bool, Option("--sample", help="draw tokens by a key instead of the likeliest")
    ] = False
    platforms: Annotated[str, Option(help="what it runs on, with commas")] = "cpu,cuda,tpu"
    executables: Annotated[
        bool, Option("--executables", help="also as compiled for this machine (jax)")
    ] = False
    chips: Annotated[
        str | None, Option(help="also as compiled for these, as v6e-4,h100-1 (jax)")
    ] = None
    roll: Annotated[bool, Option("--roll", help="repeated layers as one loop")] = False
    quantize: Annotated[str | None, Option(help="weights as int8, int4, nf4 or fp8")] = None
    dtype: Dtype = None
    task: Task = None
    allow_pickle: Pickle = False
    json: Json = False


@command(
    WRITE,
    f"anyjax flax {DEMO} -o llama.py",
    f"anyjax flax {DEMO} --style linen -o llama_linen.py",
    "anyjax flax examples.torch_gpt:GPT --input 2x64:int -o gpt.py",
)
class Flax(Verb):
    """Write a PyTorch module as readable Flax source code.

    The file imports only jax and flax; load_params(model, FOLDER) fills it, in Linen
    variables = load_params(FOLDER). Exit code 3: its outputs differ from PyTorch's.
    """

    source: Annotated[
        str,
        Argument(metavar="FOLDER_OR_IMPORT_PATH", help="checkpoint, or package.module:Class"),
    ]
    output: Annotated[str, Option("--output", "-o", help="file to write; - prints it")] = "-"
    input: Inputs = None
    task: Task = None
    style: Annotated[str, Option(help="nnx or linen")] = "nnx"
    check: Annotated[
        bool,
        Option(
            help="run the file beside the module: values, gradients, another batch and length, "
            "training mode; what differs is an error and writes no file"
        ),
    ] = True
    json: Json = False


@command(
    WRITE,
    f"anyjax export {DEMO} -o llama",
    f"anyjax weights llama/params.safetensors llama-pt --model {DEMO}",
)
class Weights(Verb):
    """Turn a JAX checkpoint into one for PyTorch.

    Layers are matched by names and shapes, and turned into torch's layouts; every match is
    printed. With --jax and --input both models run with the new weights and must agree. TO gets
    the config and tokenizer of --model; an import path's module is written to model.safetensors.

    Where something is missing, left over or ambiguous, or the models disagree, nothing is written.
    """

    source: Annotated[
        str,
        Argument(metavar="FROM", help="JAX checkpoint: Orbax, msgpack, safetensors or npz"),
    ]
    out: Annotated[
        str, Argument(metavar="TO", help="folder of a checkpoint, or a .safetensors file")
    ]
    model: Annotated[str, Option(help="the torch model: folder or hub id, or package.module:Class")]
    jax: Annotated[
        str | None,
        Option(
            help="the JAX model, to prove it: package.module:Class of nnx or Linen, or of a "
            "function apply(params, *inputs)"
        ),
    ] = None
    input: Annotated[
        list[str] | None,
        Option(help="shape of an input of the JAX model, as 2x32x32x3 or 2x16:int"),
    ] = None
    key: Annotated[
        str | None, Option(help="where the params are in the checkpoint, as ema_params")
    ] = None
    match: Annotated[
        list[str] | None,
        Option(help="your decision, as blocks/*/fc=layers.*.linear; flax/path= leaves out"),
    ] = None
    ignore: Annotated[
        list[str] | None, Option(help="torch name that keeps its value; * is one step")
    ] = None
    task: Task = None
    json: Json = False


@command(
    TRAIN,
    f"anyjax finetune {DEMO} --data README.md --out tuned --dry-run",
    f"anyjax finetune {DEMO} --data README.md --out tuned --steps 20",
    "anyjax generate tuned -p 'import'",
)
class Finetune(Verb):
    """Train a language model further on texts, by LoRA adapters.

    Called again, it goes on where it was. Texts are packed into rows, one row of 20 is held out.
    The folder then holds an adapter that PEFT and anyjax generate load, metrics.jsonl, and loss.png
    where matplotlib is installed.
    """

    source: Source
    data: Annotated[str, Option(help="text file, or .jsonl with text or prompt, completion")]
    out: Annotated[str, Option(help="folder for adapter, metrics and checkpoints")]
    rank: Annotated[int, Option("--lora", min=1, help="rank of the adapters")] = 8
    dora: Annotated[bool, Option("--dora", help="also train the lengths of rows")] = False
    targets: Annotated[
        str | None, Option(help="regular expression of weights; all linear layers by default")
    ] = None
    quantize: Annotated[
        str | None, Option(help="hold the adapted weights as int8, int4 or nf4")
    ] = None
    steps: Annotated[int, Option(min=1, help="how many in all")] = 300
    batch: Annotated[int, Option(min=1, help="rows of a step")] = 8
    length: Annotated[int, Option(min=2, help="tokens of a row")] = 256
    rate: Annotated[float, Option(min=0.0, help="highest learning rate")] = 1e-3
    every: Annotated[int, Option(min=1, help="steps between evaluations")] = 50
    seed: Annotated[int, Option(help="of adapters, order and dropout")] = 0
    dry_run: Annotated[
        bool, Option("--dry-run", help="only tell what it would do, and the memory")
    ] = False
    json: Json = False

    def around(self) -> contextlib.AbstractContextManager[None]:
        """Returns what says at Ctrl-C that the same call goes on."""
        return contextlib.nullcontext() if self.dry_run else _reports.resumable()


@command(
    PLAN,
    f"anyjax plan {DEMO} --chips v6e-8 --length 128",
    f"anyjax plan {DEMO} --chips h100-8 --train --length 512 --batch 64",
    f"anyjax plan {DEMO} --chips v5p-16 --decode --length 512 --json",
)
class Plan(Verb):
    """Estimate memory, communication and time on other chips.

    A config.json is enough: nothing is loaded or allocated. Without --train, --decode or --prefill
    it is a forward pass. Times are those of the chip's published rates: a step that takes longer
    is slower than the chip, none is faster.

    peak per device: fits or not, and what does. step time: the longest of compute, memory and
    interconnect, which work at the same time; the one that decides is named. utilization: what the
    chips do for the model, of what they could. docs/guides/planning.md has the formulas.
    """

    source: Source
    chips: Annotated[str, Option(help="chip and number, as v6e-8, v5p-64, h100-16, cpu-8")]
    batch: Annotated[int, Option(min=1, help="rows, of all chips together")] = 1
    length: Annotated[int, Option(min=1, help="tokens of a row; of a cache")] = 2048
    plan: Annotated[
        str | None, Option(help="tp, fsdp or tp+fsdp; fsdp to train, else tp, by default")
    ] = None
    mesh: Annotated[str | None, Option(help="axes and sizes, as data=2,model=4")] = None
    train: Annotated[bool, Option("--train", help="a training step")] = False
    decode: Annotated[bool, Option("--decode", help="one token for each row")] = False
    prefill: Annotated[bool, Option("--prefill", help="prompts into a cache")] = False
    dtype: Dtype = None
    optimizer: Annotated[str, Option(help="adamw, adafactor, sgd or momentum")] = "adamw"
    remat: Annotated[bool, Option("--remat", help="compute layers again for the gradient")] = False
    quantize: Annotated[str | None, Option(help="hold the weights as int8, fp8, int4 or nf4")] = (
        None
    )
    task: Task = None
    compile: Annotated[
        bool | None,
        Option(
            "--compile/--no-compile",
            help="ask the chips' own compiler, which needs none of them; cpu alone does by default",
        ),
    ] = None
    markdown: Markdown = False
    html: Html = None
    json: Json = False


@command(
    KEEP,
    "anyjax doctor",
    "anyjax doctor --imports",
    "anyjax doctor --json",
)
class Doctor(Verb):
    """Show versions, devices and caches, and what works here.

    For each feature that does not work it prints the line that installs what is missing, and
    beneath it the known traps of this machine. Packages are looked up, not imported; --imports
    imports each of them, which takes a while and finds those that are broken. Exit code 1: the
    core does not work.
    """

    imports: Annotated[
        bool, Option("--imports", help="also import each package, in a process of its own")
    ] = False
    json: Json = False


@command(
    KEEP,
    "anyjax explain MissingRng",
    "anyjax explain --list",
)
class Explain(Verb):
    """Show what an error means, and the ways out of it.

    The last line of every message names its page. Pages are part of anyjax: no network is needed.
    """

    name: Annotated[str | None, Argument(help="class of the error or warning, as MissingRng")] = (
        None
    )
    list: Annotated[bool, Option("--list", help="names of all, with a line each")] = False
    json: Json = False


@command(
    KEEP,
    "anyjax cache",
    "anyjax cache --clear",
)
class Cache(Verb):
    """Show the compiled programs that are kept, or remove them.

    Every verb keeps what XLA compiles in the user's cache folder, so that a second call starts
    sooner; --no-cache, anywhere in the line, does without.
    """

    clear: Annotated[bool, Option("--clear", help="remove all programs")] = False
    json: Json = False
