"""Python functions of torch's own that read a tensor's values, or that only Dynamo may call."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from anyjax import warn_once
from anyjax.errors import DataDependent, LostGradient, Unsupported
from anyjax.torch.aliasing import in_place
from anyjax.torch.autograd import backward, custom_function, hooks, requires_grad
from anyjax.torch.compat.patches import replaces
from anyjax.torch.control_flow.higher_order import checkpoint
from anyjax.torch.core import diagnostics, dispatcher, private, pytrees, sizes
from anyjax.torch.core.lifting import inner, is_traced
from anyjax.torch.core.tensor import JaxTensor
from anyjax.torch.data_dependent import assertions

ONE = torch.ones(1, 1)
LARGE = 1009


@replaces(*private.LOAD)
def load(original, *args, **kwargs):
    """Returns what is in a file, as constants: what torch makes of its bytes, it makes outside."""
    with dispatcher.plain():
        return original(*args, **kwargs)


@replaces(*private.MANUAL_SEED)
def manual_seed(original, seed):
    """Seeds the default generator, that of the trace: torch's wrapper imports all of Dynamo."""
    return torch.default_generator.manual_seed(int(seed))


@replaces(private.CAUSAL_HINT, probe=lambda: encoder()(ONE[None]))
def detect_is_causal_mask(original, mask, is_causal=None, size=None):
    """Returns the hint that a mask is causal: the mask itself says it, too."""
    return is_causal is True


@replaces(private.BATCH_NORM, probe=lambda: nn.BatchNorm1d(1)(ONE))
def batch_norm(original, self, input):
    """Returns a cumulative average (momentum=None); torch makes the batch count a Python float."""
    if not (self.training and self.track_running_stats and self.momentum is None):
        return original(self, input)
    old_statistics = self.running_mean.clone(), self.running_var.clone()
    self.momentum = 1.0
    try:
        out = original(self, input)
    finally:
        self.momentum = None
    for buffer, old in zip((self.running_mean, self.running_var), old_statistics):
        buffer.copy_(old + (buffer - old) / self.num_batches_tracked)
    return out


@replaces(private.GAUSSIAN_NLL, probe=lambda: nn.GaussianNLLLoss()(ONE, ONE, ONE))
def gaussian_nll_loss(original, input, target, var, full=False, eps=1e-6, reduction="mean"):
    """torch first checks that no variance is negative."""
    if not isinstance(var, torch.Tensor):
        return original(input, target, var, full, eps, reduction)
    if var.size() != input.size() and input.size()[:-1] == var.size():
        var = var.unsqueeze(-1)
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    loss = loss + 0.5 * math.log(2 * math.pi) if full else loss
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


@replaces(private.SDPA)
def scaled_dot_product_attention(original, *args, **kwargs):
    """Returns whether a length is more than 1, as a bool: torch's parser takes nothing else."""
    if isinstance(kwargs.get("is_causal"), torch.SymBool):
        kwargs["is_causal"] = bool(kwargs["is_causal"])
    return original(*args, **kwargs)


@replaces(private.SCRIPT)
def scripted(original, self, *args, **kwargs):
    """Runs a scripted function, by its Python where sizes are open: scripts count with numbers."""
    leaves, _ = pytrees.flatten((args, kwargs))
    if any(sizes.symbolic(x.shape if isinstance(x, torch.Tensor) else [x]) for x in leaves):
        return getattr(self, "_torchdynamo_inline", partial(original, self))(*args, **kwargs)
    return original(self, *args, **kwargs)


@replaces(*private.EINSUM_PATH)
def contract_path(original, equation, *operands, shapes=False, **options):
    """Returns the order in which einsum multiplies; an open size is taken for a large one."""
    lengths = operands if shapes else [getattr(x, "shape", ()) for x in operands]
    if not isinstance(equation, str) or not any(map(sizes.symbolic, lengths)):
        return original(equation, *operands, shapes=shapes, **options)
    large = {str(n): LARGE + i for i, n in enumerate(n for x in lengths for n in x)}
    stand_ins = [tuple(large[str(n)] if sizes.symbolic(n) else n for n in x) for x in lengths]
    first, rest = original(equation, *stand_ins, shapes=True, **options)
    return ([*operands] if options.get("einsum_call") else first), rest


@replaces(
    private.DYNAMO_COMPILING, probe=lambda: torch.cond(ONE.sum() > 0, torch.sin, torch.cos, (ONE,))
)
def is_dynamo_compiling(original):
    """torch's control flow calls Dynamo unless Dynamo calls it; then it goes to its operator."""
    asking = sys._getframe(2).f_globals.get("__name__", "")
    return original() or asking.startswith(("torch._higher_order_ops", "torch.nn.attention"))


@replaces(private.LINEARIZE)
def linearize(original, func, *primals) -> tuple:
    """torch traces a graph of dual numbers, which JAX's tracers do not get into."""
    return func(*primals), lambda *tangents: torch.func.jvp(func, primals, tangents)[1]


@replaces(private.MAKE_DUAL)
def make_dual(original, tensor, tangent, **kwargs):
    """Dual numbers of torch.func are served, by its own levels; those of torch's autograd, which
    is off, would have no tangents.
    """
    if private.is_functional(tensor) and not private.transforms():
        raise Unsupported(
            "torch.autograd.forward_ad.make_dual inside forward",
            where=diagnostics.where(),
            why="torch's autograd is off while JAX traces: the tangents would be lost",
            do="call torch.func.jvp(function, primals, tangents), or torch.func.linearize",
        )
    return original(tensor, tangent, **kwargs)


