"""Mutants of checkpoints: safetensors, their index, configs and tokenizers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.processes.hostile import mutators as m
from tests.processes.hostile.mutators import Change, Mutant

# Values that an entry of a config may turn into.
VALUES: dict[str, object] = {
    "text": "x", "negative": -1, "zero": 0, "large": 10**9, "64bit": 2**63, "big": 10**300,
    "inf": float("inf"), "nan": float("nan"), "null": None, "list": [], "object": {}, "yes": True,
    "half": 0.5, "outside": "{outside}", "parent": "../outside", "nested": [[[[]]]],
}  # fmt: skip
FIELDS = [
    "architectures", "attention_bias", "attention_dropout", "bos_token_id", "dtype",
    "eos_token_id", "head_dim", "hidden_act", "hidden_size", "initializer_range",
    "intermediate_size", "max_position_embeddings", "mlp_bias", "model_type",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id",
    "rms_norm_eps", "rope_parameters", "tie_word_embeddings", "vocab_size",
    "rope_parameters.rope_type", "rope_parameters.rope_theta", "num_labels", "id2label",
    "auto_map", "quantization_config", "text_config", "layer_types", "transformers_weights",
    "_attn_implementation", "attn_implementation", "torch_dtype", "tokenizer_class",
]  # fmt: skip
DEEP = "[" * 10**5
BOMB = '{"a":' * 10**5


def numbered(name: str, format: str, count: int, change: Change, **kind: bool) -> Iterator[Mutant]:
    for i in range(count):
        yield Mutant(f"{format}-{name}-{i}", format, change, **kind)


def of_bytes(format: str, flips: int, others: int, pattern: str = "*") -> Iterator[Mutant]:
    """Yields flipped bytes, cut, spliced and longer files."""
    place = pattern.strip("*.").replace("*", "")
    tag = f"-{place}" if place else ""
    yield from numbered(f"flip{tag}", format, flips, m.flip(pattern))
    yield from numbered(f"flips{tag}", format, others, m.flip(pattern, count=8))
    yield from numbered(f"cut{tag}", format, others, m.cut(pattern))
    yield from numbered(f"splice{tag}", format, others, m.splice(pattern))
    yield from numbered(f"append{tag}", format, others // 2, m.append(pattern))


# Safetensors


def overlapping(entries: dict) -> None:
    names = [k for k in entries if k != "__metadata__"]
    entries[names[1]]["data_offsets"] = entries[names[0]]["data_offsets"]


def doubled(entries: dict) -> str:
    text = json.dumps(entries)
    name = max(k for k in entries if k != "__metadata__")
    return text[:-1] + f', "{name}": ' + json.dumps(entries[name]) + "}"


def swapped(entries: dict) -> None:
    """Exchanges two tensors of one shape: other weights, which nobody can tell from the right."""
    pairs = [k for k in entries if k.endswith("layernorm.weight")]
    first, second = pairs[:2]
    entries[first], entries[second] = entries[second], entries[first]


def renamed(entries: dict) -> dict:
    return {k.replace("q_proj", "r_proj"): v for k, v in entries.items()}


OFFSETS = {
    "negative": [-4, 0], "reversed": [4, 0], "far": [2**40, 2**40 + 4], "huge": [0, 2**63],
    "wrap": [2**64 - 4, 2**64], "one": [0], "three": [0, 4, 8], "text": ["0", "4"],
    "floats": [0.0, 4.0], "null": None, "empty": [], "object": {}, "nan": [float("nan"), 4],
}  # fmt: skip
SHAPES = {
    "overflow": [2**32, 2**32], "product": [2**31, 2**31, 2**31], "huge": [2**63],
    "negative": [-16], "negatives": [-4, -4], "zero": [0], "zeros": [0, 2**62], "none": [],
    "text": ["16"], "float": [16.0], "null": None, "deep": [1] * 10**4, "nested": [[16]],
    "more": [16, 2],
}  # fmt: skip
DTYPES = ("F99", "", "f32", "F64", "I8", "F8_E8M0", "F4", "BOOL", "I64", "C64", "O", "pickle")
LENGTHS = (0, 1, 7, 2**16, 10**8, 2**31, 2**32, 2**53, 2**63, 2**64 - 1)


def safetensors(format: str = "safetensors", flips: int = 60) -> Iterator[Mutant]:
    """Yields changes of a file's header and of its bytes."""
    weights = "*.safetensors"
    yield from numbered("header", format, flips, m.flip(weights, 0, 0.1))
    yield from numbered("weights", format, flips // 2, m.flip(weights, 0.5, 1))
    yield from of_bytes(format, flips // 2, flips // 4, weights)
    fields = {"data_offsets": OFFSETS, "shape": SHAPES}
    for field, values in fields.items():
        for name, value in values.items():
            yield Mutant(f"{format}-{field}-{name}", format, m.entry(field, value), True)
    for dtype in DTYPES:
        yield Mutant(f"{format}-dtype-{dtype or 'none'}", format, m.entry("dtype", dtype), True)
    for length in LENGTHS:
        yield Mutant(f"{format}-length-{length}", format, m.length_field(length), True)
    headers = {
        "list": "[]", "null": "null", "number": "3", "deep": DEEP, "bomb": BOMB, "none": "{}",
        "text": '"x"', "nan": '{"a": NaN}', "metadata": '{"__metadata__": 3}',
        "controls": '{"\\u0000": {}}',
    }  # fmt: skip
    for name, text in headers.items():
        change = m.header(lambda entries, text=text: text)
        yield Mutant(f"{format}-header-{name}", format, change, True)
    yield Mutant(f"{format}-overlapping", format, m.header(overlapping), True)
    yield Mutant(f"{format}-renamed", format, m.header(renamed), True)
    yield Mutant(f"{format}-doubled", format, m.header(doubled))
    if format == "safetensors":
        yield Mutant(f"{format}-swapped", format, m.header(swapped))
        for name in ("nothing", "folder", "pipe", "loop", "dangling", "zero"):
            yield Mutant(f"{format}-{name}", format, m.lose(weights, name), True)


# Checkpoints in several files


def astray(value: object) -> Change:
    """Leads one weight of the index to another file."""

    def function(entries: dict, folder: Path) -> None:
        place = value.format(outside=folder.parent / m.OUTSIDE) if isinstance(value, str) else value
        entries["weight_map"][min(entries["weight_map"])] = place

    return m.edit("*.index.json", function)


def all_astray(value: str) -> Change:
    """Leads all weights to files in another folder."""

    def function(entries: dict, folder: Path) -> None:
        prefix = value.format(outside=folder.parent / m.OUTSIDE)
        entries["weight_map"] = {k: f"{prefix}/{v}" for k, v in entries["weight_map"].items()}

    return m.edit("*.index.json", function)


def exchanged(folder: Path, rng: object) -> None:
    """Exchanges two files of weights."""
    first, second, *_ = m.files_in(folder, "*.safetensors")
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)


def pickles(folder: Path, rng: object, names: tuple[str, ...], torch: bool = False) -> None:
    """Puts hostile pickles in the place of the weights."""
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    for name in names:
        (m.torch_pickled if torch else m.pickled)(folder, name)
    if names == ("pytorch_model-1.bin",):
        index = {"metadata": {}, "weight_map": {"lm_head.weight": names[0]}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def index() -> Iterator[Mutant]:
    """Yields changes of the index, and pickles."""
    file = "*.index.json"
    yield from of_bytes("index", 20, 8, file)
    inside = ["x.safetensors", "config.json", ".", "model.safetensors.index.json"]
    places = [
        "../outside/model-00001-of-00008.safetensors", "{outside}/model-00001-of-00008.safetensors",
        "../../etc/passwd", "/etc/passwd", "/dev/zero", "..", "", " ", "~/x", "\0", "a\0b", 3, None,
        [], {}, True, "./../outside/model-00001-of-00008.safetensors", "https://localhost/x",
        "sub/../../outside/model-00001-of-00008.safetensors", "x" * 5000, "C:\\x", "\\\\x\\y",
        "file:///etc/passwd", "\ud800", *inside,
    ]  # fmt: skip
    for i, place in enumerate(places):
        yield Mutant(f"index-place-{i}", "index", astray(place), True)
    for i, prefix in enumerate(("../outside", "{outside}", "./../outside", "a/../../outside")):
        yield Mutant(f"index-all-{i}", "index", all_astray(prefix), True)
    for name, value in VALUES.items():
        yield Mutant(f"index-map-{name}", "index", m.put(file, "weight_map", value), True)
        yield Mutant(f"index-metadata-{name}", "index", m.put(file, "metadata", value))
    for name, text in {"deep": DEEP, "bomb": BOMB, "none": "", "list": "[]", "nan": "NaN"}.items():
        change = m.content("model.safetensors.index.json", text)
        yield Mutant(f"index-content-{name}", "index", change, True)
    for instead in ("nothing", "folder", "pipe", "loop", "dangling", "zero"):
        yield Mutant(f"index-file-{instead}", "index", m.lose("*.safetensors", instead), True)
        yield Mutant(f"index-index-{instead}", "index", m.lose(file, instead), True)
    yield Mutant("index-exchanged", "index", exchanged)
    names = ("pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt", "pytorch_model-1.bin")
    for name in names:
        for torch in (False, True):
            change = partial(pickles, names=(name,), torch=torch)
            yield Mutant(f"index-pickle-{name}-{torch}", "index", change, True)
    for name in ("training_args.bin", "pytorch_model.bin", "optimizer.pt", "scheduler.pt"):
        change = lambda folder, rng, name=name: m.pickled(folder, name)
        yield Mutant(f"index-beside-{name}", "index", change)


# Configs


def code(**auto_map: str) -> Change:
    """Lets the config name code that comes with the checkpoint."""

    def change(folder: Path, rng: object) -> None:
        config = json.loads((folder / "config.json").read_bytes())
        (folder / "config.json").write_text(json.dumps(config | {"auto_map": auto_map}))
        marker = folder.parent / m.OUTSIDE / m.MARKER
        source = f"open({str(marker)!r}, 'w').close()\nclass Code: pass\n"
        for name in ("code.py", "modeling_x.py", "custom_generate/generate.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(source)

    return change


def config() -> Iterator[Mutant]:
    """Yields changes of the entries of config.json."""
    for field in FIELDS:
        for name, value in VALUES.items():
            yield Mutant(f"config-{field}-{name}", "config", m.put("config.json", field, value))
    yield from of_bytes("config", 30, 10, "config.json")
    contents = {"deep": DEEP, "bomb": BOMB, "none": "", "list": "[]", "null": "null",
                "digits": '{"model_type": "llama", "hidden_size": ' + "9" * 10**5 + "}",
                "constants": '{"model_type": "llama", "hidden_size": Infinity}'}  # fmt: skip
    for name, text in contents.items():
        yield Mutant(f"config-content-{name}", "config", m.content("config.json", text), True)
    maps = [
        {"AutoModel": "code.Code"}, {"AutoConfig": "code.Code"}, {"AutoTokenizer": "code.Code"},
        {"AutoModelForCausalLM": "modeling_x.Code"}, {"AutoModelForCausalLM": "other/x--x.Y"},
        {"AutoProcessor": "code.Code"}, {"AutoConfig": "code.Code", "AutoModel": "code.Code"},
        {"AutoModel": ["code.Code"]},
    ]  # fmt: skip
    for i, auto_map in enumerate(maps):
        named_model = any("Model" in k or "Config" in k for k in auto_map)
        yield Mutant(f"config-code-{i}", "config", code(**auto_map), named_model)
    kernels = (
        "owner/kernel",
        "owner/kernel:run",
        "kernels-community/flash-attn",
        "flash_attention_2",
    )
    for i, kernel in enumerate(kernels):
        for field in ("_attn_implementation", "attn_implementation", "experts_implementation"):
            yield Mutant(
                f"config-kernel-{i}-{field}", "config", m.put("config.json", field, kernel)
            )
    scaling = [
        {"rope_type": "linear", "factor": 1e300}, {"rope_type": "yarn", "factor": 0.0},
        {"rope_type": "dynamic", "factor": -1.0}, {"rope_type": "llama3", "factor": None},
        {"rope_type": "longrope", "short_factor": [1] * 10**4, "long_factor": "x"},
    ]  # fmt: skip
    for i, parameters in enumerate(scaling):
        yield Mutant(
            f"config-rope-{i}", "config", m.put("config.json", "rope_parameters", parameters)
        )
    generation = "generation_config.json"
    for name, value in VALUES.items():
        for field in ("eos_token_id", "max_length", "custom_generate", "cache_implementation"):
            yield Mutant(
                f"config-generation-{field}-{name}", "config", m.put(generation, field, value)
            )


# Tokenizers


def tokenizer() -> Iterator[Mutant]:
    """Yields changes of tokenizer.json and its config."""
    yield from of_bytes("tokenizer", 60, 15, "tokenizer.json")
    yield from of_bytes("tokenizer", 0, 6, "tokenizer_config.json")
    file, settings = "tokenizer.json", "tokenizer_config.json"
    values = {
        k: v for k, v in VALUES.items() if k in ["text", "null", "list", "object", "large", "nan"]
    }
    paths = ("model", "model.vocab", "model.merges", "model.type", "pre_tokenizer", "added_tokens",
             "version", "normalizer", "decoder", "model.unk_token", "post_processor")  # fmt: skip
    for path in paths:
        for name, value in values.items():
            yield Mutant(f"tokenizer-{path}-{name}", "tokenizer", m.put(file, path, value))
    for path in ("tokenizer_class", "eos_token", "model_max_length", "auto_map", "chat_template",
                 "added_tokens_decoder", "extra_special_tokens", "backend"):  # fmt: skip
        for name, value in values.items():
            yield Mutant(
                f"tokenizer-config-{path}-{name}", "tokenizer", m.put(settings, path, value)
            )
    for name, text in {"deep": DEEP, "none": "", "list": "[]", "null": "null"}.items():
        yield Mutant(f"tokenizer-content-{name}", "tokenizer", m.content(file, text), True)
        yield Mutant(f"tokenizer-settings-{name}", "tokenizer", m.content(settings, text))
    maps = {"AutoTokenizer": ["code.Code", "code.Code"]}, {"AutoTokenizer": [None, "code.Code"]}
    for i, auto_map in enumerate(maps):
        yield Mutant(f"tokenizer-code-{i}", "tokenizer", remote_tokenizer(auto_map))
    for instead in ("nothing", "folder", "loop", "dangling", "pipe"):
        yield Mutant(f"tokenizer-file-{instead}", "tokenizer", m.lose(file, instead), True)
        yield Mutant(f"tokenizer-settings-{instead}", "tokenizer", m.lose(settings, instead))
    for name in ("tokenizer.model", "vocab.pkl", "tokenizer.pkl", "spiece.model"):
        change = partial(pickled_tokenizer, name=name)
        yield Mutant(f"tokenizer-pickle-{name}", "tokenizer", change, True)


def remote_tokenizer(auto_map: dict) -> Change:
    def change(folder: Path, rng: object) -> None:
        code()(folder, rng)
        m.put("tokenizer_config.json", "auto_map", auto_map)(folder, rng)
        m.put("tokenizer_config.json", "tokenizer_class", "Code")(folder, rng)

    return change


def pickled_tokenizer(folder: Path, rng: object, name: str) -> None:
    (folder / "tokenizer.json").unlink()
    m.pickled(folder, name)


def mutants() -> Iterator[Mutant]:
    """Yields all of them."""
    yield from safetensors()
    yield from index()
    yield from config()
    yield from tokenizer()
