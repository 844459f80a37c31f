"""A speech toy: tones of unknown lengths are heard as digits, by connectionist temporal
classification: python examples/train_ctc_speech.py
"""

import numpy as np
import optax
import torch
from torch import nn

import anyjax

FRAMES, BANDS, DIGITS = 32, 12, 5


def spoken(count: int, seed: int) -> dict[str, np.ndarray]:
    """Spectra of two to four digits each; a digit is a band that sounds for a few frames."""
    rng = np.random.default_rng(seed)
    sound = rng.normal(0, 0.2, (count, BANDS, FRAMES)).astype(np.float32)
    labels, padding = np.zeros((count, 4), np.int32), np.ones((count, 4), np.float32)
    for i in range(count):
        at = rng.integers(1, 3)
        for j in range(rng.integers(2, 5)):
            digit, length = rng.integers(1, DIGITS + 1), rng.integers(3, 7)
            sound[i, 2 * digit - 1 : 2 * digit + 1, at : at + length] += 1
            labels[i, j], padding[i, j], at = digit, 0, at + length + 1
    return {"sound": sound, "labels": labels, "padding": padding}


def listener(width: int = 32) -> nn.Module:
    """Bands by frame to classes by frame, both channels first."""
    first, second = nn.Conv1d(BANDS, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv1d(width, DIGITS + 1, 1))


def loss(model, batch):
    logits = model(batch["sound"]).swapaxes(1, 2)
    silent = np.zeros(logits.shape[:2], np.float32)  # no frame is padding
    return optax.ctc_loss(logits, silent, batch["labels"], batch["padding"]).mean()


def heard(best: np.ndarray) -> list[int]:
    """The digits of frames, repetitions and blanks left out."""
    return [int(x) for x, last in zip(best, [0, *best]) if x not in (0, last)]


if __name__ == "__main__":
    torch.manual_seed(0)
    model, tx = anyjax.from_torch(listener()), optax.adam(1e-2)
    step = anyjax.train.make_step(loss, tx, clip=5.0)
    state = anyjax.train.TrainState.create(model, tx)
    batches, test = anyjax.train.Batches(spoken(512, 0), 32, key=0), spoken(100, 1)
    before = anyjax.train.evaluate(state, [test], loss)["loss"]
    state = anyjax.train.fit(state, step, batches, epochs=16)
    after = anyjax.train.evaluate(state, [test], loss)["loss"]
    said = [[int(x) for x in row if x] for row in test["labels"]]
    best = np.asarray(state.model(test["sound"]).argmax(1))
    right = np.mean([a == heard(b) for a, b in zip(said, best)])
    print(f"loss {before:.2f} -> {after:.2f}, {right:.0%} of the recordings heard right")
