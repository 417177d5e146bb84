"""The only room that imports llama_cpp: thin owners of native handles. Knows no drafting, no requests and no text."""
