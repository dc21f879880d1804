"""`weir schema`: what it prints is a JSON Schema, to a validator that is not ours."""
import json
import pathlib

from lib.case import case

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/examples"
WRONG = (
    "{version: 1}",
    "{version: 2, listeners: [{bind: ':80'}]}",
    "{version: 1, listeners: []}",
    "{version: 1, listeners: [{bind: ':80', engin: epoll}]}",
    "{version: 1, listeners: [{bind: ':80'}], timeouts: {write: 30}}",
    "{version: 1, listeners: [{bind: ':80'}], defaults: {via: 'yes'}}",
    "{version: 1, listeners: [{bind: ':80'}], routes: [{to: a, respond: {}}]}",
)


@case(engines=("epoll",))
def test_schema(t):
    status, text = t.command("schema")
    assert status == 0, text
    schema = json.loads(text)
    assert schema["$schema"].endswith("2020-12/schema") and "listener" in schema["$defs"], text[:200]
    try:
        import jsonschema
        import yaml
    except ImportError:
        t.note("no outside validator (python3-jsonschema, python3-yaml) here")
        return
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    examples = sorted(EXAMPLES.glob("*.yaml"))
    assert len(examples) >= 4, examples
    for path in examples:
        errors = [f"{list(e.absolute_path)}: {e.message[:300]}" for e in validator.iter_errors(yaml.safe_load(path.read_text()))]
        assert not errors, (path.name, errors)
    for wrong in WRONG:
        assert not validator.is_valid(yaml.safe_load(wrong)), wrong
