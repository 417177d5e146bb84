"""The loop: what is drafted, decoded, drawn and committed. Knows no llama.cpp and no socket."""
