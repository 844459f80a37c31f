"""From a file to one evaluation."""
