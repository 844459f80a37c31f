"""The settings of an environment."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Configuration:
    """Settings by torchax's names.

    Attributes:
      debug_print_each_op: prints each operator to standard error.
      debug_print_each_op_operands: prints its operands, too.
      treat_cuda_as_jax_device: whether the device "cuda" is "jax".
      debug_accuracy_for_each_op, debug_mixed_tensor, use_int32_for_index,
        allow_mixed_math_with_scalar_tensor, force_materialize_views,
        use_dlpack_for_data_conversion, internal_respect_torch_return_dtypes: read by nothing here.
        dtypes are always torch's, tensors without dimensions mix with those on JAX, and
        ``anyjax.verify`` compares models layer by layer.
    """

    debug_print_each_op: bool = False
    debug_accuracy_for_each_op: bool = False
    debug_mixed_tensor: bool = False
    debug_print_each_op_operands: bool = False
    use_int32_for_index: bool = False
    allow_mixed_math_with_scalar_tensor: bool = True
    force_materialize_views: bool = False
    use_dlpack_for_data_conversion: bool = False
    treat_cuda_as_jax_device: bool = True
    internal_respect_torch_return_dtypes: bool = False
