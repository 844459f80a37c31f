"""torch's own database of modules against anyjax: outputs and state, in eval and in train mode.

python tests/conformance/module_db.py                   # all modules
python tests/conformance/module_db.py '.*Norm.*' -v     # modules whose name matches in full
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import sys
import warnings
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import torch
from torch.testing._internal.common_modules import module_db

import anyjax
from tests.conformance.compare import compare, error_of, shapes, tensors_in

SAMPLES = 10
MODES = {"eval": False, "train": True}
# Without gradients torch's fast path for encoders gives zeros where the input is padding; with them
# it does not.
torch.backends.mha.set_fastpath_enabled(False)


def check(info, sample, training: bool) -> str | None:
    """What is wrong with one module under jit, None if nothing."""
    torch.manual_seed(0)
    made, given = sample.constructor_input, sample.forward_input
    module = info.module_cls(*made.args, **made.kwargs).to(torch.float32).train(training)
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        module(*given.args, **given.kwargs)  # its first call makes the parameters
    model = anyjax.from_torch(module)
    run = lambda params, state, key: model.apply(
        params, *given.args, state=state, rng=key, mutable=True, **given.kwargs
    )
    out, state = jax.jit(run)(model.params, model.state, jax.random.key(0))
    with torch.no_grad():
        first = module(*given.args, **given.kwargs)
        buffers = {k: v.clone() for k, v in module.named_buffers()}
        torch.manual_seed(1)
        again = module(*given.args, **given.kwargs) if training else first
    if not all(map(torch.equal, tensors_in(first), tensors_in(again))) and not buffers:
        return None if shapes(first) == shapes(out) else f"shapes {shapes(out)}"  # it is random
    if wrong := compare(first, out):
        return wrong
    return next((f"{k}: {e}" for k, v in buffers.items() if (e := error_of(v, state[k]))), None)


def run(info, training: bool) -> tuple[str, str]:
    """("ok" | "wrong" | "error" | "skip", what happened)"""
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
    )
    samples = [s for s in samples if s.forward_input is not None]
    samples = samples[:: -(-len(samples) // SAMPLES) or 1]  # spread over what the entry offers
    seen = 0
    for i, sample in enumerate(samples):
        try:
            wrong = check(info, sample, training)
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0]
            return "error", f"sample {i}: {type(e).__name__}: {first}"[:230]
        if wrong:
            return "wrong", f"sample {i}: {wrong}"
        seen += 1
    return ("ok", "") if seen else ("skip", "no sample with inputs")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", default=".*")
    parser.add_argument("-v", action="store_true", help="print modules that are right, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for mode, training in MODES.items():
        counts = collections.Counter()
        for info in module_db:
            if not re.fullmatch(options.pattern, info.name):
                continue
            status, what = run(info, training)
            counts[status] += 1
            if status != "ok" or options.v:
                print(f"{mode:5} {status:6} {info.name:40} {what}", flush=True)
            jax.clear_caches()
        print(mode, dict(counts))


if __name__ == "__main__":
    main()
