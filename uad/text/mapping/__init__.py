"""Chat formats as data: which one a model has, and the rules that turn a target's stream into the draft's format."""
