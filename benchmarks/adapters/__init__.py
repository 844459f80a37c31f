"""Ways to run a model; each module has those of these functions that it has an answer to.

``forward(module, inputs)``, ``generate(module, ids, new)`` and ``keras(function, x)`` return a
function without arguments that returns numpy; ``train(module)`` returns a step of Adam, from ids to
the loss.
"""

RATE = 1e-3
