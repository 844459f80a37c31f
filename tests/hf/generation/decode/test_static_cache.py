"""The cache inside the decoding loop."""

import re

import numpy as np
import pytest

import anyjax
from anyjax.hf.generation.decode import programs
from anyjax.hf.generation.job.job import Job
from anyjax.hf.generation.request.request import build_request
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)


@pytest.mark.parametrize("batch, heads", [(1, 2), (3, 2), (3, 1)])
def test_the_loop_copies_no_cache(batch, heads):
    module = tiny.llama(num_key_value_heads=heads)
    model, ids = anyjax.from_torch(module), tiny.ids(length=16, batch=batch)
    job = Job(model, build_request(module, ids, {"max_new_tokens": 8}), None, None, None)
    _, stays, carry = job.prefill(job.plan)
    along = programs.extended(job.along, job.plan.total)
    ends = np.int32(job.last), np.int32(job.last)
    arrays = programs.decode.bound(model).arrays(model)
    lower = programs.decode.of(model).lower
    program = lower(arrays, carry, stays, along, *ends, job.picker, job.plan)
    loop = program.compile().as_text().partition("\nENTRY")[0]
    cache = rf"f32\[[\d,]*{job.plan.total},{module.config.head_dim}\]\S*"
    assert re.search(rf"= {cache} fusion\(.*dynamic_update_slice", loop)
    assert not re.findall(rf"= {cache} copy\(", loop)
