"""What a caller may ask for. Every change reads a snapshot, decides, and commits on condition."""
