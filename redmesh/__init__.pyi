from redmesh.api import PIPE as PIPE
from redmesh.api import Launch as Launch
from redmesh.api import attach as attach
from redmesh.api import launch as launch
from redmesh.api import run as run
from redmesh.api import stacks as stacks
from redmesh.errors import LaunchFailed as LaunchFailed
from redmesh.errors import NotLaunched as NotLaunched
from redmesh.errors import RedmeshError as RedmeshError
from redmesh.events import Aborted as Aborted
from redmesh.events import Allocated as Allocated
from redmesh.events import BadExit as BadExit
from redmesh.events import End as End
from redmesh.events import Event as Event
from redmesh.events import Exit as Exit
from redmesh.events import Lost as Lost
from redmesh.events import OutOfMemory as OutOfMemory
from redmesh.events import Output as Output
from redmesh.events import Result as Result
from redmesh.events import SameEnd as SameEnd
from redmesh.events import Started as Started
from redmesh.executor import Executor as Executor
from redmesh.placement import Geometry as Geometry
from redmesh.placement import Layout as Layout
from redmesh.placement import Placement as Placement
from redmesh.placement import PlacementError as PlacementError

__version__: str

def debug_here() -> None: ...
def debug_on_request() -> None: ...

class Job:
    uuid: str
    task: int | None
    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str, default: str | None = None) -> str | None: ...
    def log(self, text: str) -> None: ...
    def progress(self, part: float, text: str = "", *, whole_job: bool = False) -> None: ...
    def path(self) -> str: ...
    def move(self, node: str) -> None: ...
    def close(self) -> None: ...

def job() -> Job: ...
