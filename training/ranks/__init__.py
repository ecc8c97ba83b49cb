"""One rank as a process: meeting the others, signals, hanging, memory."""
