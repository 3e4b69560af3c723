"""Who may do what, in which language, with which session."""
