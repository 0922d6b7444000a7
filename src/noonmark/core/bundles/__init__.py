"""Bundles: a folder of files with a `manifest.json` that says what to run, kept as a zip archive."""
