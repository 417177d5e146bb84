"""The costs of contexts in this machine's memory and of decodes in its time: computed, measured and stored. Decides
nothing about drafts.
"""
