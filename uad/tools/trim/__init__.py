"""A smaller draft: the part of its vocabulary that a corpus uses, and the rows of its matrices that belong to it.

A draft's vocabulary need not match the target's, because drafts are compared as bytes. Knows files and numbers: nothing
of llama.cpp, of the runtime or of the terminal.
"""
