"""Every private name of torch, and of transformers where it is patched, that this frontend uses.

Nowhere else in ``anyjax/torch`` does a private name of theirs occur (``tests/test_house.py`` holds
it), but for operators (``torch.ops``) and ``torch.utils._pytree``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from anyjax.private_names import TARGETS, Target, need, optional, target

VIEWS = "views and in-place writes (functionalization)"
DISPATCH = "lowering operators as they are dispatched"
DECOMPOSE = "torch's own decompositions"
FUNC = "torch.func inside a model"
CONTROL = "torch.cond and the other higher-order operators"
CUSTOM = "torch.autograd.Function"
WEIGHTS = "weights that share memory with torch"
MODULES = "TorchScript and compiled modules"
COMPILE = 'torch.compile(model, backend="anyjax")'

# The engine: tensors, dispatch, functionalization.
FUNCTIONALIZE = need("torch._C.DispatchKey.Functionalize", VIEWS)
AUTOCAST_CPU = need("torch._C.DispatchKey.AutocastCPU", "torch.autocast inside forward")
COMPOSITE = need("torch._C.DispatchKey.CompositeImplicitAutograd", DECOMPOSE)
CPU = need("torch._C.DispatchKey.CPU", "operators of torch.library")
AUTOGRAD = need("torch._C.DispatchKey.Autograd", "operators of torch.library")
DENSE = need("torch._C.DispatchKey.CompositeExplicitAutograd", CONTROL)
TorchDispatchMode: Any = need("torch.utils._python_dispatch.TorchDispatchMode", DISPATCH)
without_modes = need("torch.utils._python_dispatch._disable_current_modes", DISPATCH)
make_wrapper = need("torch.Tensor._make_wrapper_subclass", "tensors around JAX arrays")
forbid_pointer = need("torch._C._set_throw_on_mutable_data_ptr", "tensors around JAX arrays")
no_torch_function = need("torch._C._disabled_torch_function_impl", "tensors around JAX arrays")
no_torch_dispatch = need("torch._C._disabled_torch_dispatch_impl", "subclasses of tensors")
subclasses_are_asked = need("torch._C._is_torch_function_enabled", "subclasses of tensors")
DisableTorchDispatch = need("torch._C._DisableTorchDispatch", "copies of tensors on JAX")
DisableTorchFunction = need("torch._C.DisableTorchFunction", DISPATCH)
DisableTorchFunctionSubclass = need("torch._C.DisableTorchFunctionSubclass", DISPATCH)
function_modes = need("torch.overrides._get_current_function_mode_stack", DISPATCH)
below_autograd = need("torch._C._after_autograd_keyset", WEIGHTS)
BelowAutograd = need("torch._C._AutoDispatchBelowAutograd", "composite operators as a whole")
included_keys = need("torch._C._dispatch_tls_local_include_set", DISPATCH)
excluded_keys = need("torch._C._dispatch_tls_local_exclude_set", DISPATCH)
ForceKeys = need("torch._C._ForceDispatchKeyGuard", DISPATCH)
pop_function_mode = need("torch.overrides._pop_mode", DISPATCH)
push_function_mode = need("torch.overrides._push_mode", DISPATCH)
dispatch_modes = need("torch.utils._python_dispatch._get_current_dispatch_mode_stack", DISPATCH)
pop_dispatch_mode = need("torch.utils._python_dispatch._pop_mode", DISPATCH)
push_dispatch_mode = need("torch.utils._python_dispatch._push_mode", DISPATCH)
is_excluded = need("torch._C._dispatch_tls_is_dispatch_key_excluded", DECOMPOSE)
set_excluded = need("torch._C._dispatch_tls_set_dispatch_key_excluded", DECOMPOSE)
OpOverload: Any = need("torch._ops.OpOverload", DISPATCH)
OpOverloadPacket: Any = need("torch._ops.OpOverloadPacket", DISPATCH)
enable_functionalization = need("torch._enable_functionalization", VIEWS)
disable_functionalization = need("torch._disable_functionalization", VIEWS)
is_functional = need("torch._is_functional_tensor", VIEWS)
constructors = need("torch.utils._device._device_constructors", DISPATCH)
_devices = need("torch.utils:_device", DISPATCH)
may_share_data = need("torch._has_compatible_shallow_copy_type", 'the device "jax" of torchax')
register_device = need("torch._register_device_module", 'the device "jax" of torchax')
accelerator: Any = optional("torch._C._acc", 'the device "jax" of torchax')
DEVICE_TYPE = need("torch._C._autograd.DeviceType.PrivateUse1", 'the device "jax" of torchax')
is_base = need("torch._is_functional_tensor_base", VIEWS)
to_functional = need("torch._to_functional_tensor", VIEWS)
from_functional = need("torch._from_functional_tensor", VIEWS)
sync = need("torch._sync", VIEWS)
replace = need("torch._functionalize_replace", VIEWS)
commit_update = need("torch._functionalize_commit_update", VIEWS)
sync_views = need("torch._functionalize_sync", VIEWS)
was_written = need("torch._functionalize_has_data_mutation", VIEWS)
writes_so_far = need("torch._functionalize_mutation_counter", VIEWS)
functionalized = need("torch._C._dispatch_get_registrations_for_dispatch_key", VIEWS)
graph_task = need("torch._C._current_graph_task_id", "writes through unfold")
output_strides = need("torch._prims_common.compute_elementwise_output_strides", "strides")
get_mkldnn = need("torch._C._get_mkldnn_enabled", "LSTMs and convolutions as whole operators")
python_kernels = need("torch._C._EnablePythonDispatcher", "symbolic sizes")
set_mkldnn = need("torch._C._set_mkldnn_enabled", "LSTMs and convolutions as whole operators")


def default_device() -> Any:
    """Returns torch's default device, None where none was set; its own function makes a tensor."""
    return _devices.CURRENT_DEVICE


