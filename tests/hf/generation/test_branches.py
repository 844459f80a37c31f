"""Generation with models that branch on values."""

import numpy as np
import torch

import anyjax
from tests.models import tiny


def test_both_ways_are_in_the_program():
    def look(module, args, kwargs):
        ids = kwargs["input_ids"]
        if (ids % 2 == 0).any():
            ids = torch.where(ids == 4, 5, ids)
        return args, kwargs | {"input_ids": ids}

    module = tiny.build("llama")[0]
    module.register_forward_pre_hook(look, with_kwargs=True)
    model, ids = anyjax.from_torch(module), tiny.ids(5, 2)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    got = anyjax.generate(model, ids.numpy(), **options)
    np.testing.assert_array_equal(got, module.generate(ids, **options).numpy())
