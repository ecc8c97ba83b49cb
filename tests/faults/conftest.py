"""Fixtures of the fault tests."""

from tests.faults.training import undisturbed, undisturbed_run

__all__ = ["undisturbed", "undisturbed_run"]
