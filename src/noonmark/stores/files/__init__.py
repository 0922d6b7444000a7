"""Files of tenants in a folder of this machine."""

from noonmark.stores.files.uploads import UploadFolder

__all__ = ["UploadFolder"]
