"""Schedules: messages and runs at times that people choose."""
