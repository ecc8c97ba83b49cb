"""Which sample comes when, and its tokens. NumPy only."""
