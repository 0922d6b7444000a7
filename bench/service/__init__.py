"""What a caller of `noonmark serve` feels: real servers on the loopback interface, asked from another process."""
