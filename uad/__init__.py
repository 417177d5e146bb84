"""uad: universal assisted decoding. Any small GGUF draft model speeds up any GGUF target, whatever the two tokenizers
are.

Importing the package loads nothing heavy: llama.cpp is bound by `uad.llama`.
"""

__version__ = "0.1.0"
