"""The result of a comparison, and its page."""
