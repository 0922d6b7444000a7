"""What carries out the work, one module for each kind of target."""
