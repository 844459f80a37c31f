"""A tiny BERT learns to tell praise from blame; batches are padded to two lengths.

python examples/train_bert_classifier.py
"""

import numpy as np
import optax
import torch
from transformers import BertConfig, BertForSequenceClassification

import anyjax

GOOD, BAD = map(str.split, ("great lovely brilliant superb", "awful boring dreadful clumsy"))
REST = str.split("the film was and its music story seemed to me at times quite rather")
WORDS = {word: i + 1 for i, word in enumerate([*GOOD, *BAD, *REST])}


def sentences(count: int, seed: int) -> list[dict]:
    """Ids of sentences with one telling word in each, and whether it praises."""
    rng, samples = np.random.default_rng(seed), []
    for label in rng.integers(0, 2, count):
        words = rng.choice(REST, rng.integers(3, 15)).tolist()
        words.insert(rng.integers(len(words)), rng.choice(GOOD if label else BAD))
        ids = [WORDS[word] for word in words]
        samples.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": label})
    return samples


def batches(samples: list[dict], size: int = 32):
    """Sorted by length, so that few are padded much."""
    collate = anyjax.train.bucket([8, 16], input_ids=0, attention_mask=0)
    samples = sorted(samples, key=lambda sample: len(sample["input_ids"]))
    return [collate(samples[i : i + size]) for i in range(0, len(samples), size)]


def metrics(model, batch):
    out = model(**batch)
    return out.loss, {"accuracy": (out.logits.argmax(-1) == batch["labels"]).mean()}


if __name__ == "__main__":
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": len(WORDS) + 1}
    config = BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=4)
    model = anyjax.from_torch(BertForSequenceClassification(config)).train()
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0, 5e-3, 10, 80))
    step = anyjax.train.make_step(metrics, tx, clip=1.0)
    state = anyjax.train.TrainState.create(model, tx, rng=0)
    train, test = (batches(sentences(*given)) for given in ((512, 0), (128, 1)))
    before = anyjax.train.evaluate(state, test, metrics)
    state = anyjax.train.fit(state, step, train, epochs=5)
    after = anyjax.train.evaluate(state, test, metrics)
    print(f"loss {before['loss']:.3f} -> {after['loss']:.3f}, accuracy {after['accuracy']:.0%}")
    print(f"compiled for {step.compilations} shapes")