@replaces(private.FLEX_DEVICE)
def any_device(original, query, key, value) -> None:
    """torch's kernel for CPUs has no gradient; JAX's program does."""


@replaces(private.CHECK_ALL, probe=lambda: private.check_tensor_all(ONE > 0))
def check_tensor_all_with(original, error_type, cond, message=None):
    """torch reads the condition; where it is traced, the program does."""
    try:
        original(error_type, cond, message)
    except DataDependent:
        assertions.note(cond)


@replaces(private.ASSERT_ASYNC)
def assert_async(original, input, *message):
    """It raises where the condition is known."""
    original(input, *message)
    if isinstance(inner(input), JaxTensor):
        assertions.note(input)


@replaces(private.UNIQUE, private.UNIQUE_RUNS)
def unique(original, input, *args, **kwargs):
    """Returns one value where a check asks whether there are more (assertions.py)."""
    is_alone = not args and not kwargs and is_traced(input)
    if not is_alone or not assertions.alike_at(sys._getframe(2)):
        return original(input, *args, **kwargs)
    assertions.left_out(3)
    return input.reshape(-1)[:1]


@replaces(private.FILL_DIAGONAL)
def fill_diagonal_(original, self, fill_value, wrap=False):
    """Returns the one in-place operator that functionalization does not know."""
    if self.dim() > 1 and len(set(self.shape)) > 1 and self.dim() != 2:
        return original(self, fill_value, wrap)  # raises
    row, *columns = torch.meshgrid(*map(torch.arange, self.shape), indexing="ij")
    row = row % (self.shape[-1] + 1) if wrap else row
    return self.masked_fill_(torch.stack([row == i for i in columns]).all(0), fill_value)


@replaces(private.INFERENCE, probe=lambda: torch.inference_mode()(torch.sin)(ONE))
def enter_inference(original, self):
    """Tensors of inference have no versions, which functionalization needs: only no gradients."""
    self.gradients = torch.set_grad_enabled(not self.mode)


@replaces(private.NO_INFERENCE, probe=lambda: torch.inference_mode()(torch.sin)(ONE))
def exit_inference(original, self, *error):
    """As before it."""
    self.gradients.__exit__(*error)


replaces(
    private.RUN_BACKWARD, probe=lambda: torch.autograd.grad(leaf() * 2, leaf(), allow_unused=True)
)(backward.run_backward)
replaces(
    private.MAPPED,
    probe=lambda: torch.autograd.functional.jacobian(torch.sin, ONE[0], vectorize=True),
)(backward.mapped)
replaces(private.NEW_PARAMETER, probe=lambda: nn.Parameter(ONE))(requires_grad.parameter)


@replaces(private.BACKWARD_HOOK, probe=lambda: hooked_module()(leaf()))
def backward_hook(original, *args):
    """Returns the hook class of a module that has full backward hooks."""
    return hooks.BackwardHook(*args)


@replaces(private.SAVED_HOOKS)
def saved_tensors_hooks(original, self):
    """Warns that JAX keeps values as they are; ``save_on_cpu`` keeps them elsewhere, unchanged."""
    if not isinstance(self, torch.autograd.graph.save_on_cpu):
        warn_once.warn(
            "torch.autograd.graph.saved_tensors_hooks are not called: gradients are those of the "
            f"values themselves, not of what the hooks make of them ({diagnostics.where()})",
            LostGradient,
        )
    return original(self)


def leaf() -> torch.Tensor:
    """Returns a tensor that requires a gradient."""
    return torch.ones(1, 1, requires_grad=True)


def hooked_module() -> nn.Module:
    """Returns a module with a full backward hook."""
    module = nn.Identity()
    module.register_full_backward_hook(lambda *args: None)
    return module


def encoder() -> nn.Module:
    """Returns the smallest of its kind."""
    layer = nn.TransformerEncoderLayer(1, 1, 1, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


replaces(
    private.CHECKPOINT,
    probe=lambda: torch.utils.checkpoint.checkpoint(torch.sin, ONE, use_reentrant=False),
)(checkpoint)


class Twice(torch.autograd.Function):
    """For the probes of ``apply``."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


for _target, _replacement in (
    (private.APPLIED, custom_function.backward_class),
    (private.FORWARD, custom_function.forward),
    (private.SETUP, custom_function.setup_context),
):
    replaces(_target, probe=lambda: Twice.apply(ONE), of_classes=True)(_replacement)

IN_PLACE: dict[str, Callable] = {
    "dropout_": F.dropout,
    "alpha_dropout_": F.alpha_dropout,
    "feature_dropout_": F.dropout2d,
    "feature_alpha_dropout_": F.feature_alpha_dropout,
    "rrelu_": F.rrelu,
    "selu_": F.selu,
    "relu6_": F.relu6,
}


for _target in private.IN_PLACE:
    _probe = partial(IN_PLACE[_target.name], ONE[None, None], inplace=True)
    replaces(_target, probe=_probe)(in_place.computed)
replaces(*private.IN_PLACE_BY_NAME)(in_place.computed)
