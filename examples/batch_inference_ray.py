"""The same job as batch_inference.py, with Ray Data: it starts workers on a cluster's machines, and
others in their place when they die; the part that one was at is done again.

    pip install "anyjax[ray]"
    python examples/batch_inference_ray.py MODEL texts.jsonl out

Model, input and output lie where all machines see them. A worker is a process with its own model.
"""

import os
import sys

import ray
from batch_inference import Scorer, missing

if __name__ == "__main__":
    model, source, out = sys.argv[1:]
    shared = [os.path.abspath(x) if os.path.exists(x) else x for x in (model, source)]
    todo = missing(source, out)
    ray.init()  # where RAY_ADDRESS says, or two workers' worth of this machine
    if todo:
        done = ray.data.from_items(todo, override_num_blocks=len(todo)).map(
            Scorer,
            fn_constructor_args=(*shared, os.path.abspath(out)),
            compute=ray.data.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=1),
            num_cpus=1,  # num_gpus=1 gives each a GPU of its own
        )
        for row in done.iter_rows():
            print(row, flush=True)