def has_kernel(op: Any, *keys: Any) -> bool:
    """Returns whether an operator has a kernel for one of these keys; not one that is TorchScript's
    alone, or was of a library that is gone.
    """
    try:
        return any(map(op.has_kernel_for_dispatch_key, keys))
    except RuntimeError:
        return False


# What torch itself computes operators by.
decompositions = need("torch._decomp.decomposition_table", DECOMPOSE)
IS_PARAMETER = "_is_param"  # what nn.Parameter's instance check asks for
CUSTOM_OPS = optional("torch._library.custom_ops.OPDEFS", "operators of torch.library.custom_op")
PYTHON_KERNELS = optional("torch.library._impls", "operators of torch.library")
check_tensor_all = optional("torch._check_tensor_all", "checks of values (torch._check_tensor_all)")
grouped_mm = optional("torch._grouped_mm", "mixtures of experts")
sample_dirichlet = optional("torch._sample_dirichlet", "torch.distributions.Dirichlet")

# torch.func, torch.autograd and control flow.
level_of = optional("torch._C._functorch.maybe_get_level", FUNC)
unwrapped = optional("torch._C._functorch.get_unwrapped", FUNC)
without_transforms = optional("torch._C._DisableFuncTorch", FUNC)
batch_axis = optional("torch._C._functorch.maybe_get_bdim", FUNC)
add_batch_dim = optional("torch._C._functorch._add_batch_dim", FUNC)
transforms = optional("torch._C._functorch.get_interpreter_stack", FUNC)
VMAP = optional("torch._C._functorch.TransformType.Vmap", FUNC)
custom_function_call = optional("torch._functorch.autograd_function:custom_function_call", FUNC)
_forward_ad = optional("torch.autograd:forward_ad", FUNC)
need("torch.autograd.forward_ad._current_level", FUNC)
SingleLevelFunction = optional("torch.autograd.function._SingleLevelFunction", CUSTOM)
HigherOrderOperator = optional("torch._ops.HigherOrderOperator", CONTROL)
cond_op = optional("torch._higher_order_ops.cond:cond_op", CONTROL)
map_op = optional("torch._higher_order_ops.map:map_impl", CONTROL)
scan_op = optional("torch._higher_order_ops.scan:scan_op", CONTROL)
while_loop_op = optional("torch._higher_order_ops.while_loop:while_loop_op", CONTROL)
flex_attention_op = optional("torch._higher_order_ops.flex_attention:flex_attention", CONTROL)


F = TypeVar("F", bound=Callable)

_frames = need("torch._C._dynamo:eval_frame", COMPILE)
_skip = need("torch._C._dynamo.eval_frame:_FrameAction.SKIP", COMPILE)


