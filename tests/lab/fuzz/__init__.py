"""Generated hostile input for every parser: each input is made from a seed, a target and a number alone."""
