"""What is seen of a run: times, norms, speed, the early report, MLflow."""
