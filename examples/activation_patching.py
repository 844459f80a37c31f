"""Activation patching: where does a language model hold the word that it repeats? Each layer's
activation of a clean prompt is put into a corrupted one, position by position; the number is the
share of the answer that comes back: python examples/activation_patching.py --help
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from transformers import AutoTokenizer

import anyjax
from anyjax.transforms import edit, intermediates

PROMPTS = [f"def __init__(self, {word}):\n        self.name =" for word in ("name", "value")]


def restored(model, clean, corrupted, answers) -> jax.Array:
    """Returns [layers, positions]: 0 where a patch changes nothing, 1 where it restores all."""
    margin = lambda out: out.logits[0, -1, answers[0]] - out.logits[0, -1, answers[1]]
    out, values = intermediates(model, r"layers\.\d+$")(clean, use_cache=False)
    worst, best = margin(model(corrupted, use_cache=False)), margin(out)

    def patched(layer, position):
        here = jnp.arange(clean.shape[1])[:, None] == position
        patch = lambda i, x: lambda hidden: jnp.where(here & (layer == i), x, hidden)
        edits = {f"^{path}$": patch(i, x) for i, (path, x) in enumerate(values.items())}
        return margin(edit(model, edits).apply(model.params, corrupted, use_cache=False))

    every = jax.jit(jax.vmap(jax.vmap(patched, (None, 0)), (0, None)))  # one program
    return (every(np.arange(len(values)), np.arange(clean.shape[1])) - worst) / (best - worst)


def draw(shares: np.ndarray, words: list[str], file: Path) -> None:
    from matplotlib.figure import Figure

    axes = Figure((8, 2.8), layout="constrained").subplots()
    axes.figure.colorbar(axes.imshow(shares, "RdBu", vmin=-1, vmax=1, origin="lower"))
    axes.set_xticks(range(len(words)), map(repr, words), rotation=40, ha="right")
    axes.set(title="answer restored, by layer", yticks=range(len(shares)), aspect="auto")
    axes.figure.savefig(file, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="examples/tiny-llama", help="folder of a checkpoint")
    parser.add_argument("--out", type=Path, help="folder for patching.png (with matplotlib)")
    args = parser.parse_args()
    tokenizer, model = AutoTokenizer.from_pretrained(args.model), anyjax.from_pretrained(args.model)
    ids, answers = np.array(tokenizer(PROMPTS).input_ids), tokenizer(" name value").input_ids
    shares = np.asarray(restored(model, ids[:1], ids[1:], answers))
    words = [tokenizer.decode([i]) for i in ids[1]]
    for word, row in zip(words, shares.T):  # layers from left to right
        print(f"{word!r:12}", *(f"{x:z6.2f}" for x in row))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        draw(shares, words, args.out / "patching.png")
