"""The verbs of the `gristmill` command, by what they work on; heavy imports stand inside them."""
