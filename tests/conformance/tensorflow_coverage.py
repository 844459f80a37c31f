"""What ``anyjax ops --tensorflow`` says of operators without a row: which are numbers at all, and
which of them TensorFlow's bridge to XLA compiles.

python tests/conformance/tensorflow_coverage.py       # writes anyjax/tensorflow/coverage.json
"""

from __future__ import annotations

import importlib
import json
import re
from collections import defaultdict
from pathlib import Path

import tensorflow as tf

FILE = Path(__file__).parents[2] / "anyjax" / "tensorflow" / "coverage.json"
# The first that an operator's name has a part of, else what its tensors are.
NAMES = {
    "data pipelines": r"Dataset|Iterator|Optional|SeedGenerator|MemoryCache|ParseEx|ParseS|Record|"
    r"CompressElement|GetElementAtIndex|IterationCounter|WindowOp|GetOptions|ComputeBatchSize",
    "TPUs and collectives": r"TPU|XlaSparse|SparseCore|Infeed|Outfeed|Csr|Prelin|Minibatch|Shard|"
    r"GlobalIter|Collective|Nccl|AllToAll|CrossReplica|Send$|Recv$|AllReduce|ReduceScatter|Spmd|"
    r"ReplicaId|SyncDevice|ConcatND|SplitND|Worker|RemoteCall",
    "summaries and debugging": r"Summary|StatsAgg|Debug|Print|ImportEvent|Timestamp|Abort",
    "queues, stages, sessions": r"Queue|Stage|stage|Barrier$|^Barrier|Accumulator|Mutex|Session|"
    r"^(Ordered)?Map(Clear|Size|Peek|Incom)|^Batch$|^BatchFunction|^Unbatch|ThreadPool|"
    r"TemporaryVariable",
    "estimators": r"BoostedTrees|Sdca|CandidateSampler|KMC2|Kmeans|AccidentalHits|Remap|^Fact$",
    "sparse and ragged": r"Sparse|CSR|Ragged|Coo|DenseTo|Set(Size|Operation)",
    "cuDNN": r"Cudnn",
    "Python": r"PyFunc",
    "graphs of TF1": r"^(Enter|Exit|LoopCond|Merge|NextIteration|Switch|Placeholder(V2)?)$",
}
TYPES = {
    "strings, files, tables": tf.string,
    "resources": tf.resource,
    "variants": tf.variant,
}


def kind_of(op: str, definition) -> str:
    """The class of an operator; "numeric" for those that this package is for."""
    for name, pattern in NAMES.items():
        if re.search(pattern, op):
            return name
    arguments = [*definition.input_arg, *definition.output_arg]
    if any(x.is_ref for x in arguments):
        return "references of TF1"
    held = {x.type for x in arguments}
    for name, dtype in TYPES.items():
        if dtype.as_datatype_enum in held:
            return name
    allowed = [x.allowed_values.list.type for x in definition.attr if x.type == "type"]
    if any(types and all(tf.as_dtype(t).is_quantized for t in types) for types in allowed):
        return "quantized kernels"
    return "numeric"


def compiled() -> set[str]:
    """The operators that TensorFlow has a kernel of the bridge for, once it has compiled any."""
    kernels = importlib.import_module("tensorflow.python.framework.kernels")
    importlib.import_module("tensorflow.compiler.tf2xla.ops.gen_xla_ops")
    run = tf.function(lambda x: x + 1, jit_compile=True)
    run.experimental_get_compiler_ir(tf.TensorSpec([2], tf.float32))(stage="stablehlo")
    devices: dict[str, set[str]] = defaultdict(set)
    for kernel in kernels.get_all_registered_kernels().kernel:
        devices[kernel.op].add(kernel.device_type)
    return {op for op, found in devices.items() if "XLA_CPU_JIT" in found}


def coverage() -> dict[str, list[str]]:
    """The operators of ``tf.raw_ops`` and XLA's own by class; "bridge": those it computes."""
    from anyjax.tensorflow.core.private import op_def_of
    from anyjax.tensorflow.core.schema import stateful

    xla = compiled()
    names = {op for op in dir(tf.raw_ops) if not op.startswith("_")}
    names |= {op for op in xla if op.startswith("Xla")}
    found: dict[str, list[str]] = defaultdict(list)
    for op in sorted(names):
        found[kind_of(op, op_def_of(op))].append(op)
        if op in xla and not stateful(op):
            found["bridge"].append(op)
    return dict(sorted(found.items()))


def main():
    FILE.write_text(json.dumps(coverage(), indent=0) + "\n")


if __name__ == "__main__":
    main()
