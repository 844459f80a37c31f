"""Similar classes merged into one, with arguments for their differences."""
