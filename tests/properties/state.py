"""What a conversion, a call or a failure must leave as it was."""

from __future__ import annotations

from typing import Any

import torch

from anyjax.torch.compat import patches
from anyjax.torch.core import current_trace, private
from anyjax.torch.core.lifting import CONSTANTS


def of_process() -> dict[str, Any]:
    """Returns torch's switches and modes, what is patched, and the generators."""
    hooks = torch.nn.modules.module
    stacks = [torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()]
    return {
        "patched": {t: vars(t.place).get(t.name) for t in patches.PATCHES if t.loaded},
        "modes": stacks,
        "tracing": current_trace.active(),
        "constants": len(CONSTANTS),
        "compiling": bool(torch.compiler.is_compiling()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": torch.is_autocast_enabled("cpu"),
        "kernels": (private.get_mkldnn(), torch.backends.mha.get_fastpath_enabled()),
        "hooks": [len(vars(hooks)[k]) for k in vars(hooks) if k.startswith("_global_")
                  and hasattr(vars(hooks)[k], "__len__")],
        "random": torch.get_rng_state().tolist(),
    }  # fmt: skip


def of_module(module: torch.nn.Module) -> dict[str, Any]:
    """Returns the attributes of all submodules, and tensors with values and gradients."""
    attributes: dict[str, Any] = {}
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            inner = value.items() if isinstance(value, dict) else [("", value)]
            attributes |= {f"{path}.{name}.{k}": (id(x), type(x)) for k, x in inner}
            if type(value) in (bool, int, float, str, tuple):
                attributes[f"{path}.{name}"] = repr(value)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    facts = lambda x: (
        x._version,
        x.requires_grad,
        x.grad is None,
        x.dtype,
        len(x._backward_hooks or ()),
    )
    return {
        "attributes": attributes,
        "tensors": {k: (id(x), facts(x)) for k, x in tensors.items()},
        "values": {k: x.detach().float().numpy().tobytes() for k, x in tensors.items()},
    }
