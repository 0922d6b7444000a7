"""Read one policy out of a schedule document, as `parse_schedule` does, and show what was found wrong."""

from noonmark.core.documents import Reader


def read(reading, document, *arguments, **settings):
    """The value, and the message for each field that has a problem; no field may have two."""
    problems = []
    reader = Reader(document, path="", code="invalid_schedule", problems=problems)
    value = reading(reader, *arguments, **settings)
    reader.close()
    found = {problem.field: problem.message for problem in problems}
    assert len(found) == len(problems), problems
    return value, found
