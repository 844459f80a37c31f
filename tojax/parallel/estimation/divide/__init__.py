"""How a mesh divides a program: labels of dimensions, partitions, collectives."""
