"""The torchrun program: model, parallelism, data, optimiser, guards, checkpoints, export."""
