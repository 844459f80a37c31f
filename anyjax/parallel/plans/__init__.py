"""Plans: the axis of a mesh that divides each dimension of each weight."""
