"""Texts and tokens: vocabularies, chat templates, translation, tool calls, constraints. No model runs here."""
