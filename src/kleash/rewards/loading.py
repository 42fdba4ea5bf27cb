"""From ``module:function`` or ``path/to/file.py:function`` to the function itself."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kleash.errors import ConfigError, near_match


def load_function(reference: str) -> Callable[..., Any]:
    """Import the function that `reference` names.

    Args:
        reference: ``module:function`` for an importable module, ``path/to/file.py:function`` for a file; a
            relative path starts at the working directory.

    Raises:
        ConfigError: not of that form, no such module, file or function, or an import that fails.
    """
    module_name, separator, function_name = reference.rpartition(":")
    if not separator or not module_name or not function_name:
        raise ConfigError(
            f"reward = '{reference}' does not name a function. Write 'module:function' or 'path/to/file.py:function'."
        )
    is_file = module_name.endswith(".py") or "/" in module_name or "\\" in module_name
    module = _file_module(reference, Path(module_name)) if is_file else _named_module(reference, module_name)
    return _member(reference, module, function_name)


def _named_module(reference: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (name == exc.name or name.startswith(exc.name + ".")):
            raise _import_failed(reference, name, exc) from exc
        file = Path(*name.split(".")).with_suffix(".py")
        function_name = reference.rpartition(":")[2]
        hint = (
            f"There is a file of that name here: write '{file}:{function_name}'."
            if file.is_file()
            else "Install the package, or write 'path/to/file.py:function'."
        )
        raise ConfigError(f"reward = '{reference}': there is no module '{exc.name}' to import. {hint}") from exc
    except Exception as exc:  # importing runs the user's code, which may raise anything
        raise _import_failed(reference, name, exc) from exc


def _file_module(reference: str, path: Path) -> ModuleType:
    if not path.is_file():
        folder = path.parent
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise ConfigError(
            f"reward = '{reference}': no file '{path.name}' in"
            f" {folder.resolve()}.{near_match(path.name, names)} Check the path; a relative one starts at the"
            " working directory."
        )
    name = f"kleash_reward_file:{path.resolve()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"reward = '{reference}': '{path}' is not a Python file. Name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as exc:  # importing runs the user's code, which may raise anything
        del sys.modules[name]
        raise _import_failed(reference, str(path), exc) from exc
    return module


def _import_failed(reference: str, what: str, exc: Exception) -> ConfigError:
    return ConfigError(
        f"reward = '{reference}': importing {what} raised {type(exc).__name__}: {exc}. Mend it until Python"
        " can import it on its own."
    )


def _member(reference: str, module: ModuleType, function_name: str) -> Callable[..., Any]:
    functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    value = getattr(module, function_name, None)
    if callable(value):
        return value  # type: ignore[no-any-return]
    file = getattr(module, "__file__", None) or module.__name__
    problem = (
        f"{file} has no function '{function_name}'."
        if value is None
        else f"'{function_name}' in {file} is a {type(value).__name__}, not a function."
    )
    near = near_match(function_name, functions)
    raise ConfigError(f"reward = '{reference}': {problem}{near} It has: {', '.join(functions) or 'none'}.")
