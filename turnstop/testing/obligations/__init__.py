"""The obligations, promise by promise. The order of these imports is that of their checking."""

# isort: off
from . import stopping as stopping
from . import queueing as queueing
from . import settling as settling
from . import speaking as speaking
from . import neighbours as neighbours
from . import breaking as breaking
from . import recovering as recovering
