"""Values and times on the GPU or TPU of this machine, beside torch there and JAX by hand.

python benchmarks/accelerator.py                      # all cases; some minutes
python benchmarks/accelerator.py --cases values,prefill
python benchmarks/accelerator.py --tiny               # small arrays: does it run? on a CPU, too

values    attention by the device's kernel beside float32, with gradients
prefill   a Llama of 1.2 billion params in bfloat16, 4 x 2048 tokens
train     a step of AdamW of the same
decode    128 tokens after 128, one text
resnet    ResNet-50 in bfloat16, 32 pictures

Each line is JSON: milliseconds (the best of ten), seconds of the first call, megabytes of
temporaries. torch runs where it has the device.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
import traceback

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch is beside it

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import transformers

import anyjax
from anyjax.numerics import attention
from anyjax.numerics.attention import plain

LLAMA = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}
LLAMA |= {"num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY |= {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 256}
ROUNDS = 10


def say(**entry):
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in entry.items()}
    print(json.dumps(shown), flush=True)


def timed(call, wait, rounds=ROUNDS):
    """(seconds of the first call, best milliseconds of the others)."""
    start = time.perf_counter()
    wait(call())
    first, best = time.perf_counter() - start, float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        wait(call())
        best = min(best, 1e3 * (time.perf_counter() - start))
    return first, best


def jax_case(case, way, function, *args):
    lowered = jax.jit(function).lower(*args)
    start = time.perf_counter()
    compiled = lowered.compile()
    compiling = time.perf_counter() - start
    memory = compiled.memory_analysis().temp_size_in_bytes / 1e6
    first, best = timed(lambda: compiled(*args), jax.block_until_ready)
    say(case=case, way=way, ms=best, compile_s=compiling, first_s=first, temp_mb=memory)


def torch_case(case, way, function):
    if torch.cuda.is_available():
        first, best = timed(function, lambda _: torch.cuda.synchronize())
        say(case=case, way=way, ms=best, first_s=first)


def values(tiny):
    """The largest errors, relative to the largest value: by the kernel, and by the formula."""
    rng, length = np.random.default_rng(0), 256 if tiny else 1024
    limits = [{}, {"causal": True}, {"causal": True, "window": 100}, {"causal": True, "cap": 20.0}]
    padding = jnp.arange(length) < np.array([[length], [length - 37]])
    for width in (16, 64) if tiny else (16, 64, 128, 256):
        for heads, keys in ((4, 4), (8, 2)):
            shapes = [(2, n, length, width) for n in (heads, keys, keys, heads)]
            arrays = [jnp.asarray(rng.normal(size=s), jnp.bfloat16) for s in shapes]
            for limit in limits:
                for masks in ((), (padding[:, None, None],)):
                    found, *errors = compared(limit, arrays, masks)
                    about = {"width": width, "heads": heads, "masked": bool(masks), **limit}
                    say(case="values", kernel=found, error=errors[0], formula=errors[1], **about)


def compared(limits, arrays, masks):
    """(kernels in the program, its largest error, that of the formula), gradients included."""
    *arrays, cotangent = arrays
    form = attention.form_of(arrays[0], **limits)
    exact = attention.Form(form.scale, **limits, precision="highest")

    def with_gradients(run, *arrays):
        out, pull = jax.vjp(lambda *x: run(*x, *masks), *arrays)
        return out, *pull(cotangent.astype(out.dtype))

    def compiled(run, *arrays):
        return jax.jit(lambda *x: with_gradients(run, *x)).lower(*arrays).compile()

    wide = [x.astype(jnp.float32) for x in arrays]
    wanted = compiled(lambda *x: plain.attend(exact, *x)[0], *wide)(*wide)
    kernel = compiled(lambda *x: attention.attend(form, *x), *arrays)
    formula = compiled(lambda *x: plain.attend(form, *x)[0], *arrays)
    off = lambda got: max(
        float(jnp.abs(a.astype(jnp.float32) - b).max() / jnp.abs(b).max())
        for a, b in zip(got, wanted)
    )
    found = [x for x in ("cudnn", "tpu_custom_call") if x in kernel.as_text()]
    return found, off(kernel(*arrays)), off(formula(*arrays))


def llama(tiny):
    config = transformers.LlamaConfig(**(TINY if tiny else LLAMA), max_position_embeddings=8192)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        # by its own dtype: .to(torch.bfloat16) would round the frequencies of the positions, too
        module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    batch = (2, 128) if tiny else (4, 2048)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, batch)
    return module, ids


def attend(q, k, v, kernel):
    """Causal attention of [batch, length, heads, width] by the kernel of a GPU or a TPU."""
    if kernel != "splash":
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=kernel)
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    q, k, v = (x.swapaxes(1, 2) for x in (q * q.dtype.type(q.shape[-1] ** -0.5), k, v))
    mask = splash.MultiHeadMask([splash.CausalMask((q.shape[2],) * 2)] * q.shape[1])
    run = splash.make_splash_mha(mask=mask, head_shards=1, q_seq_shards=1)
    return jax.vmap(run)(q, k, v).swapaxes(1, 2)


def by_hand(config, p, ids, kernel=None):
    """Logits of all positions, as an expert would write it, with the device's kernel."""
    heads, keys = config.num_attention_heads, config.num_key_value_heads
    width = config.hidden_size // heads
    angle = jnp.arange(ids.shape[1])[:, None] / 10000.0 ** (jnp.arange(0, width, 2) / width)
    cos, sin = (jnp.tile(f(angle), 2)[:, None].astype(jnp.bfloat16) for f in (jnp.cos, jnp.sin))
    dense = lambda x, w: jax.lax.dot_general(x, w, (((x.ndim - 1,), (1,)), ((), ())))

    def rotate(t):
        one, two = jnp.split(t, 2, -1)
        return t * cos + jnp.concatenate([-two, one], -1) * sin

    def norm(x, weight):
        wide = x.astype(jnp.float32)
        scale = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + config.rms_norm_eps)
        return (wide * scale).astype(x.dtype) * weight

    x = p["model.embed_tokens.weight"][ids]
    kernel = kernel or {"gpu": "cudnn", "tpu": "splash"}.get(jax.default_backend())
    for i in range(config.num_hidden_layers):
        w = {k.split(".", 3)[3]: v for k, v in p.items() if k.startswith(f"model.layers.{i}.")}
        h = norm(x, w["input_layernorm.weight"])
        split = lambda kind, n, h=h, w=w: dense(h, w[f"self_attn.{kind}_proj.weight"]).reshape(
            *h.shape[:2], n, width
        )
        q, k, v = rotate(split("q", heads)), rotate(split("k", keys)), split("v", keys)
        h = attend(q, k, v, kernel)
        x = x + dense(h.reshape(x.shape), w["self_attn.o_proj.weight"])
        h = norm(x, w["post_attention_layernorm.weight"])
        gate = jax.nn.silu(dense(h, w["mlp.gate_proj.weight"]))
        x = x + dense(gate * dense(h, w["mlp.up_proj.weight"]), w["mlp.down_proj.weight"])
    return dense(norm(x, p["model.norm.weight"]), p["lm_head.weight"])


