"""What the model may do: files, handing over, asking back; and the tools of the configuration."""
