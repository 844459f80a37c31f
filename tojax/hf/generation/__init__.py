"""Text from a model: what a call asks for, its programs and caches, the choice of every token.

From a call to its tokens: ``request`` (options), ``job`` (buffers, the way of decoding), ``trust``
(which ways are right for a model), ``decode`` (the programs), ``runner`` (one call of the model in
them), ``processors`` and ``stopping`` (scores and ends).
"""
