"""Scores texts, lines of {"id": ..., "text": ...}, in as many processes as there are.

python -m anyjax.parallel.launch -n 2 examples/batch_inference.py MODEL texts.jsonl out
"""

import json
import os
import sys
from pathlib import Path

import jax
import optax
from transformers import AutoTokenizer

import anyjax

PART, ROWS, SIZES = 64, 16, (32, 64, 128, 256)  # lines of a part, rows of a batch, their lengths


class Scorer:
    def __init__(self, model: str, source: str, out: str):
        self.model = anyjax.from_pretrained(model)
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.lines, self.out = Path(source).read_bytes().splitlines(), Path(out)
        self.pad = anyjax.train.bucket(SIZES, mask="mask", ids=0)
        self.score, self.programs = jax.jit(self.traced), 0

    def traced(self, params, ids, mask):
        self.programs += 1  # Python runs once for each shape, as often as XLA compiles
        logits = self.model.apply(params, ids, attention_mask=mask, use_cache=False).logits
        losses = optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], ids[:, 1:])
        return -losses.mean(1, where=mask[:, 1:])

    def __call__(self, todo: dict) -> dict:
        rows = [json.loads(line) for line in self.lines[todo["part"] * PART :][:PART]]
        rows.sort(key=lambda row: len(row["text"]))  # so that few are padded much
        fresh = self.out / f"{todo['part']:05}.{os.getpid()}"
        with fresh.open("w") as file:
            for some in (rows[i : i + ROWS] for i in range(0, len(rows), ROWS)):
                ids = [self.tokenizer(row["text"]).input_ids[: SIZES[-1]] for row in some]
                ids += ids[-1:] * (ROWS - len(ids))  # always as many rows
                scores = self.score(self.model.params, **self.pad([{"ids": x} for x in ids]))
                scores = [x if x == x else None for x in scores.tolist()]  # of one token: no score
                told = ({"id": row["id"], "score": x} for row, x in zip(some, scores))
                file.writelines(json.dumps(row) + "\n" for row in told)
        fresh.replace(fresh.with_suffix(".jsonl"))  # whole or not at all; the same if done twice
        return {**todo, "worker": os.getpid(), "programs": self.programs}


def missing(source: str, out: str) -> list[dict]:
    Path(out).mkdir(parents=True, exist_ok=True)  # run again, with any number, it goes on
    count = -(-len(Path(source).read_bytes().splitlines()) // PART)
    return [{"part": i} for i in range(count) if not Path(out, f"{i:05}.jsonl").exists()]


if __name__ == "__main__":
    anyjax.parallel.initialize(shutdown_timeout_seconds=86400)  # who is done waits for the others
    scorer, count = Scorer(*sys.argv[1:]), jax.process_count()
    for todo in (x for x in missing(*sys.argv[2:]) if x["part"] % count == jax.process_index()):
        print(scorer(todo), flush=True)
