"""Definitions of workflows from functions and classes."""

from datetime import timedelta

import pytest

from noonmark import InvalidSchedule, InvalidWorkflow, Retry, step, workflow
from noonmark.core.workflows.definition import parse_definition
from noonmark.embedded.step_functions import (
    DefinitionBuilder,
    WorkflowOptions,
    options_of,
    steps_of_class,
    steps_of_list,
)


def build(*steps, **options):
    """The definition of a list of steps, which the parser accepts."""
    builder = DefinitionBuilder(lambda func: func.__name__)
    document = builder.definition("w", steps_of_list(steps), WorkflowOptions(**options))
    parse_definition(document)
    return document


def step_of(document, step_id):
    return next(one for one in document["steps"] if one["id"] == step_id)


def function(name, **more):
    return {"target_kind": "function", "function": name, "args": [], "kwargs": {}, **more}


def fetch(day):
    return day


def total(fetch):
    return fetch


class TestParameters:
    def test_one_that_names_a_step_gets_its_result_and_the_others_are_inputs(self):
        def report(total, fetch, title: str, *, copies: int = 2, context=None):
            return total, fetch, title, copies, context

        document = build(fetch, total, report)
        assert document == {
            "workflow_id": "w",
            "inputs": {"day": {}, "title": {"type": "string"}, "copies": {"type": "integer", "default": 2}},
            "steps": [
                {"id": "fetch", "target": function("fetch"), "input": {"day": "{{ inputs.day }}"}},
                {
                    "id": "total",
                    "target": function("total"),
                    "depends_on": ["fetch"],
                    "input": {"fetch": "{{ steps.fetch.result }}"},
                },
                {
                    "id": "report",
                    "target": function("report"),
                    "depends_on": ["total", "fetch"],
                    "input": {
                        "total": "{{ steps.total.result }}",
                        "fetch": "{{ steps.fetch.result }}",
                        "title": "{{ inputs.title }}",
                        "copies": "{{ inputs.copies }}",
                    },
                },
            ],
        }

    @pytest.mark.parametrize(
        ("annotation", "expected"),
        [
            (str, "string"),
            ("int", "integer"),
            (float, "number"),
            (bool, "boolean"),
            ("dict", "object"),
            (list, "array"),
            (timedelta, None),
            ("str | None", None),
        ],
    )
    def test_annotations_are_types_of_inputs(self, annotation, expected):
        def work(x):
            return x

        work.__annotations__["x"] = annotation
        assert build(work)["inputs"]["x"].get("type") == expected

    def test_a_default_that_is_not_json_is_left_to_python(self):
        def work(x=object(), *args, **kwargs):  # noqa: B008 - any object
            return x, args, kwargs

        assert build(work) == {
            "workflow_id": "w",
            "inputs": {},
            "steps": [{"id": "work", "target": function("work")}],
        }

    def test_steps_share_an_input(self):
        def other(day: str = "monday"):
            return day

        assert build(fetch, other)["inputs"] == {"day": {"type": "string", "default": "monday"}}

    def test_what_is_said_about_an_input_counts(self):
        inputs = {"day": {"type": "string", "description": "Which"}, "more": 5}
        assert build(fetch, inputs=inputs)["inputs"] == inputs

    def test_a_builtin_without_a_signature(self):
        assert step_of(build(print), "print")["target"] == function("print")


class TestOptions:
    def test_all_of_them(self):
        def undo(fetch, work, day):
            return fetch, work, day

        @step(
            after=[total, "fetch"],
            retries=Retry(2, timedelta(seconds=5), on=OSError),
            timeout=timedelta(minutes=1),
            when={"steps.total.result": {"gt": 1}, "inputs.really": True},
            compensate=undo,
        )
        def work():
            return 1

        document = build(fetch, total, work)
        assert document["inputs"] == {"day": {}, "really": {}}
        assert step_of(document, "work") == {
            "id": "work",
            "target": function("work"),
            "depends_on": ["total", "fetch"],
            "when": {"steps.total.result": {"gt": 1}, "inputs.really": True},
            "retry": {"max_attempts": 3, "backoff_seconds": 5, "on": ["OSError"]},
            "timeout_seconds": 60,
            "compensate": function(
                "undo",
                kwargs={
                    "fetch": "{{ steps.fetch.result }}",
                    "work": "{{ steps.work.result }}",
                    "day": "{{ inputs.day }}",
                },
            ),
        }

    @pytest.mark.parametrize(
        ("for_each", "text", "upstreams"),
        [
            (fetch, "{{ steps.fetch.result }}", ["fetch"]),
            ("fetch", "{{ steps.fetch.result }}", ["fetch"]),
            ("{{ steps.fetch.result.rows }}", "{{ steps.fetch.result.rows }}", ["fetch"]),
            ("rows", "{{ inputs.rows }}", None),
            ("{{ inputs.rows }}", "{{ inputs.rows }}", None),
            ((1, 2), [1, 2], None),
        ],
    )
    def test_for_each(self, for_each, text, upstreams):
        @step(for_each=for_each, concurrency=3)
        def work(item, index):
            return item, index

        document = build(fetch, work)
        made = step_of(document, "work")
        assert (made["for_each"], made.get("depends_on"), made["concurrency"]) == (text, upstreams, 3)
        assert made["input"] == {"item": "{{ item }}", "index": "{{ index }}"}
        assert ("rows" in document["inputs"]) == ("inputs.rows" in str(text))

    def test_documents_stand_beside_functions(self):
        pause = {"id": "pause", "wait": {"until": "{{ inputs.until }}"}, "depends_on": ["fetch"]}
        undo = {"target_kind": "event", "event_type": "undone"}

        @step(after="pause", compensate=undo)
        def work():
            return 1

        document = build(fetch, pause, work)
        assert document["inputs"] == {"day": {}, "until": {}}
        assert step_of(document, "pause") == pause
        assert step_of(document, "work")["compensate"] == undo

    def test_a_function_stays_what_it_is(self):
        assert step(fetch) is fetch
        assert step(retries=0)(total)("x") == "x"


