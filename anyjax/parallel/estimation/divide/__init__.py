"""The division of a program over a mesh: specs of values, collectives."""
