"""Bundles: unpacked once per node, and started in a copy of their files."""
