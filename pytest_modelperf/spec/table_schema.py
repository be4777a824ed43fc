"""The JSON Schema of `[tool.modelperf]`, for editors and validate-pyproject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_modelperf.spec.case_definitions import CASE_SETTINGS
from pytest_modelperf.spec.declaring import MODELS
from pytest_modelperf.spec.kinds import KINDS, JsonSchema
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from pytest_modelperf.spec.setting import PREFIX, Place, Setting
from pytest_modelperf.spec.sources import GATEWAYS
from pytest_modelperf.text.version import SITE

# The dialect that validate-pyproject reads.
_DIALECT = "http://json-schema.org/draft-07/schema"


def tool_schema(tool_name: str = PREFIX) -> Mapping[str, object]:
    """Return the schema of the tool's table. validate-pyproject calls this."""
    return {
        "$schema": _DIALECT,
        "$id": f"{SITE}schemas/tool-modelperf.json",
        "title": f"[tool.{tool_name}]",
        "description": "Settings of pytest --modelperf.",
        **table_schema(),
    }


def table_schema() -> Mapping[str, object]:
    in_model = (each for each in CASE_SETTINGS if each.stands_in(Place.MODEL))
    model = {
        "description": "The cases of the models at a path, or of all that match a glob.",
        **_table(_properties(in_model)),
    }
    properties = {
        **_properties(each for each in RUN_SETTINGS if each.is_in_files),
        MODELS: {
            "description": "A table for each model, by its path or a glob.",
            "type": "object",
            "additionalProperties": model,
        },
        GATEWAYS: {
            "description": "The gateways of machines, by their names.",
            "type": "object",
            "additionalProperties": {"type": "string", "minLength": 1},
        },
    }
    return _table(properties)


def _table(properties: Mapping[str, JsonSchema]) -> Mapping[str, object]:
    with_hyphens = {
        f"^{key.replace('_', '-')}$": value for key, value in properties.items() if "_" in key
    }
    patterns = {"patternProperties": with_hyphens} if with_hyphens else {}
    return {"type": "object", "properties": properties, **patterns, "additionalProperties": False}


def _properties(settings: Iterable[Setting]) -> Mapping[str, JsonSchema]:
    return {
        each.table_key: {
            "description": _description(each),
            **({} if each.default is None else {"default": each.default}),
            **KINDS[each.kind].schema,
        }
        for each in settings
    }


def _description(setting: Setting) -> str:
    """Describe a setting in a sentence, with its unit and its usual value."""
    text = f"{setting.help[0].upper()}{setting.help[1:]}".replace("`", "")
    unit = f", in {setting.unit}" if setting.unit else ""
    usual = f" Default: {setting.usual}." if setting.usual else ""
    return f"{text}{unit}.{usual}"
