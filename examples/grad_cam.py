"""Grad-CAM (arXiv:1610.02391) and saliency: which part of a picture speaks for which class? Without
--model a small ResNet is built from its config and learns disks and squares in a few seconds; the
picture has one of each: python examples/grad_cam.py --help
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import transformers

import anyjax
from anyjax.transforms import edit, intermediates

CONFIG = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
SIZE, NAMES = 48, {0: "disk", 1: "square"}


def maps(model, pixels, label: int, module: str) -> tuple[jax.Array, jax.Array]:
    """Returns the heat map [n, h, w] of the last module of that path, the saliency of pixels."""
    *_, (path, activation) = intermediates(model, module)(pixels)[1].items()

    def score(pixels, shift):
        shifted = edit(model, {f"^{path}$": lambda x: x + shift})
        return shifted.apply(model.params, pixels).logits[:, label].sum()

    zero = jnp.zeros_like(activation)
    of_pixels, of_activation = jax.jit(jax.grad(score, (0, 1)))(pixels, zero)  # one backward pass
    weights = of_activation.mean((2, 3), keepdims=True)
    return jax.nn.relu((weights * activation).sum(1)), abs(of_pixels).max(1)


def picture(rng, shapes) -> np.ndarray:
    """Returns pixels [3, SIZE, SIZE]: disks (0) and squares (1) with these centres, on noise."""
    pixels, grid = rng.normal(0, 0.1, (3, SIZE, SIZE)), np.mgrid[:SIZE, :SIZE]
    for kind, centre in shapes:
        offsets = grid - np.reshape(centre, (2, 1, 1))
        inside = abs(offsets).max(0) < 6 if kind else np.hypot(*offsets) < 6.8
        pixels += inside * rng.uniform(0.5, 1, (3, 1, 1))
    return pixels.astype(np.float32)


def trained(rng):
    """Returns a ResNet that tells disks from squares."""
    labels = rng.integers(0, 2, 1536)
    pictures = np.stack([picture(rng, [(x, rng.uniform(8, SIZE - 8, 2))]) for x in labels])

    def loss(model, batch):
        logits = model(batch[0]).logits
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    torch.manual_seed(0)
    config, tx = transformers.ResNetConfig(**CONFIG, id2label=NAMES), optax.adam(3e-3)
    model = anyjax.from_torch(transformers.ResNetForImageClassification(config)).train()
    state, step = anyjax.train.TrainState.create(model, tx), anyjax.train.make_step(loss, tx)
    batches = anyjax.train.Batches((pictures, labels), 32, key=0)
    return anyjax.train.fit(state, step, batches, epochs=2).model.eval()


def draw(pixels, panels: dict[str, jax.Array], file: Path) -> None:
    from matplotlib.figure import Figure

    shown = {"picture": np.moveaxis((pixels - pixels.min()) / np.ptp(pixels), 0, -1), **panels}
    grid = Figure((2.5 * len(shown), 2.8), layout="constrained").subplots(1, len(shown))
    for axes, (title, x) in zip(grid, shown.items()):
        axes.imshow(x, "magma", interpolation="bilinear" if "CAM" in title else "nearest")
        axes.set(title=title, xticks=[], yticks=[])
    grid[0].figure.savefig(file, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="folder of a ResNet, or the like, for classification")
    parser.add_argument("--image", help="file of a picture, for that model's processor")
    parser.add_argument("--module", default=r"encoder\.stages\.\d+$", help="of paths: the last one")
    parser.add_argument("--out", type=Path, help="folder for grad_cam.png (with matplotlib)")
    args = parser.parse_args()
    if (args.model is None) != (args.image is None):
        parser.error("--model and --image come together")
    if args.model:
        model = anyjax.from_pretrained(args.model)
        processor = transformers.AutoImageProcessor.from_pretrained(args.model)
        image = transformers.image_utils.load_image(args.image)
        pixels = processor(image, return_tensors="np")["pixel_values"]
    else:
        model = trained(rng := np.random.default_rng(0))
        pixels = picture(rng, [(0, (14, 14)), (1, (32, 34))])[None]
    panels, names = {}, model.source.module.config.id2label
    for label in np.argsort(-model(pixels).logits[0])[:2].tolist():
        heat, saliency = maps(model, pixels, label, args.module)
        row, column = np.unravel_index(heat[0].argmax(), heat[0].shape)
        print(f"{names[label]}: hottest at row {row}, column {column} of {heat[0].shape}")
        panels[f"Grad-CAM: {names[label]}"] = heat[0]
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        panels[f"saliency: {names[label]}"] = saliency[0]
        draw(pixels[0], panels, args.out / "grad_cam.png")
