"""Every private name of TensorFlow that this frontend uses; see ``anyjax.private_names``."""

from __future__ import annotations

from anyjax.private_names import need

SCHEMAS = "the schemas of operators"
GRADIENTS = "tf.custom_gradient"

op_def_of = need("tensorflow.python.framework.op_def_registry:get", SCHEMAS)
gradient_registry = need("tensorflow.python.framework.ops:gradient_registry", GRADIENTS)
graph_of_function = need(
    "tensorflow.python.framework.function_def_to_graph:function_def_to_graph", GRADIENTS
)
execute = need("tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute", "values known while tracing")
eager_context = need("tensorflow.python.eager.context:context", "values known while tracing")
NotOk = need("tensorflow.python.eager.core:_NotOkStatusException", "values known while tracing")

# Attributes of objects.
ATTRIBUTES = {"_functions": GRADIENTS}
