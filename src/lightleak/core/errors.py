"""The few errors LightLeak raises. Each message names the thing, what was expected and what came."""


class LightLeakError(Exception):
    """Base of every error LightLeak raises on purpose."""


class UsageError(LightLeakError):
    """Wrong use: a setting, a name or a file that cannot be served. The command exits with code 2."""


class DataError(UsageError):
    """A table, file or column that is not what its schema says."""


class ObservationError(UsageError):
    """An observation that cannot be attacked: damaged, inconsistent or of the wrong kind."""


class UnsupportedError(UsageError):
    """A combination that is known to have no meaning or no implementation; the message names the alternative."""
