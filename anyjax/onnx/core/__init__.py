"""The registry, and the forms of nodes and graphs, that all rooms of this frontend share."""
