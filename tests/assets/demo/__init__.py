"""Tests of assets/demo."""
