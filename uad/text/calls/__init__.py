"""Tool calls and thoughts in the text of an answer: what they look like in each format, and a parser that finds them as
they arrive.
"""
