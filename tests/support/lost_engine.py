"""An engine whose runtime is installed nowhere."""

import no_such_runtime  # type: ignore[import-not-found]  # it is not there on purpose

describe = no_such_runtime.describe
