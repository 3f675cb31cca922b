"""Who works where: leases over scopes, so that no two programs write the same thing at once.

`open_claims` opens a file of them, which any number of processes of one machine share, or takes a
store of your own. `Claims.hold` is a block: all of its scopes are its own, or it is not entered.
"""

from ._claim import Claim as Claim
from ._claims import Claims as Claims
from ._claims import open_claims as open_claims
from ._errors import ClaimLapsed as ClaimLapsed
from ._errors import ClaimRefused as ClaimRefused
from ._errors import ClaimsUnavailable as ClaimsUnavailable
from ._errors import MalformedScope as MalformedScope
from ._store import ClaimsStatistics as ClaimsStatistics
from ._store import ClaimStore as ClaimStore
from ._store import Wanted as Wanted
from ._stores import MemoryStore as MemoryStore

__all__ = [
    "Claim",
    "ClaimLapsed",
    "ClaimRefused",
    "ClaimStore",
    "Claims",
    "ClaimsStatistics",
    "ClaimsUnavailable",
    "MalformedScope",
    "MemoryStore",
    "Wanted",
    "open_claims",
]
