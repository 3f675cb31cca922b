import pytest

from turnstop.lab import Behaviour, read_prompt, write_prompt


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(),
        Behaviour("park"),
        Behaviour("park", 7),
        Behaviour("drip", 20),
        Behaviour("hold"),
        Behaviour("tool", None, "echo '[x]' $ y | cat", "park"),
        Behaviour("tool", 4, "sleep 60\necho done", "park"),
    ],
)
def test_a_prompt_says_its_behaviour(behaviour: Behaviour) -> None:
    token, prompt = write_prompt(behaviour)
    assert read_prompt(f"<context/>\n{prompt}") == (token, behaviour)


def test_tokens_differ() -> None:
    assert write_prompt(Behaviour())[0] != write_prompt(Behaviour())[0]


def test_an_unknown_word_is_answered() -> None:
    assert read_prompt("[turn:a1] please tidy up 3 rooms") == ("a1", Behaviour())


def test_a_tool_without_a_command_is_answered() -> None:
    assert read_prompt("[turn:a1] tool park") == ("a1", Behaviour())


def test_no_token_no_behaviour() -> None:
    assert read_prompt("park 3") is None


def test_of_several_prompts_the_last_one_with_a_line_of_its_own_counts() -> None:
    assert read_prompt("[turn:a1] park\n  [turn:b2] hold\n") == ("b2", Behaviour("hold"))
    nested = Behaviour("tool", None, "AGENT [turn:b2] park", "park")
    assert read_prompt(f"[User]: [turn:a1] {nested}") == ("a1", nested)


def test_what_a_program_puts_behind_a_prompt_is_not_of_it() -> None:
    said = "[turn:a1] tool answer $ cat <<END\nx\nEND\n\n <reminder>\nnever\n</reminder>"
    behaviour = Behaviour("tool", None, "cat <<END\nx\nEND", "answer")
    assert read_prompt(said) == ("a1", behaviour)
    assert read_prompt("[turn:a1] park\nplease") == ("a1", Behaviour("park"))
