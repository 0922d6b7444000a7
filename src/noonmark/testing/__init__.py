"""For tests of your own: a clock that stands still, a driver that is driven by hand, and the suite for stores."""

from noonmark.testing.clock import FakeClock
from noonmark.testing.manual import ManualDriver

__all__ = ["FakeClock", "ManualDriver"]
