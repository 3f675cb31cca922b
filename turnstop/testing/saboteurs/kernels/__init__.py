"""Kernels with one promise removed: each stands in for one function of the kernel."""

from . import _asking as _asking
from . import _breaking as _breaking
from . import _leaving as _leaving
from . import _neighbours as _neighbours
from . import _queueing as _queueing
from . import _recovering as _recovering
from . import _settling as _settling
from . import _speaking as _speaking
