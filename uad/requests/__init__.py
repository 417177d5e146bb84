"""From a request's body to what the runtime is asked: fields checked, prompts tokenized, constraints compiled. Knows no
HTTP and no form of an answer.
"""
