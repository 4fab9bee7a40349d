"""What a snapshot says to people: which GPUs are free and linked, what fits now, which requests cost GPU time. Pure."""
