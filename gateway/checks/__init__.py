"""Checks of `parley check` and `parley doctor`: folders, models, references and this machine; and their report."""
