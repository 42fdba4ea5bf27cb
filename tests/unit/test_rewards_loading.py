import pytest

from kleash.errors import ConfigError
from kleash.rewards.function import resolve
from kleash.rewards.loading import load_function


@pytest.fixture
def rewards_file(tmp_path, monkeypatch):
    path = tmp_path / "my_rewards.py"
    path.write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Settings:\n    low: int = 0\n\n\nLIMIT ="
        " 3\n\n\ndef brevity(completions):\n    return [-len(text) for text in completions]\n"
    )
    monkeypatch.chdir(tmp_path)
    return path


def failure(reference):
    with pytest.raises(ConfigError) as caught:
        load_function(reference)
    return str(caught.value)


def test_an_importable_module():
    assert load_function("json:dumps")([1]) == "[1]"
    assert load_function("os.path:join")("a", "b") == "a/b"


def test_a_file_by_relative_or_absolute_path(rewards_file):
    relative = load_function("my_rewards.py:brevity")
    assert relative(["abc"]) == [-3]
    assert load_function(f"{rewards_file}:brevity") is relative
    assert resolve("my_rewards.py:brevity").name == "brevity"
    assert resolve("my_rewards.py:brevity", name="short").name == "short"


@pytest.mark.parametrize("reference", ["my_rewards", "my_rewards:", ":brevity"])
def test_a_reference_of_another_form(reference):
    assert failure(reference) == (
        f"reward = '{reference}' does not name a function. Write 'module:function' or 'path/to/file.py:function'."
    )


def test_a_missing_module_offers_the_file_of_that_name(rewards_file):
    assert failure("my_rewards:brevity") == (
        "reward = 'my_rewards:brevity': there is no module 'my_rewards' to import. There is a file of that"
        " name here: write 'my_rewards.py:brevity'."
    )
    assert failure("no_such_package.rewards:f") == (
        "reward = 'no_such_package.rewards:f': there is no module 'no_such_package' to import. Install the"
        " package, or write 'path/to/file.py:function'."
    )


def test_a_missing_file_offers_a_near_match(rewards_file):
    assert failure("my_reward.py:brevity") == (
        f"reward = 'my_reward.py:brevity': no file 'my_reward.py' in {rewards_file.parent}. Did you mean"
        " 'my_rewards.py'? Check the path; a relative one starts at the working directory."
    )


def test_a_missing_function_offers_a_near_match(rewards_file):
    assert failure("my_rewards.py:brevty") == (
        f"reward = 'my_rewards.py:brevty': {rewards_file} has no function 'brevty'. Did you mean 'brevity'?"
        " It has: dataclass, Settings, brevity."
    )


def test_a_name_that_is_no_function(rewards_file):
    assert failure("my_rewards.py:LIMIT").startswith(
        f"reward = 'my_rewards.py:LIMIT': 'LIMIT' in {rewards_file} is a int, not a function."
    )


def test_a_file_that_fails_on_import(rewards_file):
    rewards_file.with_name("broken.py").write_text("import no_such_package\n")
    assert failure("broken.py:f") == (
        "reward = 'broken.py:f': importing broken.py raised ModuleNotFoundError: No module named"
        " 'no_such_package'. Mend it until Python can import it on its own."
    )


def test_a_module_that_fails_on_import(rewards_file, monkeypatch):
    rewards_file.with_name("needy.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(rewards_file.parent)
    assert failure("needy:f").startswith(
        "reward = 'needy:f': importing needy raised ModuleNotFoundError: No module named 'no_such_package'."
    )


def test_a_file_that_is_no_python(rewards_file):
    folder = rewards_file.parent / "sub"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    assert failure("sub/notes.txt:f") == (
        "reward = 'sub/notes.txt:f': 'sub/notes.txt' is not a Python file. Name one that ends in .py."
    )