def uncompiled(function: F) -> F:
    """Returns a function that ``torch.compile`` runs as it is, with all that it calls."""
    own: Any = function
    own._torchdynamo_disable, own._torchdynamo_disable_msg = True, None
    strategy = _frames._FrameExecStrategy(_skip, _skip)
    _frames.set_code_exec_strategy(own.__code__, strategy)
    return function


@contextlib.contextmanager
def uncompiled_frames() -> Iterator[None]:
    """Runs a block as it is written, where code that ``torch.compile`` watches calls it."""
    watcher = _frames.set_eval_frame(None)
    try:
        yield
    finally:
        _frames.set_eval_frame(watcher)


def forward_level() -> int:
    """Returns how deep in ``torch.func.jvp`` the call is, -1 outside."""
    return _forward_ad._current_level


# Weights.
DispatchKeySet = need("torch._C.DispatchKeySet", WEIGHTS)
ExcludeKeys = need("torch._C._ExcludeDispatchKeyGuard", WEIGHTS)
data_address = need("torch._C._data_address", WEIGHTS)
lazy_clone = need("torch._lazy_clone", WEIGHTS)
storage_users = need("torch._C._storage_Use_Count", WEIGHTS)

# Attributes of objects: nothing to look up before there is one.
ATTRIBUTES = {
    "_schema": DISPATCH,
    "_cdata": VIEWS,
    "_is_view": VIEWS,
    "_base": VIEWS,
    "_version": VIEWS,
    "_backward_hooks": "hooks of tensors",
    "_post_accumulate_grad_hooks": "hooks of tensors",
    "_forward_hooks": "hooks that leave tensors somewhere",
    "_forward_pre_hooks": "hooks that leave tensors somewhere",
    "_wrapped_by_lr_sched": "learning-rate schedules",
    "_opt_called": "learning-rate schedules",
    "_init_fn": "operators of torch.library.custom_op",
    "_backward_fn": "operators of torch.library.custom_op",
    "_setup_context_fn": "operators of torch.library.custom_op",
    "_op_dk": "operators of torch.library",
    "_parameters": "weights",
    "_buffers": "weights",
    "_modules": "weights",
    "_c": MODULES,
    "_concrete_type": MODULES,
    "_orig_mod": MODULES,
    "_torchdynamo_orig_callable": MODULES,
    "_torchdynamo_inline": "torch.jit.script of open sizes",
    "_torchdynamo_disable": COMPILE,
    "_extended_shape": "torch.distributions.Dirichlet",
}

