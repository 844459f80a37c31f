"""A classifier in an ONNX file is tuned and written: python examples/finetune_onnx.py x.svg"""

import sys
import tempfile

import jax
import numpy as np
import optax
from matplotlib import pyplot as plt
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import anyjax

images, labels = load_digits(return_X_y=True)
images, dark = (images / 16).astype(np.float32), (1 - images / 16).astype(np.float32)
net = MLPClassifier(64, random_state=0).fit(images[:900], labels[:900])
model = anyjax.from_onnx(to_onnx(net, images[:1], options={"zipmap": False}).SerializeToString())
tx, losses = optax.adam(1e-2), []


@jax.jit
def slope(params, x, y):
    chance = lambda params: model.apply(params, x)["probabilities"][np.arange(len(y)), y]
    return jax.value_and_grad(lambda params: -jax.numpy.log(chance(params)).mean())(params)


params, state = model.params, tx.init(model.params)
for _ in range(300):
    loss, gradient = slope(params, dark[:900], labels[:900])
    updates, state = tx.update(gradient, state)
    params, losses = optax.apply_updates(params, updates), [*losses, loss]
file = f"{tempfile.mkdtemp()}/tuned.onnx"
anyjax.export.to_onnx(model.with_params(params), file, images[:1], shapes={"X": "batch, ..."})
answers = model(dark[900:])["label"], anyjax.export.run_onnx(file, {"X": dark[900:]})["label"]
before, after = ((np.asarray(x) == labels[900:]).mean() for x in answers)
print(f"digits in black on white: {before:.0%} are right; {after:.0%} by the new file")
plt.plot(losses)
plt.savefig(sys.argv[1] if sys.argv[1:] else "finetune_onnx.svg")
