"""Ways to spread the decoder over processes, and to compute it in less memory or time."""
