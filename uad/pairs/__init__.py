"""Files of models without llama.cpp: which a folder holds, what headers say, which draft suits which target."""
