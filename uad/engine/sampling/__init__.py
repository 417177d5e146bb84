"""How the target's next id is chosen: parameters to sampler stages, and a last draw that belongs to the position. Knows
no llama.cpp.
"""
