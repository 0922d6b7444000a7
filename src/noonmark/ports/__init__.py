"""What the driver and the operations need of the world, as protocols."""
