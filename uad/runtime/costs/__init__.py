"""What contexts take of this machine's memory and decodes of its time: computed, measured and stored. Decides nothing
about drafts.
"""
