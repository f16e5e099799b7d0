"""The nouns and the plumbing that every package is written in; it imports nothing of ours."""

VERSION = "0.1.0"
