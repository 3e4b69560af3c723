"""Who may talk to the bot: access policy, rate limits, and the record of decisions."""
