"""How far to draft. Arithmetic only: no model, no clock, no input or output. A round's decisions cost some 0.1 ms.

To be read in this order: `protocol` (what the loop asks), `auto` (the policy), `round` and `members` (one round: what
is submitted), `asking` (who is asked), `writing` (when a draft stops), `choose` (the rule), `calibration` (from beliefs
to probabilities), `drafter` (what drafters cost and save, when they are asked again), `knowledge` (all of that, and the
texts that run), `machine` and `cost` (what rows cost).
"""
