"""A request on its way to the runtime: its body checked, prompts tokenized, constraints compiled, its sequences run.
Knows no HTTP and no form of an answer.
"""
