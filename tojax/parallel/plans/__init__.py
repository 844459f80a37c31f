"""Plans: which dimension of which weight lies on which axis of a mesh."""
