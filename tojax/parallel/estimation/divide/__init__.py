"""The division of a program over a mesh: labels of dimensions, specs of values, collectives."""
