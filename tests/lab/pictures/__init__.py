"""The pictures of the documentation, generated from the real program: `make pictures` writes docs/pictures."""
