"""A simulated Slack: the Web API, Socket Mode and HTTP events, with the workspace behind them."""
