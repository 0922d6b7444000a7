"""What users and stores need to test against Noonmark; nothing that runs in production imports it."""
