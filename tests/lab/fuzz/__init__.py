"""Generated hostile input for every parser: each input depends only on a seed, a target and a number."""
