"""The APIs that clients use: OpenAI's, Anthropic's, Ollama's and llama-server's forms of answers and errors, and
requests that are chats in other words. Knows no HTTP.
"""
