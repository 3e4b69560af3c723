"""Who may talk to the bot: access policy, pairings, and the record of decisions."""
