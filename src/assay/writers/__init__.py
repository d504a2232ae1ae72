"""Folders on disk: written under a temporary name, complete or not at all."""
