"""The schemas of ``com.microsoft``: the package ``onnx`` has none of them.

A line is an operator's inputs (``?`` after optional ones, ``*`` after the last one that may be
several), then its attributes with their defaults (``-`` for none, ``!`` for required ones); what is
indented goes on with the line above. A test compares them with onnxruntime's own.
"""

from __future__ import annotations

from ast import literal_eval

from anyjax.table import REQUIRED, Param

SCHEMAS = """
Attention input weights bias? mask_index? past? attention_bias? past_sequence_length? do_rotary=-
  mask_filter_value=- num_heads=! past_present_share_buffer=- qkv_hidden_sizes=-
  rotary_embedding_dim=- scale=- unidirectional=0
BiasAdd X bias skip
BiasDropout data bias residual? ratio? training_mode? seed=-
BiasGelu A B
BiasSoftmax data bias axis=1 is_inner_broadcast=!
BiasSplitGelu X bias
CDist A B metric='sqeuclidean'
ComplexMul A B
ComplexMulConj A B
CropAndResize X rois batch_indices crop_size extrapolation_value=0.0 mode='bilinear'
DequantizeLinear x x_scale x_zero_point? axis=-
DynamicQuantizeLSTM X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale
  R_zero_point activation_alpha=- activation_beta=- activations=- clip=- direction='forward'
  hidden_size=- input_forget=0
DynamicQuantizeMatMul A B b_scale b_zero_point? bias?
EmbedLayerNormalization input_ids segment_ids? word_embedding position_embedding
  segment_embedding? gamma beta mask? position_ids? epsilon=1e-12 mask_index_type=-
ExpandDims X axis
FastGelu X bias?
FusedConv X W B? Z? activation=- activation_params=- auto_pad='NOTSET' dilations=- group=1
  kernel_shape=- pads=- strides=-
FusedGemm A B C? activation=- activation_alpha=- activation_beta=- activation_gamma=- alpha=1.0
  beta=1.0 transA=0 transB=0
FusedMatMul A B alpha=1.0 transA=0 transB=0 transBatchA=0 transBatchB=0
FusedMatMulActivation A B activation=! activation_alpha=- activation_axis=- activation_beta=-
  activation_gamma=- alpha=1.0 transA=0 transB=0 transBatchA=0 transBatchB=0
GatherBlockQuantized data indices scales zero_points? bits=4 block_size=128 gather_axis=0
  quantize_axis=1
GatherND data indices
Gelu X
GemmFastGelu X W bias?
GemmaRotaryEmbedding emb q q_rot k k_rot
GroupNorm X gamma beta activation=! channels_last=1 epsilon=1e-05 groups=!
GroupQueryAttention query key? value? past_key? past_value? seqlens_k total_sequence_length
  cos_cache? sin_cache? position_ids? attention_bias? head_sink? k_scale? v_scale? q_norm_weight?
  k_norm_weight? query_seqlens? causal=1 do_rotary=- k_norm_epsilon=- k_quant_type='NONE'
  kv_cache_bit_width=- kv_num_heads=! local_window_size=-1 num_heads=! q_norm_epsilon=-
  qk_norm_epsilon=1e-06 qk_output=0 rotary_interleaved=- scale=- sliding_window_cache=0
  smooth_softmax=-1 softcap=- v_quant_type='NONE'
Inverse X
Irfft X normalized=0 onesided=1 signal_ndim=!
IsAllFinite input* isinf_only=0 isnan_only=0
MatMulBnb4 A B absmax K=! N=! block_size=! quant_type=! training_mode=0 transB=1
MatMulIntegerToFloat A B a_scale b_scale a_zero_point? b_zero_point? bias?
MatMulNBits A B scales zero_points? g_idx? bias? K=! N=! accuracy_level=0 bits=4 block_size=!
  weight_prepacked=0
MultiHeadAttention query key? value? bias? key_padding_mask? attention_bias? past_key? past_value?
  past_sequence_length? cache_indirection? mask_filter_value=- num_heads=! scale=-
  unidirectional=0
NhwcConv X W B? auto_pad='NOTSET' dilations=- group=1 kernel_shape=- pads=- strides=-
NhwcFusedConv X W B? Z? activation=- activation_params=- auto_pad='NOTSET' dilations=- group=1
  kernel_shape=- pads=- strides=-
NhwcMaxPool x auto_pad='NOTSET' ceil_mode=0 dilations=- kernel_shape=! pads=- strides=-
Pad data pads value? mode='constant'
QAttention input weight bias input_scale weight_scale mask_index? input_zero_point?
  weight_zero_point? past? do_rotary=- mask_filter_value=- num_heads=! past_present_share_buffer=-
  scale=- unidirectional=0
QGemm A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? alpha=1.0 transA=0
  transB=0
QLinearAdd A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?
QLinearAveragePool X x_scale x_zero_point? y_scale y_zero_point? auto_pad='NOTSET' ceil_mode=0
  channels_last=0 count_include_pad=0 kernel_shape=! pads=- strides=-
QLinearConcat Y_scale Y_zero_point inputs* axis=!
QLinearConv x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?
  auto_pad='NOTSET' channels_last=0 dilations=- group=1 kernel_shape=- pads=- strides=-
QLinearGlobalAveragePool X x_scale x_zero_point y_scale y_zero_point channels_last=0
QLinearLeakyRelu X X_scale X_zero_point? Y_scale Y_zero_point? alpha=0.01
QLinearMul A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?
QLinearReduceMean data data_scale data_zero_point? reduced_scale reduced_zero_point? axes=!
  keepdims=!
QLinearSigmoid X X_scale X_zero_point? Y_scale Y_zero_point?
QLinearSoftmax X X_scale x_zero_point? y_scale y_zero_point axis=-1 opset=!
QLinearWhere condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point
QuantizeLinear x y_scale y_zero_point? axis=-
QuickGelu X alpha=1.702
Range start limit delta?
RelativePositionBias bias_table query_length key_length is_bidirectional=0 max_distance=!
Rfft X normalized=0 onesided=1 signal_ndim=1
RotaryEmbedding input position_ids cos_cache sin_cache interleaved=- is_packed_batching=-
  num_heads=- rotary_embedding_dim=- scale=-
SimplifiedLayerNormalization X scale axis=-1 epsilon=1e-05 stash_type=1
SkipGroupNorm X gamma beta skip bias? activation=! channels_last=1 epsilon=1e-05 groups=!
SkipLayerNormalization input skip gamma beta? bias? epsilon=1e-12
SkipSimplifiedLayerNormalization input skip gamma bias? epsilon=1e-12
TransposeMatMul A B alpha=1.0 transA=0 transB=0
Trilu X k? upper=1
Unique x
"""

# What onnxruntime's optimizer writes into ONNX's own domain, in any opset: what it stands for.
IN_ONNX = {
    "LayerNormalization": ("", "LayerNormalization", 17),
    "SimplifiedLayerNormalization": ("com.microsoft", "SimplifiedLayerNormalization", 1),
}


def _parse(line: str) -> tuple[str, list[Param]]:
    name, *words = line.split()
    return name, [_param(word) for word in words]


def _param(word: str) -> Param:
    name, equals, default = word.partition("=")
    if equals:
        special = {"-": None, "!": REQUIRED}
        value = special[default] if default in special else literal_eval(default)
        return Param(name, "value", value)
    kind = "arrays" if name.endswith("*") else "array"
    return Param(name.rstrip("?*"), kind, None if name.endswith("?") else REQUIRED)


OPERATORS = dict(map(_parse, SCHEMAS.strip().replace("\n ", "").splitlines()))


def params(name: str) -> list[Param]:
    """Returns the inputs and attributes of an operator.

    Example:
      >>> [(p.name, p.default) for p in params("FastGelu")][1]
      ('bias', None)
    """
    return OPERATORS[name]
