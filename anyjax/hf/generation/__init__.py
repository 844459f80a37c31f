"""Text from a model.

``request`` reads the options of a call, ``job`` chooses how to decode and returns the output,
``decode`` has the programs and caches. ``saved_loop`` is the loop of a loaded model.
"""
