"""Helpers that every room may import: reading files, JSON out, misspelt names, settings, samplers. Imports no room but
errors and checkpoint.
"""
