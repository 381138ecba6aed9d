"""`op-jupyter doctor`: what is wrong with a session, or with this installation, and mending it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from op_jupyter.bootstrap import default_service
from op_jupyter.cli.environment import Check, environment
from op_jupyter.cli.exit_codes import ExitCode
from op_jupyter.cli.output import print_json
from op_jupyter.cli.usage import BadCommandLine
from op_jupyter.core.values import dataclass
from op_jupyter.engine.service import ALL, Service
from op_jupyter.errors import ConfigurationError, StoreError, UnknownSession
from op_jupyter.store.doctor import Examined, Finding, examined_text
from op_jupyter.views.text import count, visible


@dataclass(frozen=True, slots=True)
class _Report:
    """What ``--json`` prints.

    Attributes:
        repaired: what is put right now.
    """

    environment: Sequence[Check]
    sessions: Sequence[Examined]
    repaired: Sequence[Finding] = ()


def doctor(given: str | None, *, repair: bool, force: bool, as_json: bool) -> int:
    """Examine the session that *given* names, or everything; the exit code.

    Raises:
        BadCommandLine: mending was asked for, but not of which session.
        OpenProgramError: it cannot be looked at, or cannot be mended now.
    """
    if given is not None:
        return _one(default_service(), given, repair=repair, force=force, as_json=as_json)
    if repair or force:
        raise BadCommandLine("name the session to repair: op-jupyter doctor ID --repair")
    return _everything(as_json=as_json)


# --- one session


def _one(service: Service, given: str, *, repair: bool, force: bool, as_json: bool) -> ExitCode:
    wanted, upkeep = service.find(given), service.upkeep
    before = upkeep.examine(wanted)
    after = upkeep.mend(wanted, force=force) if repair and not before.healthy else before
    repaired = [finding for finding in before.findings if finding not in after.findings]
    if as_json:
        print_json(_Report((), [after], repaired))
    else:
        print(visible(examined_text(after, repaired, str(service.path(wanted) or ""))))
    return ExitCode.OK if after.healthy else ExitCode.DAMAGED


# --- everything


def _everything(*, as_json: bool) -> ExitCode:
    try:
        service: Service | None = default_service()
    except ConfigurationError:
        service = None  # the settings do not say where; that they cannot be read is told below
    checks, examined = list(environment(_root(service))), list(_glance_at_all(service))
    if as_json:
        print_json(_Report(checks, examined))
    else:
        print("\n".join(_summary(checks, examined)))
    if any(not each.healthy for each in examined):
        return ExitCode.DAMAGED
    return ExitCode.OK if all(check.ok for check in checks) else ExitCode.FAILED


def _root(service: Service | None) -> Path | None:
    return None if service is None else service.root


def _glance_at_all(service: Service | None) -> Iterator[Examined]:
    """Every session, looked at briefly."""
    if service is None:
        return
    for info in service.list_sessions(ALL, archived=None, sub_agents=True):
        try:
            yield service.upkeep.examine(info.id, thorough=False)
        except UnknownSession:  # it went away meanwhile
            continue
        except StoreError as error:
            yield Examined(info.id, (Finding("damage", error.message),))


def _summary(checks: Sequence[Check], examined: Sequence[Examined]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{'ok ' if check.ok else 'NO '} {check.name:<{width}}  {visible(check.said)}"
    sick = [each for each in examined if not each.healthy]
    yield ""
    health = f"{len(sick)} with problems:" if sick else "no problems"
    yield f"{count(len(examined), 'session')}, {health}"
    for each in sick:
        more = f" (and {len(each.findings) - 1} more)" if len(each.findings) > 1 else ""
        yield visible(f"  {each.session_id}  {each.findings[0].what}{more}")
    if sick:
        yield "`op-jupyter doctor ID` shows details; --repair fixes what can be fixed"