def prefill(tiny):
    module, ids = llama(tiny)
    model = anyjax.from_torch(module.cpu())
    run = lambda params, ids: model.apply(params, input_ids=ids, use_cache=False).logits
    jax_case("prefill", "anyjax", run, model.params, ids)
    hand = lambda params, ids: by_hand(module.config, params, ids)
    jax_case("prefill", "by hand", hand, model.params, ids)
    got, want = (jax.jit(f)(model.params, ids[:1]).astype(jnp.float32) for f in (run, hand))
    say(case="prefill", off_by_hand=float(jnp.abs(got - want).max() / jnp.abs(want).max()))
    del got, want
    if torch.cuda.is_available():
        module, there = module.cuda(), torch.from_numpy(ids).cuda()
        call = lambda f: torch.no_grad()(lambda: f(input_ids=there, use_cache=False).logits)
        torch_case("prefill", "torch eager", call(module))
        torch_case("prefill", "torch.compile", call(torch.compile(module)))


def train(tiny):
    module, ids = llama(tiny)
    model = anyjax.from_torch(module.cpu())
    tx = optax.adamw(1e-4)

    def step(run, params, state, ids):
        def loss(params):
            logits = run(params, ids)[:, :-1].astype(jnp.float32)
            return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    ways = {
        "anyjax": lambda p, ids: model.apply(p, input_ids=ids, use_cache=False).logits,
        "by hand": lambda p, ids: by_hand(module.config, p, ids),
    }
    for way, run in ways.items():
        run_step = lambda *args, run=run: step(run, *args)
        jax_case("train", way, run_step, model.params, tx.init(model.params), ids)
        gc.collect()
    if torch.cuda.is_available():
        del model
        gc.collect()
        module, there = module.cuda().train(), torch.from_numpy(ids).cuda()
        optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)

        def torch_step(module):
            module(input_ids=there, labels=there, use_cache=False).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        torch_case("train", "torch eager", lambda: torch_step(module))
        compiled = torch.compile(module)
        torch_case("train", "torch.compile", lambda: torch_step(compiled))


def decode(tiny):
    module, ids = llama(tiny)
    new, prompt = (8, ids[:1, :16]) if tiny else (128, ids[:1, :128])
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    model = anyjax.from_torch(module.cpu())
    options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    call = lambda: anyjax.generate(model, prompt, **options)
    first, best = timed(call, np.asarray, 3)
    rate = size * new / best / 1e6
    say(case="decode", way="anyjax", tokens_s=1e3 * new / best, first_s=first, weights_gb_s=rate)
    if torch.cuda.is_available():
        module, there = module.cuda(), torch.from_numpy(prompt).cuda()
        call = lambda: module.generate(there, **options)
        first, best = timed(call, lambda _: torch.cuda.synchronize(), 3)
        say(case="decode", way="transformers", tokens_s=1e3 * new / best, first_s=first)


def resnet(tiny):
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    module = module.to(torch.bfloat16).eval()
    size = (2, 3, 64, 64) if tiny else (32, 3, 224, 224)
    pixels = jnp.asarray(np.random.default_rng(0).normal(size=size), jnp.bfloat16)
    model = anyjax.from_torch(module)
    run = lambda params, state, x: model.apply(params, state=state, pixel_values=x).logits
    jax_case("resnet", "anyjax", run, model.params, model.state, pixels)
    if torch.cuda.is_available():
        module, there = module.cuda(), torch.randn(size, dtype=torch.bfloat16, device="cuda")
        call = lambda f: torch.no_grad()(lambda: f(pixel_values=there).logits)
        torch_case("resnet", "torch eager", call(module))
        torch_case("resnet", "torch.compile", call(torch.compile(module)))


CASES = {f.__name__: f for f in (values, prefill, train, decode, resnet)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES), help="with commas")
    parser.add_argument("--tiny", action="store_true", help="small arrays")
    options = parser.parse_args()
    device = jax.devices()[0]
    say(device=device.device_kind, jax=jax.__version__, torch=torch.__version__)
    for name in options.cases.split(","):
        start = time.perf_counter()
        try:
            CASES[name](options.tiny)
        except Exception:  # the others are worth having
            say(case=name, failed=traceback.format_exc()[-1500:])
        say(case=name, seconds=time.perf_counter() - start)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
