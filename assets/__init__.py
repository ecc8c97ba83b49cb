"""The asset graph, its checks and automation, and the `gristmill` command."""
