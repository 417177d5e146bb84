"""Constrained answers: what an answer may still be, and what is forced as a draft."""
