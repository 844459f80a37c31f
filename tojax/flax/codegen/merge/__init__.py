"""Classes that are alike become one, with arguments for what differs."""
