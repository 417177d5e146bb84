"""The APIs that clients use: OpenAI's, Anthropic's, Google's, Ollama's and llama-server's, each with its paths, requests
that are chats in other words, answers and errors. Knows no HTTP.
"""
