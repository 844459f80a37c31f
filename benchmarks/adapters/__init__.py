"""Each module: forward(module, ids) and generate(module, ids, new) return a function that returns
numpy.
"""
