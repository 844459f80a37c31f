"""Python text: templates, expressions, sizes, indices, and how they read best."""
