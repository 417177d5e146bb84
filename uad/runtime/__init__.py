"""Opens models and runs them on one thread: `runtime.Runtime`."""
