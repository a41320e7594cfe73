"""The variables that give a rank its devices."""

from __future__ import annotations

from ompbind.planning.plan import Placement
from ompbind.planning.request import Request

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from ompbind.planning.rank_variables import Variables


def make_device_variables(placement: Placement, request: Request) -> Variables:
    """Return the variables that give a rank its devices; none without devices."""
    return {}
