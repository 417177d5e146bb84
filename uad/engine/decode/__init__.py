"""The decode loop: slots, sequences, verification, text. Knows the target and the drafter by their protocols only."""
