"""Models of atoms for simulators: energy, forces and stress as programs that need no framework.

``quantities`` is what a model may ask for and what it gives, ``functions`` energy and its
derivatives of a structure; ``writing`` tries them on a few atoms and writes the folder.
``potential`` reads it; ``neighbors`` finds edges, ``calls`` checks the arrays of a call, and
``bridges`` serves simulators. Weights are constants here, unlike elsewhere: a simulator hands over
positions and nothing else.
"""