# A flag that engine/ sets during a trace, and functions that compat/ patches.
COMPILING = target("torch.compiler", "_is_compiling_flag", "models that ask whether they compile")
ASKS_COMPILING = target("torch.compiler", "is_compiling", "defaults that are made in eager mode")
CAUSAL_HINT = target(
    "torch.nn.modules.transformer", "_detect_is_causal_mask", "masks of nn.TransformerEncoder"
)
BATCH_NORM = target(
    "torch.nn.modules.batchnorm:_BatchNorm", "forward", "BatchNorm with momentum=None"
)
GAUSSIAN_NLL = target("torch.nn.functional", "gaussian_nll_loss", "gaussian_nll_loss")
EINSUM_PATH = [  # public, so that no version goes without it
    Target(owner, "contract_path", "einsum of open sizes")
    for owner in ("opt_einsum", "opt_einsum.contract:")
]
BATCHED_NMS = Target("torchvision.ops.boxes", "batched_nms", "torchvision's detectors")
DECODED_BOXES = Target(
    "torchvision.models.detection._utils:BoxCoder", "decode", "torchvision's detectors"
)
PASTED_MASKS = Target(
    "torchvision.models.detection.roi_heads", "paste_masks_in_image", "torchvision's detectors"
)
SCRIPT = target("torch:_C.ScriptFunction", "__call__", "torch.jit.script of open sizes")
SDPA = target("torch.nn.functional", "scaled_dot_product_attention", "attention of symbolic length")
FLEX_DEVICE = target("torch.nn.attention.flex_attention", "_validate_device", "flex_attention")
READING = "torch.load inside forward"
LOAD = [target(owner, "load", READING) for owner in ("torch", "torch.serialization")]
SEEDING = "torch.manual_seed inside forward"
MANUAL_SEED = [target(owner, "manual_seed", SEEDING) for owner in ("torch", "torch.random")]
LINEARIZE = target("torch.func", "linearize", "torch.func.linearize inside forward")
MAKE_DUAL = target("torch.autograd.forward_ad", "make_dual", "forward mode inside forward")
AS_SUBCLASS = target("torch:Tensor", "as_subclass", "subclasses of tensors")
MAKE_SUBCLASS = target("torch:Tensor", "_make_subclass", "subclasses of tensors")
DYNAMO_COMPILING = target("torch.compiler", "is_dynamo_compiling", CONTROL)
RUN_BACKWARD = target("torch.autograd", "_engine_run_backward", "torch.autograd inside forward")
MAPPED = target("torch._vmap_internals", "_vmap", "torch.autograd with is_grads_batched")
NEW_PARAMETER = target("torch.nn.parameter:Parameter", "__new__", "nn.Parameter inside forward")
SAVED_HOOKS = target(
    "torch.autograd.graph:saved_tensors_hooks", "__enter__", "hooks of what torch saves"
)
BACKWARD_HOOK = target("torch.nn.modules.module", "BackwardHook", "full backward hooks of modules")
CHECK_ALL = target("torch", "_check_tensor_all_with", "checks of values (torch._check_tensor_all)")
ASSERT_ASYNC = target("torch", "_assert_async", "checks of values (torch._assert_async)")
UNIQUE = target("torch", "unique", "checks that values are alike")
UNIQUE_RUNS = target("torch", "unique_consecutive", "checks that values are alike")
# Whoever imported torch's checkpoint by name gets to this attribute of it, too.
CHECKPOINT = target(
    "torch.utils.checkpoint:checkpoint.__wrapped__", "__dynamo_disable",
    "torch.utils.checkpoint", made_later=True,
)  # fmt: skip
FILL_DIAGONAL = target("torch:Tensor", "fill_diagonal_", "fill_diagonal_")
DISTRIBUTION = target("torch.distributions:Distribution", "__init__", "torch.distributions")
SAMPLE_CHECK = target("torch.distributions:Distribution", "_validate_sample", "torch.distributions")
DIRICHLET = target("torch.distributions:Dirichlet", "rsample", "torch.distributions.Dirichlet")
VON_MISES = target("torch.distributions.von_mises", "_rejection_sample", "VonMises")
TRUNCATED = target("torch.nn.init", "_no_grad_trunc_normal_", "nn.init.trunc_normal_")
INFERENCE, NO_INFERENCE = (
    target("torch.autograd.grad_mode:inference_mode", name, "torch.inference_mode inside forward")
    for name in ("__enter__", "__exit__")
)
APPLIED, FORWARD, SETUP = (
    target("torch.autograd.function:FunctionMeta", name, CUSTOM, made_later=True)
    for name in ("_backward_cls", "forward", "setup_context")
)
_DROPOUTS = ("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_")
# What torch's own Python calls where no mode sees it, and what code calls by these names.
IN_PLACE = [
    *(target("torch._VF", name, f"in-place {name}") for name in _DROPOUTS),
    *(target("torch", name, f"in-place {name}") for name in ("rrelu_", "selu_")),
    target("torch._C._nn", "relu6_", "in-place relu6_"),
]
IN_PLACE_BY_NAME = [
    *(target("torch", name, f"in-place {name}") for name in _DROPOUTS),
    *(target("torch.nn.functional", name, f"in-place {name}") for name in ("rrelu_", "selu_")),
]
QUANTIZED = "fake quantization (torch.ao.quantization)"
FAKE_QUANTIZE = target("torch.ao.quantization.fake_quantize:FakeQuantize", "forward", QUANTIZED)
FUSED = target("torch", "fused_moving_avg_obs_fake_quant", QUANTIZED)
QPARAMS = target(
    "torch.ao.quantization.observer:UniformQuantizationObserverBase",
    "_calculate_qparams",
    QUANTIZED,
)
LIMITS_VALID = target("torch.ao.quantization.observer", "check_min_max_valid", QUANTIZED)
MOVING_AVERAGE = target(
    "torch.ao.quantization.observer:MovingAverageMinMaxObserver", "forward", QUANTIZED
)
PER_CHANNEL = [
    target("torch.ao.quantization.observer:PerChannelMinMaxObserver", "_forward", QUANTIZED),
    target(
        "torch.ao.quantization.observer:MovingAveragePerChannelMinMaxObserver", "forward", QUANTIZED
    ),
]
need("torch.nn.Module._compiled_call_impl", "paths of modules in programs")
need("torch.nn.Module._call_impl", "paths of modules in programs")
Dropout = need("torch.nn.modules.dropout._DropoutNd", "the masks of dropout in anyjax.verify")
CALL_INSTEAD, CALL_MODULE = "_compiled_call_impl", "_call_impl"  # the first, if it is set
PRINTING = "jax.debug inside a torch model"
DEBUG_PRINT = target("jax.debug", "print", PRINTING)
DEBUG_CALLBACK = target("jax.debug", "callback", PRINTING)
MODEL = "a Model inside a torch model"
CALL_MODEL = target("anyjax.model:Model", "__call__", MODEL)
APPLY_MODEL = target("anyjax.model:Model", "apply", MODEL)
EXPERTS = target(
    "transformers.integrations.moe:ExpertsInterface", "get_interface", "mixtures of experts",
    since="5.2",
)  # fmt: skip
MASK_FUNCTION = target(
    "transformers.masking_utils:AttentionMaskInterface", "__getitem__", "masks of unpadded prompts"
)
GROUPED = target("transformers.integrations.sdpa_attention", "use_gqa_in_sdpa", "grouped heads")
PACKED = target(
    "transformers.masking_utils", "find_packed_sequence_indices", "masks of packed sequences"
)
ATTENTION = target(
    "transformers.modeling_utils:AttentionInterface", "get_interface", "masks of unpadded prompts",
    since="5.2",
)  # fmt: skip
# What models asked before.
ATTENTION_BY_NAME = target(
    "transformers.modeling_utils:AttentionInterface", "__getitem__", "masks of unpadded prompts",
    until="5.2",
)  # fmt: skip
IS_TRACING = target(
    "transformers.utils.import_utils", "is_tracing", "checks of values (torch_compilable_check)",
    since="5.0",
)  # fmt: skip
HIDDEN_STATES = target(
    "transformers.utils.output_capturing", "is_torchdynamo_compiling", "recorded hidden states",
    since="5.2",
)  # fmt: skip


