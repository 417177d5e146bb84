"""All drafters: a draft model of any vocabulary, and look-ups that need none."""
