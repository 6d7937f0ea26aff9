"""Options from a TOML file: keys for every command, a table [evaluate] for one, [policies.NAME] for policies,
[thresholds] for thresholds."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cael.errors import InputError

if TYPE_CHECKING:
    from cyclopts import App


def config_of(arguments: Sequence[str], app: App) -> tuple[Any, ...]:
    """What cyclopts needs to take options from the file named by --config; nothing without one."""
    path = _named(arguments)
    command = next((word for word in arguments if not word.startswith("-")), None)
    if path is None or command is None or command not in app:
        return ()
    from cyclopts.config import Dict

    # Below the name of the command: at the top, cyclopts skips keys that are commands, and "learn" is both.
    given = {command: options(path, command, app, arguments)}
    return (Dict(given, source=str(path), use_commands_as_keys=True, allow_unknown=True),)


def _named(arguments: Sequence[str]) -> Path | None:
    for word, after in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name == "--config" and (equals or after is not None):
            return Path(value if equals else str(after))
    return None


def options(path: Path, command: str, app: App, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """The options of one command, checked: a key that no command knows is an error. arguments: that win."""
    if not path.is_file():
        raise InputError(f"there is no file {path} (--config).")
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}.") from None
    commands = {name for name in app if not name.startswith("-")}
    table = data.pop(command, {})
    shared = {key: value for key, value in data.items() if key not in commands or not isinstance(value, dict)}
    if not isinstance(table, dict):
        raise InputError(f"{path}: [{command}] must be a table of options; got {table!r}.")
    named: dict[str, Any] = {}
    for key, value in {**shared, **table}.items():
        if key == "policies":
            named["policy"] = _policies(path, value)
        elif key == "thresholds":
            named[key] = _limits(path, value)
        else:
            named |= _table(path, key, value) if key == "columns" else {key: value}
    if command in ("evaluate", "plan") and isinstance(named.get("policy"), list):
        given = any(word.partition("=")[0] == "--policy" for word in arguments)
        named |= _one_policy(path, named.pop("policy"), command, given=given)
    _known(path, named, app, commands)
    return {key.replace("_", "-"): _as_typed(value) for key, value in named.items()}


def _as_typed(value: Any) -> Any:
    """Numbers as they would be typed on the command line, so that 1.5 is refused where a whole number is meant."""
    if isinstance(value, list):
        return [_as_typed(part) for part in value]
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _table(path: Path, key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: [{key}] must be a table; got {value!r}.")
    return value


def _known(path: Path, named: dict[str, Any], app: App, commands: set[str]) -> None:
    names = {
        name.removeprefix("--")
        for command in commands
        for argument in app[command].assemble_argument_collection()
        for name in argument.names
        if name.startswith("--")
    }
    unknown = [key for key in named if key.replace("_", "-") not in names]
    if unknown:
        raise InputError(f"{path}: unknown option {unknown[0]!r}; there are: {', '.join(sorted(names))}.")


def _limits(path: Path, value: Any) -> list[str]:
    """[thresholds] drift = [0.5, 1.0] -> "drift=0.5,1.0"."""
    pairs = _table(path, "thresholds", value).items()
    return [f"{name}={','.join(map(str, limit if isinstance(limit, list) else [limit]))}" for name, limit in pairs]


def _policies(path: Path, value: Any) -> list[str]:
    """[policies.new] kind = "choice", column = "best" -> "new=choice:best"."""
    from cael.io.specs import KINDS, parse

    texts = []
    for name, policy in _table(path, "policies", value).items():
        if not isinstance(policy, str | dict):
            raise InputError(
                f"{path}: policies.{name} must be a table, or a text such as 'choice:best'; got {policy!r}."
            )
        spec = parse(policy)
        options = [] if isinstance(spec, str) else [f",{option}={getattr(spec, option)}" for option in KINDS[spec.kind]]
        texts.append(f"{name}={spec}{''.join(options)}")
    return texts


def _one_policy(path: Path, texts: list[str], command: str, *, given: bool) -> dict[str, str]:
    """The one policy that a command takes, unless it is given on the command line."""
    if given:
        return {}
    if len(texts) != 1:
        names = ", ".join(text.partition("=")[0] for text in texts)
        raise InputError(
            f"{path}: {command} takes one policy, and there are {len(texts)}: {names}. Say which: --policy."
        )
    return {"policy": texts[0]}
