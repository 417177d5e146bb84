"""Chat formats: families and pairs of rules, recognition, translation of a target's stream into the draft's format,
prompt rendering.
"""
