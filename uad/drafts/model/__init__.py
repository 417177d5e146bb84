"""Where guesses come from. Every drafter follows the protocol in `protocol.py`; none sees the target's
context, a request, or another drafter.
"""
