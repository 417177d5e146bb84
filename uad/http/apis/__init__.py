"""The APIs that clients use, each with its paths, requests that are chats in other words, answers and errors: OpenAI's,
Anthropic's, Google's, Ollama's and llama-server's. Knows no HTTP.
"""
