"""Uploads: receiving, storing, listing and deleting files, and converting documents to text."""
