"""Slots in files: what is in one, what goes in and out of the models' memories, and when that happens."""
