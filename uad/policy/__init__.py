"""How far to draft. Arithmetic only: no model, no clock, no input or output."""
