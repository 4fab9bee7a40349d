"""What several policies share: programmes, rounds, prices, leases."""
