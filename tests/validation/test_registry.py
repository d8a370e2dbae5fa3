"""Registries: a member by name or as an object, and one sentence for anything else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from scansnap.runtime.errors import InputError, short_repr
from scansnap.validation.user_code import Registry


def cakes() -> Registry:
    listed: Registry = Registry("cake", "bake", "eat")

    @listed.register("sponge")
    @dataclass(frozen=True)
    class Sponge:
        eggs: int = 3
        flavor: str = "none"

        def bake(self) -> None: ...

        def eat(self) -> None: ...

    return listed


class Tart:
    """A user's own, which has no dataclass behind it."""

    def __init__(self, fruit: str) -> None:
        self.fruit = fruit
        self._crumbs = 7

    def bake(self) -> None: ...

    def eat(self) -> None: ...


def test_members_by_name_and_as_objects() -> None:
    assert repr(cakes()) == "<cake: sponge>"
    listed = cakes()
    assert listed.member("sponge") == listed["sponge"]()
    own = Tart("plum")
    assert listed.member(own) is own
    assert (list(listed), len(listed), "sponge" in listed, "tart" in listed) == (["sponge"], 1, True, False)


def test_a_user_s_member_has_a_name_too() -> None:
    listed = cakes()

    @listed.register("tart")
    class Plum(Tart):
        def __init__(self) -> None:
            super().__init__("plum")

    assert Plum.__name__ == "Plum"
    assert isinstance(listed.member("tart"), Plum)
    assert listed.register("tart")(Plum) is Plum  # once more does no harm
    with pytest.raises(InputError, match=r"^the cake 'tart' exists already: give yours another name\.$"):
        listed.register("tart")(lambda: Tart("fig"))
    assert isinstance(listed.member("tart"), Plum)


def test_a_definition_that_is_run_again_replaces_itself() -> None:
    listed = cakes()
    for layers in (1, 2):

        @listed.register("tart")
        class Layered(Tart):
            count = layers

            def __init__(self) -> None:
                super().__init__("plum")

    assert listed.member("tart").count == 2
    with pytest.raises(InputError, match="the cake 'sponge' exists already"):
        listed.register("sponge")(Layered)


def test_an_object_can_have_a_name() -> None:
    listed = cakes()
    plum = listed.register("plum")(Tart("plum"))
    assert listed.member("plum") is plum
    assert listed.label(plum) == "plum"
    with pytest.raises(InputError, match="the cake 'plum' exists already"):
        listed.register("plum")(Tart("fig"))
    bare: Registry = Registry("letter")
    assert bare.register("three")(3) == bare.member("three") == 3


@pytest.mark.parametrize("name", ["", "a,b", "a b", "pie.toml", 3, None, Tart])
def test_a_name_that_no_command_could_give_is_refused(name: object) -> None:
    with pytest.raises(InputError, match=r"^the name of the cake is .*: use letters, digits, _ and -\.$"):
        cakes().register(name)  # type: ignore[arg-type]


def test_what_cannot_make_a_member_is_refused() -> None:
    listed = cakes()
    with pytest.raises(InputError, match=r"the cake 'tart' cannot be made from .*Tart.*missing a required argument"):
        listed.register("tart")(Tart)
    with pytest.raises(InputError, match="the cake 'three' cannot be made from 3"):
        listed.register("three")(3)
    listed.register("text")(lambda: "crumbs")
    with pytest.raises(InputError, match="cake is 'crumbs': give one of sponge, text, or an object with bake"):
        listed.member("text")


def test_an_object_without_the_methods_is_one_sentence() -> None:
    class Mud:
        eat = "no method"

        def bake(self) -> None: ...

    for value in (Mud(), 3, None, Tart):  # a class is no object
        with pytest.raises(InputError) as caught:
            cakes().member(value)
        assert str(caught.value) == (
            f"cake is {short_repr(value)}: give one of sponge, or an object with bake(...) and eat(...)."
        )


def test_labels_tell_members_apart() -> None:
    listed = cakes()
    sponge = listed["sponge"]
    assert listed.label("sponge") == listed.label(sponge()) == "sponge"
    assert listed.label(sponge(flavor="lemon")) == "sponge(flavor='lemon')"
    assert listed.label(sponge(4, "lemon")) == "sponge(eggs=4, flavor='lemon')"
    assert listed.label(Tart("plum")) == f"{__name__}.Tart(fruit='plum')"
    assert listed.label(Tart("fig")) != listed.label(Tart("plum"))
