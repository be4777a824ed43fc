"""The icicle of a page: types, layers and kernels, as wide as what each of them costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_modelperf.profiler.shown.page_layers import kind_of
from tests.report.pages import sample_data
from tests.report.pages.conftest import OpenData
from tests.report.pages.sample_data import Data

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZES = {"time": "ms", "MACs": "macs", "FLOPs": "flops", "memory": "memory"}
# A share of the width: narrower boxes are drawn together.
NARROWEST = 0.004
PARTS = """
() => [...document.querySelectorAll(".icicle button")].map((button) => ({
  title: button.textContent,
  level: Number(button.style.getPropertyValue("--level")),
  width: Number(button.style.getPropertyValue("--width")),
}))
"""
FOCUSED = "document.activeElement.textContent"


def parts_of(page: Page, level: int) -> dict[str, float]:
    """The width of each part of a level."""
    return {part["title"]: part["width"] for part in page.evaluate(PARTS) if part["level"] == level}


def layers_of(data: Data) -> list[Data]:
    layers: list[Data] = data["models"][0]["cases"][0]["layers"]
    return layers


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("side", ["A", "B"])
def test_a_type_is_as_wide_as_its_share_of_the_cost(
    open_data: OpenData, size: str, side: str
) -> None:
    data = sample_data.comparison()
    page = open_data(data, draws=False)
    page.locator("#icicle").get_by_role("button", name=size, exact=True).click()
    page.locator("#icicle").get_by_role("button", name=side, exact=True).click()
    costs: dict[str, float] = {}
    for layer in layers_of(data):
        value = layer[SIZES[size]]["AB".index(side)]
        if value:
            costs[layer["type"]] = costs.get(layer["type"], 0.0) + value
    widths = parts_of(page, 1)
    total = sum(costs.values())
    shares = {op: costs[op] / total for op in sorted(costs, key=lambda op: -costs[op])}
    narrow = [share for share in shares.values() if share < NARROWEST]
    drawn = {op: share for op, share in shares.items() if share >= NARROWEST or len(narrow) == 1}
    if len(narrow) > 1:
        drawn[f"{len(narrow)} others"] = sum(narrow)
    assert list(widths) == list(drawn)
    assert widths == pytest.approx(drawn)


def test_a_static_page_has_counts_and_no_time(open_data: OpenData) -> None:
    page = open_data(sample_data.bare(), draws=False)
    shown = page.locator("#icicle .toggle button").all_inner_texts()
    assert shown == ["MACs", "FLOPs", "memory"]
    assert page.locator("#icicle [aria-pressed=true]").inner_text() == "MACs"


def test_the_kernel_of_a_layer_is_below_it_with_the_number_of_its_layers(
    open_data: OpenData,
) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    kernels = parts_of(page, 3)
    conv = max(layers_of(data), key=lambda layer: layer["ms"][0] or 0.0)
    assert kernels[f"{conv['kernels'][0]} + 1 fused"] == parts_of(page, 2)[conv["names"][0][1:]]


def test_keys_alone_lead_to_a_type_and_to_the_details_of_a_layer(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    assert page.locator(".icicle button[tabindex='0']").count() == 1
    page.locator(".icicle button[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    second = page.evaluate(FOCUSED)
    assert second == list(parts_of(page, 1))[1]
    assert page.locator(".icicle-said").inner_text().startswith(f"{second}: ")
    page.keyboard.press("Enter")
    assert parts_of(page, 0) == {second: 1.0}
    assert page.evaluate(FOCUSED) == second
    page.keyboard.press("Escape")
    assert len(parts_of(page, 1)) > 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    layer = page.evaluate(FOCUSED)
    page.keyboard.press("Enter")
    # The chart leaves out what all names begin with.
    assert page.locator(".layer-details h3").inner_text() == f"/{layer}"


def test_a_card_has_what_is_known_of_the_layer_at_the_pointer_and_at_the_focus(
    open_data: OpenData,
) -> None:
    data = sample_data.profile()
    page = open_data(data, draws=False)
    conv = max(layers_of(data), key=lambda layer: layer["ms"][0] or 0.0)
    card = page.locator(".icicle-card")
    assert not card.is_visible()
    part = page.locator(".icicle").get_by_role("button", name=conv["names"][0][1:], exact=True)
    for show in (part.hover, part.focus):
        show()
        text = card.inner_text()
        for fact in (conv["names"][0], conv["type"], conv["inputs"][0], conv["kernels"][0]):
            assert fact in text
        assert f"{conv['ms'][0]:.3f} ms" in text
        page.mouse.move(0, 0)
    page.locator("#icicle input").focus()
    assert not card.is_visible()


@pytest.fixture
def modules(open_data: OpenData) -> Page:
    """A page of two convolutions in modules of a network."""
    data = sample_data.profile()
    conv = next(layer for layer in layers_of(data) if layer["type"] == "Conv")
    names = ("/net/model.0/cv1/Conv", "/net/model.22/cv2/Conv")
    layers_of(data)[:] = [
        {**conv, "depth": at, "names": [name], "kernels": [name]} for at, name in enumerate(names)
    ]
    return open_data(data, draws=False)


def test_a_layer_is_named_by_what_its_name_has_alone(modules: Page) -> None:
    """Without the start of all names and the end of those of its type."""
    assert list(parts_of(modules, 2)) == ["0/cv1", "22/cv2"]


def test_the_search_finds_a_layer_by_its_whole_name(modules: Page) -> None:
    modules.get_by_role("searchbox", name="find parts").fill("/net/model.22/cv2")
    pale = modules.locator(".icicle .pale").all_text_contents()
    assert "0/cv1" in pale
    assert "22/cv2" not in pale


def test_a_button_leads_back_to_the_whole_model(open_data: OpenData) -> None:
    page = open_data(sample_data.profile(), draws=False)
    back = page.get_by_role("button", name="whole model")
    assert not back.is_visible()
    page.locator(".icicle .kind-convolution").first.click()
    assert list(parts_of(page, 0)) == ["Conv"]
    back.click()
    assert list(parts_of(page, 0)) == ["mobilenet"]


def test_layers_that_are_too_narrow_are_one_part_of_their_width(open_data: OpenData) -> None:
    page = open_data(sample_data.big(), draws=False)
    layers = [part for part in page.evaluate(PARTS) if part["level"] == 2]
    assert len(layers) < 250
    assert sum(part["width"] for part in layers) == pytest.approx(1.0)
    assert any(part["title"].endswith(" others") for part in layers)


@pytest.mark.parametrize(
    ("largest_ms", "way"),
    [
        (0.01, ["300 others", "conv_0 … conv_14"]),
        (50.0, ["299 others", "299 others", "conv_1 … conv_15"]),
    ],
    ids=["all equal", "one large"],
)
def test_hundreds_of_equal_layers_can_be_opened(
    open_data: OpenData, largest_ms: float, way: list[str]
) -> None:
    """Each is too narrow although their type fills the chart."""
    data = sample_data.profile()
    conv = next(layer for layer in layers_of(data) if layer["type"] == "Conv")
    layers_of(data)[:] = [
        {**conv, "depth": at, "names": [f"conv_{at}"], "ms": [0.01 if at else largest_ms]}
        for at in range(300)
    ]
    page = open_data(data, draws=False)
    for title in way:
        page.locator(".icicle").get_by_role("button", name=title, exact=True).click()
    assert list(parts_of(page, 0)) == way[-1:]
    layers = parts_of(page, 1)
    assert layers == dict.fromkeys(layers, pytest.approx(1 / 15))
    assert [*layers][:: len(layers) - 1] == way[-1].split(" … ")


def test_operators_are_of_the_kind_that_their_work_is() -> None:
    expected = {
        "quantization": ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
        "elementwise": (
            *("Elu", "Celu", "Relu", "LeakyRelu", "Gelu", "FastGelu", "Softsign", "Xor", "IsNaN"),
            *("Tan", "Atan", "Acosh", "Sin", "QLinearAdd", "BiasAdd", "BitwiseOr", "Sum", "Mean"),
        ),
        "pooling and reduction": ("ReduceMean", "QLinearReduceMean", "ArgMax", "CumSum", "MaxPool"),
        "normalization": ("BatchNormalization", "LRN", "SkipLayerNormalization"),
        "convolution": ("Conv", "QLinearConv", "ConvInteger"),
        "movement of data": ("Expand", "Squeeze", "SpaceToDepth", "Concat"),
        "other operators": ("RandomNormal", "RandomUniform", "Loop", "Det"),
    }
    found = {name: kind_of(name)["title"] for names in expected.values() for name in names}
    assert found == {name: kind for kind, names in expected.items() for name in names}
