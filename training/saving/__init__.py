"""How a checkpoint is taken, written and known again."""
