"""Answers each line {"id", "dir", "data"} with what the reference validator says of that SKILL.md in a
directory of that name: {"id", "errors"}. What it dies of is an error too."""
import base64
import io
import json
import pathlib
import sys
import warnings

from skills_ref.errors import ParseError
from skills_ref.parser import parse_frontmatter
from skills_ref.validator import validate_metadata

warnings.simplefilter("ignore")


def validate(name, data):
    try:
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
        return validate_metadata(parse_frontmatter(text)[0], pathlib.Path("/") / name)
    except ParseError as error:
        return [str(error)]
    except Exception as error:
        return ["crash: " + type(error).__name__]


for line in sys.stdin:
    case = json.loads(line)
    errors = validate(case["dir"], base64.b64decode(case["data"]))
    print(json.dumps({"id": case["id"], "errors": errors}))
