"""Functions, branches, loops and gradients inside of a graph."""
