import pytest

from turnstop.lab._tools import Tool, example, shell_call

STRING = {"type": "string"}


def tool(name: str, *required: str, **parameters: object) -> Tool:
    return Tool(name, {"properties": parameters, "required": list(required)})


@pytest.mark.parametrize(
    ("tools", "call"),
    [
        ([tool("read", path=STRING), tool("Bash", command=STRING)], ("Bash", {"command": "ls"})),
        ([tool("grep", command=STRING), tool("bash", command=STRING)], ("bash", {"command": "ls"})),
        ([tool("do", "cmd", cmd=STRING)], ("do", {"cmd": "ls"})),
        ([tool("shell", command={"type": "array"})], ("shell", {"command": ["bash", "-c", "ls"]})),
        (
            [
                tool(
                    "bash",
                    *("command", "is_background", "timeout", "mode", "odd"),
                    command=STRING,
                    is_background={"type": "boolean"},
                    timeout={"type": "number"},
                    mode={"enum": ["sync", "async"]},
                    yield_time_ms={"type": "number"},
                    cwd=STRING,
                )
            ],
            (
                "bash",
                {
                    "command": "ls",
                    "is_background": False,
                    "timeout": 600_000,
                    "mode": "sync",
                    "odd": "a word of the lab's",
                    "yield_time_ms": 30_000,
                },
            ),
        ),
        ([], ("exec_command", {"cmd": "ls"})),
        ([Tool("odd", None)], ("exec_command", {"cmd": "ls"})),
    ],
)
def test_the_shell_is_called_with_what_it_requires(tools: list[Tool], call: object) -> None:
    assert shell_call(tools, "ls") == call


def test_an_example_has_what_the_schema_requires_all_the_way_down() -> None:
    inner = {"properties": {"n": {"type": "integer", "minimum": 3}, "z": {}}, "required": ["n"]}
    schema = {"type": "OBJECT", "properties": {"a": inner, "b": {"type": ["null"]}}}
    assert example({**schema, "required": ["a", "b"]}) == {"a": {"n": 3}, "b": None}
