"""Heddle package."""
