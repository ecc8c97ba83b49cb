"""The parts of the decoder: attention, feed-forward blocks and experts, values, losses."""
