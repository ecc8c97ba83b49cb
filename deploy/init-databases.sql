-- Runs once, when the Postgres volume is empty: MLflow's database beside Dagster's.
CREATE DATABASE mlflow;
