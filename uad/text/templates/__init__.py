"""A model's own chat template: rendered in a sandbox, with every message's text in the prompt. Knows no vocabulary."""
