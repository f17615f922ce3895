"""Real clusters: their API servers listed and watched, and what follows from that recorded.

Needs the extra `live` (lightkube).
"""
