"""Bundles for tests: zip files in memory."""

import io
import json
import zipfile

SMALLEST = {"name": "eval", "command": ["python", "job.py"]}
JOB = "print('hello')\n"


def packed(manifest=None, files=None):
    """A zip file with a manifest and other files, by name; None leaves a file out."""
    contents = {"manifest.json": json.dumps(manifest or SMALLEST), "job.py": JOB, **(files or {})}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            if content is not None:
                info = zipfile.ZipInfo(name)  # without the present time: the same files are the same archive
                info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
                archive.writestr(info, content)
    return stream.getvalue()