def all_masks() -> Any:
    """transformers' mask functions by the name of the attention."""
    return need("transformers.masking_utils:ALL_MASK_ATTENTION_FUNCTIONS", MASK_FUNCTION.feature)


def mask_functions() -> Any:
    """transformers' module of functions that say which columns a row sees."""
    return need("transformers:masking_utils", MASK_FUNCTION.feature)


def attention() -> Any:
    """transformers' attention functions by name."""
    return need("transformers.modeling_utils:ALL_ATTENTION_FUNCTIONS", ATTENTION.feature)


# The methods that initialise a module of torch; the second in MultiheadAttention and Transformer.
RESET = ("reset_parameters", "_reset_parameters")
# Set by transformers on modules with loaded weights, which it then does not initialise.
LOADED = "_is_hf_initialized"


# JAX's expressions of symbolic sizes, whose class has no public name.
def symbols(size: object) -> set[str]:
    """Returns the names of the symbols in a size."""
    return cast(Any, size)._get_vars()


def terms(size: object) -> list[tuple[list[tuple[Any, int]], int]]:
    """Returns a size as a sum: of each product its factors with their powers, and its number."""
    return [(term._factors, times) for term, times in cast(Any, size)._sorted_terms]


def evaluated(size: object, numbers: Mapping[str, object]) -> Any:
    """Returns a size where its symbols are numbers."""
    return cast(Any, size)._evaluate(numbers)


def unsimplified(operation: str, *sizes: object) -> Any:
    """Returns an operation on sizes, of which JAX would assume that they are at least 1."""
    size: Any = next(x for x in sizes if not isinstance(x, int))
    return type(size)._from_operation(operation, *sizes, scope=size.scope)


# Looked up by the first graph: the import of Dynamo takes seconds.
aot_autograd = partial(need, "torch._dynamo.backends.common:aot_autograd", COMPILE)
skip_package = partial(need, "torch._dynamo.trace_rules:add", COMPILE)
dynamo_counters = partial(need, "torch._dynamo.utils:counters", COMPILE)


boxed = partial(need, "torch._functorch.aot_autograd:make_boxed_func", COMPILE)
partition = partial(
    need, "torch._functorch.partitioners:min_cut_rematerialization_partition", COMPILE
)


for _target in TARGETS:
    if _target.package == "torch":
        _ = _target.place
