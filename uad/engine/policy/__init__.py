"""How far to draft. Arithmetic only: no model, no clock, no input or output. A round's decisions cost some 0.1 ms."""
