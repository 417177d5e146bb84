"""A package, so that its browser ends behind its last test."""
