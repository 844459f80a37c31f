"""Mutants of what model.save and anyjax.train wrote, and of StableHLO programs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.processes.hostile import mutators as m
from tests.processes.hostile.checkpoints import BOMB, DEEP, VALUES, numbered, of_bytes
from tests.processes.hostile.mutators import Change, Mutant

# Folders of model.save


def first_call(key: str, value: object) -> Change:
    return m.put("model.json", f"calls.0.{key}", value)


def signed(change: Change) -> Change:
    """Makes a change as one who can write a checksum does: an older folder has none."""

    def both(folder: Path, rng: object) -> None:
        change(folder, rng)
        m.remove("model.json", "crc32")(folder, rng)

    return both


def foreign_weights(folder: Path, rng: object) -> None:
    """Weights of other shapes, with their right sha256."""
    import numpy as np
    from safetensors.numpy import save_file

    from anyjax.saved.folder import digest

    file = folder / "params.safetensors"
    save_file({"0.weight": np.zeros((5, 5), np.float32)}, file)
    m.put("model.json", "sha256", {"params.safetensors": digest(file)})(folder, rng)


def saved() -> Iterator[Mutant]:
    """Yields changes of a folder that model.save wrote."""
    for pattern, flips in {"*.json": 60, "*.jax": 20, "*.safetensors": 20}.items():
        yield from (
            of_bytes("saved", flips, 6, pattern)
            if flips == 60
            else numbered(pattern[2:], "saved", flips, m.flip(pattern), refused=True)
        )
    fields = [
        "format", "jax", "platforms", "sha256", "name", "framework", "positional",
        "training", "calls", "programs",
    ]  # fmt: skip
    values = {
        k: v
        for k, v in VALUES.items()
        if k in ["text", "negative", "64bit", "null", "list", "object"]
    }
    for field in fields:
        for name, value in values.items():
            change = m.put("model.json", field, value)
            yield Mutant(f"saved-{field}-{name}", "saved", change)
    outputs = {"second": {"array": 1}, "far": {"array": 10**9}, "value": {"value": 3.0},
               "negative": {"array": -1}, "list": {"list": [{"array": 0}]}}  # fmt: skip
    for name, value in outputs.items():
        yield Mutant(f"saved-output-{name}", "saved", first_call("output", value), True)
    shapes = ("float32[2, 4]", "float64[3, 4]", "float32[__import__('os').system('x'), 4]",
              "float32[9**9**9, 4]", "float32[3,", "[", "")  # fmt: skip
    for i, shape in enumerate(shapes):
        yield Mutant(
            f"saved-shape-{i}", "saved", signed(first_call("inputs", {"input": shape})), True
        )
    constraints = ("__import__('os').system('x')", "9**9**9 == 1", "(" * 10**4, "a b")
    for i, text in enumerate(constraints):
        yield Mutant(
            f"saved-constraint-{i}", "saved", signed(first_call("constraints", [text])), True
        )
    paths = ("../outside/vocabulary.txt", "/etc/passwd", "a/../../x", "", "\0")
    for i, path in enumerate(paths):
        function = lambda about, folder, path=path: {
            **about, "sha256": about["sha256"] | {path: "0"}
        }  # fmt: skip
        yield Mutant(f"saved-path-{i}", "saved", signed(m.edit("model.json", function)), True)
    names = ("../outside/x", "/etc/passwd", "..")
    for i, name in enumerate(names):
        change = signed(m.put("model.json", "programs", {name: {}}))
        yield Mutant(f"saved-program-{i}", "saved", change, True)


def saved_files() -> Iterator[Mutant]:
    """Yields folders of model.save with other files."""
    for name, text in {"deep": DEEP, "bomb": BOMB, "none": "", "list": "[]"}.items():
        yield Mutant(f"saved-content-{name}", "saved", m.content("model.json", text), True)
    for i, pattern in enumerate(("*.json", "*.jax", "params*", "state*")):
        for instead in ("nothing", "folder", "pipe", "loop", "dangling", "zero"):
            yield Mutant(f"saved-lose-{i}-{instead}", "saved", m.lose(pattern, instead), True)
    yield Mutant("saved-foreign", "saved", signed(foreign_weights), True)


# Checkpoints of a run


def training() -> Iterator[Mutant]:
    """Yields changes of a folder of checkpoints."""
    yield from of_bytes("training", 40, 12)
    yield from numbered("data", "training", 60, m.flip("d/*"))
    yield from numbered("json", "training", 20, m.flip("data/metadata"))
    yield from numbered("lose", "training", 20, m.lose("*"))
    yield from numbered("folder", "training", 6, m.lose("*", "folder"))
    yield from numbered("dangling", "training", 6, m.lose("*", "dangling"))
    values = {k: v for k, v in VALUES.items() if k in ["text", "large", "null", "list", "object"]}
    for name, value in values.items():
        for key in ("tree", "progress", "metrics"):
            change = m.edit("data/metadata", partial(with_entry, key=key, value=value))
            yield Mutant(f"training-{key}-{name}", "training", change)


def with_entry(entries: dict, folder: Path, key: str, value: object) -> dict:
    return entries | {key: value}


# StableHLO


def stablehlo() -> Iterator[Mutant]:
    """Yields changes of programs."""
    yield from of_bytes("exported", 40, 8)
    yield from of_bytes("bytecode", 40, 8)
    yield from of_bytes("text", 30, 6)
    texts = {
        "shape": (b"tensor<3x4xf32>", b"tensor<3000000000x4xf32>"), "dtype": (b"xf32>", b"xf99>"),
        "negative": (b"tensor<3x4xf32>", b"tensor<-3x4xf32>"), "main": (b"@main", b"@other"),
        "custom": (b"stablehlo.tanh", b"stablehlo.nothing"), "sine": (b"stablehlo.sine", b"chlo.x"),
        "recursive": (b"stablehlo.tanh", b"func.call @main"), "region": (b"return", b"retrun"),
        "deep": (b"module", b"(" * 10**4), "dims": (b"dims = [", b"dims = [99, "),
    }  # fmt: skip
    for name, (old, new) in texts.items():
        yield Mutant(f"text-change-{name}", "text", m.replaced(old, new))
    for format in ("exported", "bytecode", "text"):
        for name, data in {
            "none": b"",
            "zeros": bytes(100),
            "magic": b"ML\xefR",
            "pickle": b"\x80\x04.",
        }.items():
            change = partial(_overwrite, data=data)
            yield Mutant(f"{format}-content-{name}", format, change, True)
        for instead in ("folder", "loop", "dangling", "pipe", "zero"):
            yield Mutant(f"{format}-file-{instead}", format, m.lose("*", instead), True)


def _overwrite(folder: Path, rng: object, data: bytes) -> None:
    (file,) = m.files_in(folder)
    file.write_bytes(data)


def mutants() -> Iterator[Mutant]:
    """Yields all of them."""
    yield from saved()
    yield from saved_files()
    yield from training()
    yield from stablehlo()
