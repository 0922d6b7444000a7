"""Settings of a server: flags, then `NOONMARK_*` variables, then a TOML file, then defaults; each knows its source."""

from noonmark.config.loading import DEFAULT_FILE, Loaded, load
from noonmark.config.settings import SETTINGS, Setting, Settings

__all__ = ["DEFAULT_FILE", "SETTINGS", "Loaded", "Setting", "Settings", "load"]
