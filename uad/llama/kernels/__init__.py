"""uad's kernels for this machine's processors (the package uad-kernels): loaded, proven, and handed to llama.cpp."""
