import sys

from noonmark.targets.functions import Functions


class Book:
    def turn(self):
        return "page"


class Unhashable:
    __hash__ = None

    def __call__(self):
        return "called"


def test_a_method_is_found_under_its_name_again():
    functions, book = Functions(), Book()
    functions.register("turn", book.turn)
    assert functions.name_of(book.turn) == "turn"
    assert functions.name_of(Book().turn) is None


def test_a_name_that_went_to_another_function_is_not_the_first_ones():
    functions, first, second = Functions(), Book().turn, Book().turn
    functions.register("turn", first)
    functions.register("turn", second)
    assert functions.name_of(first) is None
    assert functions.find("turn").call == second


def test_what_cannot_be_a_key_is_offered_all_the_same():
    functions, call = Functions(), Unhashable()
    functions.register("odd", call)
    assert functions.name_of(call) is None
    assert functions.routes() == ("function:odd",)


def test_a_module_that_cannot_be_imported_is_tried_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting_imports.py").write_text(
        "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nraise OSError\n"
    )
    monkeypatch.setattr(sys, "tries", 0, raising=False)
    functions = Functions()
    assert not functions.adopt("function:counting_imports:work")
    assert not functions.adopt("function:counting_imports:work")
    assert sys.tries == 1
