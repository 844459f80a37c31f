"""torch.compile with anyjax beside eager torch and Inductor, in turns in one process: ratios.

OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/torch_compile.py [--backends anyjax inductor]

Inference and a step of training (SGD) of a ResNet, a GPT-2 and a BERT on one core: other work on a
machine disturbs threads that wait for each other, and the processor's time on one core hardly.
Values are compared first. Inductor needs a compiler of C++. With --sizes, steps of training on
batches of many sizes: seconds for all of them, compilation included, beside what one takes at last.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import torch
import torch._dynamo
import transformers as t
from torch._dynamo.utils import counters

import anyjax.torch

RATES = ("resid_pdrop", "embd_pdrop", "attn_pdrop")


def ids(rows: int = 4, length: int = 128) -> torch.Tensor:
    return torch.randint(2, 1000, (rows, length))


def resnet():
    config = t.ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[2, 2, 2, 2], layer_type="basic",
        num_labels=10,
    )  # fmt: skip
    inputs = {"pixel_values": torch.randn(4, 3, 128, 128), "labels": torch.arange(4)}
    return t.ResNetForImageClassification(config), inputs


def gpt2():
    config = t.GPT2Config(
        vocab_size=1000, n_embd=256, n_layer=4, n_head=4, n_positions=128, bos_token_id=1,
        eos_token_id=1, loss_type="ForCausalLM", **dict.fromkeys(RATES, 0.0),
    )  # fmt: skip
    text = ids()
    return t.GPT2LMHeadModel(config), {"input_ids": text, "labels": text, "use_cache": False}


def bert():
    config = t.BertConfig(
        vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    text = ids()
    inputs = {"input_ids": text, "labels": text, "attention_mask": torch.ones_like(text)}
    return t.BertForMaskedLM(config), inputs


def compiled(model, backend: str):
    if backend == "eager":
        return model
    return torch.compile(
        model, backend=anyjax.torch.compile_backend if backend == "anyjax" else backend
    )


def inference(model, function, inputs):
    model.eval()

    def run():
        with torch.no_grad():
            return function(**inputs).logits

    return run


def training(model, function, inputs):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def run():
        optimizer.zero_grad()
        loss = function(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return run


def seconds(run) -> float:
    """The processor's time."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(make, mode, backends: list[str], rounds: int) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = make()
    copies = {backend: copy.deepcopy(model) for backend in ("eager", *backends)}
    runs = {k: mode(x, compiled(x, k), inputs) for k, x in copies.items()}
    values, first = {}, {}
    for name, run in runs.items():
        start = time.perf_counter()
        values[name] = run()
        first[name] = time.perf_counter() - start
        torch.testing.assert_close(values[name], values["eager"], rtol=1e-3, atol=1e-4)
        run()
    times = [{name: seconds(run) for name, run in runs.items()} for _ in range(rounds)]
    for name in backends:
        ratio = statistics.median(x[name] / x["eager"] for x in times)
        steady = statistics.median(x[name] for x in times)
        print(
            f"| {make.__name__} | {mode.__name__} | {name} | {first[name]:.1f} "
            f"| {1e3 * steady:.1f} | {ratio:.2f} |",
            flush=True,
        )


def batches(count: int) -> list[dict[str, object]]:
    """Texts of 2 to 8 rows and 16 to 128 tokens."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda low, high: int(torch.randint(low, high + 1, (), generator=generator))
    texts = [ids(draw(2, 8), draw(16, 128)) for _ in range(count)]
    return [{"input_ids": x, "labels": x, "use_cache": False} for x in texts]


def measure_sizes(name: str, count: int) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model, _ = gpt2()
    options = {"buckets": name == "buckets"} if name in ("buckets", "sizes") else {}
    backend = anyjax.torch.compile_backend if options else "inductor"
    function = model if name == "eager" else torch.compile(model, backend=backend, **(
        {"options": options} if options else {}
    ))  # fmt: skip
    inputs = batches(count)
    start = time.perf_counter()
    for x in inputs:
        training(model, function, x)()
    total = time.perf_counter() - start
    last = statistics.median(seconds(training(model, function, x)) for x in inputs[-15:])
    programs = counters["anyjax"]["programs"]
    print(f"| {name} | {total:.0f} | {1e3 * last:.0f} | {programs or ''} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--backends", nargs="+", default=["anyjax", "inductor"])
    parser.add_argument("--sizes", type=int, help="how many batches of many sizes")
    options = parser.parse_args()
    if options.sizes:
        print("| GPT-2, training | seconds | a step then, ms | programs |", flush=True)
        for name in ("eager", "buckets", "sizes", *set(options.backends) - {"anyjax"}):
            measure_sizes(name, options.sizes)
        return
    print("| model | | backend | first call, s | call, ms | to eager |", flush=True)
    for make in (resnet, gpt2, bert):
        for mode in (inference, training):
            measure(make, mode, options.backends, options.rounds)


if __name__ == "__main__":
    main()
