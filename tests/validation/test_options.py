"""Options that are stated once: types, defaults, limits, and everything that is derived from them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from scansnap.runtime.errors import InputError
from scansnap.validation.argument_types import (
    ArgumentType,
    ChoiceType,
    FlagType,
    IntegerType,
    MemberType,
    NumberType,
    OptionalType,
)
from scansnap.validation.options import (
    Options,
    defaults_of,
    describe_options,
    from_names,
    from_plain,
    option,
    options,
    options_of,
    plain,
    required_of,
)
from scansnap.validation.user_code import Registry, code_digest

SAUCES: Registry[Any] = Registry("sauce", "pour")


@SAUCES.register("plain")
@dataclass(frozen=True)
class Sauce:
    pepper: int = 0

    def pour(self) -> None: ...


@options
class Heat(Options):
    degrees: int = option("How hot.", least=50, most=300)
    fan: bool = option("Whether air moves.", default=False)


@options
class Dish(Heat):
    minutes: float | None = option("How long.", default=None, least=0, below=60, none="keeps it warm", axis=False)
    rack: Literal["low", "high"] = option("Where.", default="low")
    name: str = option("What.", default="pie")
    sauce: str | Sauce = option("Beside it.", MemberType(SAUCES), default="plain", separator="/")

    def check_together(self) -> None:
        if self.fan and self.rack == "low":
            raise InputError("fan is True but rack is low: give rack='high'.")


def test_argument_types_follow_from_annotations() -> None:
    types = {name: stated.type for name, stated in options_of(Dish).items()}
    assert types == {
        "degrees": IntegerType({"least": 50, "most": 300}),
        "fan": FlagType(),
        "minutes": OptionalType(NumberType({"least": 0, "below": 60})),
        "rack": ChoiceType(("low", "high")),
        "name": ArgumentType(),
        "sauce": MemberType(SAUCES),
    }

    @options
    class Unclear(Options):
        parts: list = option("Which?")

    with pytest.raises(TypeError, match="the type of the option parts does not say how it is checked"):
        options_of(Unclear)


def test_what_is_said_of_a_field() -> None:
    stated = options_of(Dish)
    assert stated["degrees"].shell == stated["degrees"].python == "How hot."
    assert stated["minutes"].shell == "How long; none keeps it warm."
    assert stated["minutes"].python == "How long; None keeps it warm."
    assert (stated["minutes"].axis, stated["fan"].axis) == (False, True)
    assert (stated["sauce"].separator, stated["fan"].separator) == ("/", ",")
    assert required_of(Dish) == ["degrees"]
    assert defaults_of(Dish) == {"fan": False, "minutes": None, "rack": "low", "name": "pie", "sauce": "plain"}


def test_values_are_kept_in_plain_form() -> None:
    dish = Dish(degrees=np.int64(200), fan=np.True_, minutes=np.float32(2), rack="high", sauce=Sauce(3))
    assert [type(value) for value in (dish.degrees, dish.fan, dish.minutes)] == [int, bool, float]
    assert dish.to_dict() == {
        "degrees": 200,
        "fan": True,
        "minutes": 2.0,
        "rack": "high",
        "name": "pie",
        "sauce": "plain(pepper=3)",
        "code": {"sauce plain(pepper=3)": code_digest(Sauce(3))},
    }
    assert Dish(degrees=200).to_dict()["minutes"] is None
    with pytest.raises(AttributeError):
        dish.degrees = 100


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"degrees": 301}, "degrees is 301: give a whole number from 50 to 300."),
        ({"minutes": 60}, "minutes is 60: give a finite number from 0 to below 60."),
        ({"rack": "hihg"}, "unknown rack 'hihg': did you mean 'high'? choose one of low, high."),
        ({"sauce": 3}, "sauce is 3: give one of plain, or an object with pour(...)."),
        ({"fan": True}, "fan is True but rack is low: give rack='high'."),
    ],
    ids=str,
)
def test_refusals(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        Dish(**{"degrees": 200, **change})
    assert str(caught.value) == sentence


def test_a_subclass_may_state_another_default_alone() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Roast(Dish):
        rack: Literal["low", "high"] = "high"

    assert Roast(degrees=200).rack == "high"
    assert options_of(Roast)["rack"] == options_of(Dish)["rack"]
    with pytest.raises(InputError, match="unknown rack 'top'"):
        Roast(degrees=200, rack="top")  # type: ignore[arg-type]


def test_options_from_names() -> None:
    assert from_names(Dish, {"degrees": 80, "rack": "high"}) == Dish(degrees=80, rack="high")
    with pytest.raises(InputError, match=r"^unknown option 'degress': did you mean 'degrees'\? choose one of "):
        from_names(Dish, {"degress": 80})
    with pytest.raises(InputError, match=r"^degrees must be given\.$"):
        from_names(Dish, {"fan": True})


def test_parts_and_wholes() -> None:
    dish = Dish(degrees=90, fan=True, rack="high", name="tart")
    assert Heat.of(dish) == Heat(degrees=90, fan=True)
    assert Dish.of(Heat(degrees=90, fan=True), rack="high", name="tart") == dish
    assert Heat.of(dish, fan=False) == Heat(degrees=90)


def test_words_of_the_command_line() -> None:
    read = {name: stated.type.read for name, stated in options_of(Dish).items()}
    assert (read["degrees"]("degrees", "200"), read["minutes"]("minutes", "2.5")) == (200, 2.5)
    assert (read["minutes"]("minutes", "none"), read["minutes"]("minutes", "None")) == (None, None)
    assert [read["fan"]("fan", word) for word in ("yes", "True", "no", "false")] == [True, True, False, False]
    assert (read["rack"]("rack", "low"), read["name"]("name", "x"), read["sauce"]("sauce", "plain")) == (
        "low",
        "x",
        "plain",
    )
    for name, text, sentence in [
        ("degrees", "2.5", "degrees is '2.5': give a whole number."),
        ("minutes", "long", "minutes is 'long': give a number."),
        ("fan", "maybe", "fan is 'maybe': give yes or no."),
    ]:
        with pytest.raises(InputError) as caught:
            read[name](name, text)
        assert str(caught.value) == sentence


def test_a_signature_and_a_docstring_hold_every_option() -> None:
    def serve(guest: str, *, table: int = 1, **kwargs: object) -> None:
        """Serve.

        {options}
        """

    describe_options(serve, Heat)
    full = inspect.signature(serve)
    assert list(full.parameters) == ["guest", "degrees", "fan", "table"]
    assert full.parameters["degrees"].default is inspect.Parameter.empty
    assert full.parameters["fan"].default is False
    assert full.parameters["fan"].kind is inspect.Parameter.KEYWORD_ONLY
    assert serve.__doc__ == ("Serve.\n\ndegrees : int\n    How hot.\nfan : bool\n    Whether air moves.")


@pytest.mark.parametrize("value", [None, 3, 0.5, True, "word", [1, None], [[None], "x"], {"a": None, "b": [None, 2]}])
def test_plain_values_and_back(value: Any) -> None:
    written = plain(value)
    assert "None" not in repr(written)
    assert from_plain(written) == value


def test_tuples_are_lists_and_keys_are_text_in_a_file() -> None:
    assert plain({1: (None, 2)}) == {"1": ["none", 2]}
    assert from_plain(["NONE", "none of it"]) == [None, "none of it"]
