"""Drafters that need no model: what was written before, in the text, in earlier answers or in a request's prediction,
is looked up and drafted again.
"""
