"""Writes the figures of planning.md: ``python docs/guides/planning.py [7b] [70b] [671b]``.

Between ``<!-- 7b -->`` and ``<!-- end -->`` stands what ``anyjax plan`` says of that model; the
page has the commands. A test holds the figures of the 7B model.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import cache
from pathlib import Path

import transformers

from anyjax.hf.estimate_call import traced_call
from anyjax.parallel._estimate import estimate_traced
from anyjax.parallel.estimation.report import Estimate
from anyjax.units import duration, size

PAGE = Path(__file__).with_name("planning.md")
POSITIONS = {"max_position_embeddings": 8192}
CONFIGS = {
    "7b": ("LlamaForCausalLM", lambda: transformers.LlamaConfig(**POSITIONS)),
    "70b": (
        "LlamaForCausalLM",
        lambda: transformers.LlamaConfig(
            hidden_size=8192,
            intermediate_size=28672,
            num_hidden_layers=80,
            num_attention_heads=64,
            num_key_value_heads=8,
            vocab_size=128256,
            **POSITIONS,
        ),
    ),
    "671b": ("DeepseekV3ForCausalLM", lambda: transformers.DeepseekV3Config(**POSITIONS)),
}
# call, chips, plan, batch, length, what else
ROWS: dict[str, list[tuple]] = {
    "7b": [
        ("decode", "v6e-8", "tp", 32, 8192, {}),
        ("decode", "h100-8", "tp", 32, 8192, {}),
        ("prefill", "v6e-8", "tp", 4, 8192, {}),
        ("prefill", "v6e-32", "tp", 4, 8192, {}),
        ("train", "v5p-32", "fsdp", 64, 4096, {}),
        ("train", "v5p-32", "fsdp", 64, 4096, {"remat": True}),
        ("train", "h100-64", "fsdp", 64, 4096, {"remat": True}),
    ],
    "70b": [
        ("decode", "v6e-8", "tp", 32, 8192, {}),
        ("decode", "h200-8", "tp", 64, 8192, {}),
        ("train", "v5p-256", "fsdp", 256, 4096, {"remat": True}),
        ("train", "v7x-128", "fsdp", 128, 4096, {"remat": True}),
    ],
    "671b": [
        ("decode", "v7x-64", "tp", 64, 4096, {}),
        ("train", "v7x-512", "fsdp", 512, 4096, {"remat": True}),
    ],
}
HEAD = (
    "| call | chips | plan | batch | arguments | temporaries | peak | fits | compute | memory "
    "| interconnect | tokens/s | utilization |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
)


@cache
def folder(name: str) -> str:
    """A folder with the model's config.json."""
    cls, make = CONFIGS[name]
    config = make()
    config.architectures, config.dtype = [cls], "bfloat16"
    path = Path(tempfile.mkdtemp()) / name
    config.save_pretrained(path)
    return str(path)


@cache
def traced(name: str, what: str, batch: int, length: int, more: tuple):
    """A call, for several slices."""
    return traced_call(folder(name), what, batch, length, **dict(more))


def line(name: str, row: tuple) -> str:
    """One line of a table."""
    what, chips, plan, batch, length, more = row
    call = traced(name, what, batch, length, tuple(more.items()))
    return shown(estimate_traced(call, chips, plan, search=False), row)


def shown(told: Estimate, row: tuple) -> str:
    """An estimate as a line."""
    what, chips, plan, batch, length, more = row
    asked = "".join(f" --{k}" + ("" if v is True else f" {v}") for k, v in more.items())
    cells = [
        what + asked, chips, plan, f"{batch} x {length}", size(told.arguments),
        size(told.temporaries), size(told.peak), "yes" if told.fits else "no",
        *map(duration, (told.compute, told.moving, told.linking)),
        f"{told.tokens_per_second:,.0f}", f"{told.utilization:.1%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table(name: str) -> str:
    """The table of a model."""
    return "\n".join([HEAD, *(line(name, row) for row in ROWS[name])])


def main(names: list[str]) -> None:
    """Puts new tables into the page."""
    for name in names or [*ROWS]:
        new = f"<!-- {name} -->\n\n{table(name)}\n\n<!-- end -->"
        text = PAGE.read_text(encoding="utf-8")
        old = re.search(rf"<!-- {name} -->.*?<!-- end -->", text, flags=re.S)
        assert old is not None, f"the page has no place for {name}"
        PAGE.write_text(text.replace(old[0], new), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
