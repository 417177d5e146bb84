"""A folder of models behind one address: which there are, the process of each that is loaded, and how requests get
there. Knows neither llama.cpp nor how a request is answered.
"""
