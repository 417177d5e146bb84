"""Ids to bytes and back: tables, safe boundaries, encoding through a cache, translation between two
vocabularies. Knows no model and no llama.cpp.
"""
