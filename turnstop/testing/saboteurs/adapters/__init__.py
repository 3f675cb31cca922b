"""Adapters with one promise removed, whatever the adapter: each is between it and the kernel."""

from . import _cancelling as _cancelling
from . import _ending as _ending
from . import _neighbours as _neighbours
from . import _recovering as _recovering
from . import _speaking as _speaking
from . import _starting as _starting
