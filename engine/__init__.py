"""What does happen: a torch decoder under the real policies, behind an OpenAI-compatible API."""
