"""TLS: the certificate of the server, read again when its files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

logger = logging.getLogger("noonmark.serve")


class Certificate:
    """A certificate with its key, in two files."""

    def __init__(self, certificate: str, key: str) -> None:
        """A ValueError says which file is wrong."""
        self._certificate, self._key = certificate, key
        self.context = self._load(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
        self._stamp = self._file_stamps()

    def reload(self) -> None:
        """Use the files for new connections if they have changed; invalid ones are reported, and the old pair stays."""
        stamp = self._file_stamps()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            # A context keeps its old pair if the new files do not belong together, so they are tried on another first.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
        except ValueError as error:
            logger.warning("the certificate was not read again, the old one stays: %s", error)
        else:
            logger.info("the certificate was read again")

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # The password function refuses an encrypted key instead of waiting for input.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            reason = error.reason or "they are not a certificate and its key"
            raise ValueError(f"{self._certificate} and {self._key} cannot be used: {reason}") from None
        except OSError as error:
            raise ValueError(f"{self._certificate} and {self._key} cannot be read: {error.strerror}") from None
        return context

    def _file_stamps(self) -> tuple[object, ...]:
        return tuple(_file_stamp(file) for file in (self._certificate, self._key))


def _file_stamp(file: str) -> tuple[int, int] | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