class TestReferences:
    @pytest.mark.parametrize(
        "target", [fetch, {"target_kind": "function", "function": fetch}], ids=["function", "document"]
    )
    def test_functions_in_definitions(self, target):
        builder = DefinitionBuilder(lambda func: f"m:{func.__name__}")
        given = {
            "workflow_id": "w",
            "steps": ({"id": "a", "target": target, "input": {"day": 1}, "compensate": total},),
        }
        document = builder.with_references(given)
        [made] = document["steps"]
        assert (made["target"], made["compensate"]) == (function("m:fetch"), function("m:total"))
        assert builder.functions == {"m:fetch": fetch, "m:total": total}
        assert given["steps"][0]["target"] is target

    @pytest.mark.parametrize("bad", [{}, {"steps": 5}, {"steps": [5]}, {"steps": [{"id": "a", "target": 5}]}])
    def test_what_is_wrong_is_left_to_the_parser(self, bad):
        assert DefinitionBuilder(str).with_references(bad) == bad

    def test_arguments_that_do_not_fit_the_function(self):
        builder = DefinitionBuilder(lambda func: func.__name__)
        with pytest.raises(InvalidSchedule, match="missing a required argument: 'day'"):
            builder.with_references({"steps": [{"id": "a", "target": fetch}]})


class TestClasses:
    def test_functions_and_step_documents_are_steps(self):
        class Base:
            def first():
                return 1

        class Etl(Base):
            limit = 5
            settings = {"a": 1}  # noqa: RUF012 - never changed

            def _helper():
                return 0

            @staticmethod
            def second(first):
                return first

            pause = {"wait": {"seconds": 1}}  # noqa: RUF012 - never changed

            @step
            def _third(second):  # noqa: N805
                return second

        assert list(steps_of_class(Etl)) == ["first", "second", "pause", "_third"]

    def test_a_class_says_more_about_its_workflow(self):
        @workflow("etl", on_failure="continue")
        class Etl:
            pass

        @workflow
        class Other:
            pass

        assert options_of(Etl) == WorkflowOptions(workflow_id="etl", on_failure="continue")
        assert options_of(Other) == WorkflowOptions()
        assert WorkflowOptions(name="n").over(options_of(Etl)) == WorkflowOptions(
            workflow_id="etl", name="n", on_failure="continue"
        )

    def test_only_a_class_is_one(self):
        with pytest.raises(InvalidWorkflow, match="must be a class"):
            workflow("etl")(fetch)


def with_self(self):
    return self


def positional(day, /):
    return day


def of_itself(of_itself):
    return of_itself


def other_day(day="tuesday"):
    return day


def typed_day(day: int):
    return day


def lonely(day: str = "monday"):
    return day


class TestRefusals:
    @pytest.mark.parametrize(
        ("steps", "field", "message"),
        [
            ([with_self], "with_self.self", "leave self out"),
            ([positional], "positional.day", "positional-only"),
            ([of_itself], "of_itself.of_itself", "its own result"),
            ([other_day, lonely], "lonely.day", "'monday', and another step has 'tuesday'"),
            ([typed_day, lonely], "lonely.day", "'string', and another step has 'integer'"),
            ([fetch, fetch], "steps[1]", "another step 'fetch'"),
            ([5], "steps[0]", "not int"),
            ([{"target": {}}], "steps[0]", "has no name"),
            ([type("Call", (), {"__call__": fetch})()], "steps[0]", "has no name"),
            ("fetch", "steps", "must be a list"),
            (None, "steps", "must be a list"),
        ],
    )
    def test_functions(self, steps, field, message):
        with pytest.raises(InvalidWorkflow, match=message) as refused:
            DefinitionBuilder(str).definition("w", steps_of_list(steps), WorkflowOptions())
        assert refused.value.field == field

    @pytest.mark.parametrize(
        ("options", "field", "message"),
        [
            ({"after": [with_self]}, "work", "with_self is not a step"),
            ({"for_each": 5}, "work.for_each", "must be a list"),
            ({"for_each": with_self}, "work", "with_self is not a step"),
            ({"compensate": "undo"}, "work.compensate", "must be a function"),
            ({"compensate": with_self}, "work.compensate.self", "leave self out"),
        ],
    )
    def test_options(self, options, field, message):
        def work():
            return 1

        with pytest.raises(InvalidWorkflow, match=message) as refused:
            build(step(**options)(work))
        assert refused.value.field == field

    @pytest.mark.parametrize("bad", [5, classmethod(fetch)])
    def test_what_cannot_be_a_step(self, bad):
        with pytest.raises(InvalidSchedule, match="must be callable"):
            step()(bad)
