"""torch.compile with Inductor, which needs a compiler of C++."""

from adapters import torch_eager_


def forward(module, inputs):
    module.compile()
    return torch_eager_.forward(module, inputs)


def generate(module, ids, new):
    """A static cache, as a compiled step needs one."""
    module.compile()
    return torch_eager_.generate(module, ids, new, cache_implementation="static")


def train(module):
    module.compile()
    return torch_eager_.train(module)
