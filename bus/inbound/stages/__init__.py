"""The stages of the inbound pipeline, one file each. Their order is in bus/inbound/build.py."""
