"""A command whose optional package is not installed says which extra brings it."""

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules[sys.argv[1]] = None; from kleash.cli.main import main; sys.exit(main(sys.argv[2:]))"


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("sqlalchemy", ["label", "candidates", "run.toml"]),
        ("sqlalchemy", ["label", "judge", "--model", "judge-1"]),
        ("fastapi", ["label", "serve"]),
    ],
)
def test_a_missing_package_is_the_users_to_install(tmp_path, package, command):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert result.returncode == 2, result.stderr
    assert "pip install 'kleash[label]'" in result.stderr
    assert "Traceback" not in result.stderr
