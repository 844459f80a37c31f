"""The corpus: 2,000 mutants of small valid files, always the same ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.processes.hostile import adapters, artifacts, checkpoints, tensorflow_files
from tests.processes.hostile.mutators import Mutant, content

# Of each format so many: those that only an error is right for, and an even choice of the others.
COUNTS = {
    "safetensors": 180, "index": 130, "config": 310, "tokenizer": 150, "adapter": 170, "lora": 110,
    "gguf": 200, "gguf-packed": 60, "saved": 160, "training": 140, "exported": 50, "bytecode": 50,
    "text": 40, "savedmodel": 80, "keras": 100, "h5": 70,
}  # fmt: skip


def chosen() -> Iterator[Mutant]:
    """Yields the corpus, format by format."""
    files = (checkpoints, adapters, artifacts, tensorflow_files)
    mutants = [x for file in files for x in file.mutants()]
    for format, count in COUNTS.items():
        of_format = [x for x in mutants if x.format == format]
        others = [x for x in of_format if not x.refused]
        room = count - (len(of_format) - len(others))
        kept = {others[i * len(others) // room].name for i in range(room)}
        yield from (x for x in of_format if x.refused or x.name in kept)


CORPUS = [*chosen()]
# What the judge must see: the format reads the word and does it.
WORDS = "same different accepted raw mute refused executed outside import process memory crash"
PROBES = {
    x: Mutant(f"probe-{x}", "probe", content("word", x), x == "accepted") for x in WORDS.split()
}
BY_NAME = {x.name: x for x in (*CORPUS, *PROBES.values())}
assert len(CORPUS) == 2000 and len(BY_NAME) == len(CORPUS) + len(PROBES), "names are unique"
